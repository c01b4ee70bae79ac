"""Transcripts in TensorBoard's own tabs: reference beside hypothesis, with audio and pictures.

The pictures show the log-mel features, and where in them the model found each token, on one time axis. They are drawn
with Pillow: a figure of matplotlib takes twenty times as long, and a validation draws one for each sample."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from sonosco_like.callbacks.destination import Image, Markdown, number_among
from sonosco_like.callbacks.text_comparison.samples import Sample, TranscriptSampler, Weights
from sonosco_like.decoding import AttentionBeamDecoder, Decoder
from sonosco_like.edits import Edit, align_words, characters_of, count_errors, words_of
from sonosco_like.errors import UsageError
from sonosco_like.events import Moment, TrainerContext
from sonosco_like.metrics import DecodedBatch, Need
from sonosco_like.records import Output
from sonosco_like.serialization import diff, serializable, state

_WORDS_PER_TABLE = 14
_NOTHING = "∅"
_SPECIAL = re.compile(r"[^\w\s]", re.ASCII)
_LEGEND = "S substituted, D deleted (only in the reference), I inserted (only in the hypothesis)"


def comparison_table(name: str, reference: str, hypothesis: str, before: float | None, how: str) -> str:
    """One utterance as Markdown, word by word; `how` names the way of decoding."""
    edits = align_words(reference, hypothesis).edits
    counts = count_errors(words_of(reference), words_of(hypothesis))
    characters = count_errors(characters_of(reference), characters_of(hypothesis))
    was = "" if before is None else f" (before {_percent(before)})"
    head = f"**{escape_markdown(name)}**, {how}: WER **{_percent(counts.rate)}**{was}, CER {_percent(characters.rate)}"
    if not edits:
        return f"{head}\n\nReference and hypothesis are empty."
    pieces = [edits[first : first + _WORDS_PER_TABLE] for first in range(0, len(edits), _WORDS_PER_TABLE)]
    tables = "\n\n".join(_table(piece) for piece in pieces)
    return f"{head}\n\n{tables}" + (f"\n\n{_LEGEND}" if counts.errors else "")


def escape_markdown(text: str) -> str:
    """A text that Markdown and HTML show unchanged, whatever characters it has."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", " ".join(text.split())).replace("_", "&#95;")


def _table(edits: tuple[Edit, ...]) -> str:
    references = [_cell(edit.reference) for edit in edits]
    hypotheses = [f"**{_cell(edit.hypothesis)}**" if edit.mark else _cell(edit.hypothesis) for edit in edits]
    rows = [["reference", *references], ["---"] * (len(edits) + 1), ["hypothesis", *hypotheses]]
    if any(edit.mark for edit in edits):
        rows.append(["", *(edit.mark for edit in edits)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(word: str | None) -> str:
    return _NOTHING if word is None else escape_markdown(word)


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


@serializable
class TbTextComparisonCallback(TranscriptSampler):
    """Logs the free-running hypotheses of the trainer's decoder beside the references.

    For each sample: a Markdown table `free_running/<set>/<id>` with the words aligned and the errors marked,
    `audio/...` and `log_mel/...` once, and `alignment/...`, which shows where the model saw each token. Several such
    callbacks log these only once.
    """

    how: ClassVar[str] = "free-running"

    rates: dict[str, dict[str, float]] = state({})

    def texts_needed(self) -> Iterable[Need]:
        """The hypotheses of the trainer's decoder."""
        return ("hypotheses",)

    def texts(self, moment: Moment, decoded: DecodedBatch, rows: list[int]) -> Sequence[str]:
        """The trainer's own hypotheses."""
        return [decoded.hypotheses[row] for row in rows]

    def compare(self, samples: list[Sample], set_name: str, context: TrainerContext) -> None:
        """Log a table for each sample, and the pictures and recordings that no earlier callback logs."""
        before = self.rates.get(set_name, {})
        values: dict[str, Any] = {}
        for sample in samples:
            text = comparison_table(sample.id, sample.reference, sample.hypothesis, before.get(sample.id), self.how)
            values[f"{self._name(context)}/{set_name}/{sample.id}"] = Markdown(text)
        values.update(self._media(samples, set_name, context))
        self.rates = {**self.rates, set_name: {sample.id: _word_error_rate(sample) for sample in samples}}
        if values:
            context.log(values)

    def _name(self, context: TrainerContext) -> str:
        """The first part of the tags; a second callback of one kind has a number."""
        number = number_among(self, [other for other in _siblings(context) if other.how == self.how])
        return self.how.replace("-", "_").replace(" ", "_") + (f"_{number + 1}" if number else "")

    def _media(self, samples: list[Sample], set_name: str, context: TrainerContext) -> dict[str, Any]:
        siblings = _siblings(context)
        earlier = siblings[: number_among(self, siblings)]
        with_audio = {name for other in earlier if other.audio for name in other.chosen.get(set_name, ())}
        with_pictures = {name for other in earlier if other.pictures for name in other.chosen.get(set_name, ())}
        is_first = set_name not in self.rates
        values: dict[str, Any] = {}
        if self.audio and is_first:
            names = [sample.id for sample in samples if sample.id not in with_audio]
            values.update({f"audio/{set_name}/{name}": audio for name, audio in self.recordings(names).items()})
        for sample in samples if self.pictures else ():
            if sample.id in with_pictures:
                continue
            if is_first:
                values[f"log_mel/{set_name}/{sample.id}"] = spectrogram_picture(sample)
            if (picture := alignment_picture(sample)) is not None:
                values[f"alignment/{set_name}/{sample.id}"] = picture
        return values


@serializable
class TbTeacherForcingTextComparisonCallback(TbTextComparisonCallback):
    """Logs the texts of the attention decoder, with the reference so far as input of each step, beside the references.

    This is not recognition; therefore the tables are called `teacher_forced/<set>/<id>`.
    """

    how: ClassVar[str] = "teacher-forced"

    def texts_needed(self) -> Iterable[Need]:
        """The teacher-forced texts."""
        return ("teacher_forced",)

    def on_attach(self, moment: Moment) -> None:
        """Refuse models without an attention decoder."""
        _require_attention(moment.context.model, self)

    def texts(self, moment: Moment, decoded: DecodedBatch, rows: list[int]) -> Sequence[str]:
        """The best label at each position of the reference."""
        return [decoded.teacher_forced[row] for row in rows]


@serializable
class LasTextComparisonCallback(TbTextComparisonCallback):
    """Logs the hypotheses of a beam search beside the references, for models with an attention decoder such as LAS.

    The validation itself may decode greedily, which is faster; only the samples are decoded with `decoder`, all of them
    in one batch, unless it equals the trainer's decoder. Tables are called `beam_search/<set>/<id>`.
    """

    how: ClassVar[str] = "beam search"

    decoder: Decoder = field(default_factory=lambda: AttentionBeamDecoder(beam_size=4))

    def texts_needed(self) -> Iterable[Need]:
        """Nothing: this callback decodes its samples itself."""
        return ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._same_as_trainer = False
        self._outputs: dict[str, Output] = {}

    def on_attach(self, moment: Moment) -> None:
        """Refuse models without an attention decoder."""
        _require_attention(moment.context.model, self)
        other = moment.context.decoder
        self._same_as_trainer = type(other) is type(self.decoder) and not diff(other, self.decoder)

    def on_validation_start(self, moment: Moment) -> None:
        super().on_validation_start(moment)
        self._outputs = {}

    def texts(self, moment: Moment, decoded: DecodedBatch, rows: list[int]) -> Sequence[str]:
        """The trainer's hypotheses if its decoder is the same; else nothing yet: samples are decoded together."""
        if decoded.hypothesis_texts is not None and self._same_as_trainer:
            return super().texts(moment, decoded, rows)
        still_samples = {name: output for name, output in self._outputs.items() if name in self._collector.found}
        self._outputs = still_samples | {decoded.batch.ids[row]: _output_of(decoded.output, row) for row in rows}
        return [""] * len(rows)

    def compare(self, samples: list[Sample], set_name: str, context: TrainerContext) -> None:
        """Decode the samples, and log them as the other callbacks do."""
        outputs, self._outputs = self._outputs, {}
        if outputs and samples:
            together = _as_batch([outputs[sample.id] for sample in samples])
            model: Any = context.model
            with context.evaluation_mode():
                texts = self.decoder.texts(together, context.vocabulary, model=model)
            samples = [replace(sample, hypothesis=text) for sample, text in zip(samples, texts, strict=True)]
        super().compare(samples, set_name, context)


def _siblings(context: TrainerContext) -> list[TbTextComparisonCallback]:
    """The callbacks of this kind in the order in which they are called."""
    found = [callback for callback in context.callbacks if isinstance(callback, TbTextComparisonCallback)]
    return sorted(found, key=lambda callback: callback.order)


def _require_attention(model: Any, callback: TbTextComparisonCallback) -> None:
    if getattr(model, "decoder", None) is None:
        raise UsageError(
            f"{type(callback).__name__} needs a model with an attention decoder, but {type(model).__name__} has none. "
            f"Use TbTextComparisonCallback, which works with any model."
        )


def _output_of(output: Output, row: int) -> Output:
    """The output of one utterance without padding, as a copy, so that the batch can be freed."""
    lengths_B, ctc = output.encoded_lengths_B[row : row + 1], output.ctc_logits_BSV
    frames = int(lengths_B)
    return Output(
        encoded_BSD=output.encoded_BSD[row : row + 1, :frames].clone(),
        encoded_lengths_B=lengths_B.clone(),
        ctc_logits_BSV=None if ctc is None else ctc[row : row + 1, :frames].clone(),
    )


def _as_batch(outputs: list[Output]) -> Output:
    """Single utterances as one batch."""
    encoded = [output.encoded_BSD[0] for output in outputs]
    ctc = [output.ctc_logits_BSV[0] for output in outputs if output.ctc_logits_BSV is not None]
    return Output(
        encoded_BSD=pad_sequence(encoded, batch_first=True),
        encoded_lengths_B=torch.cat([output.encoded_lengths_B for output in outputs]),
        ctc_logits_BSV=pad_sequence(ctc, batch_first=True) if ctc else None,
    )


def _word_error_rate(sample: Sample) -> float:
    return count_errors(words_of(sample.reference), words_of(sample.hypothesis)).rate


_WIDTH, _MARGIN, _GAP = 360, 40, 20  # pixels: of the time axis, of the tokens left of it, of a title
_ROW = 13
_TICKS = 18
_GAMMA = 0.7  # below 1, so that small values are visible too
_INK, _PAPER = (60, 64, 67), (255, 255, 255)
_LOUD = np.array([[13, 8, 35], [72, 20, 104], [159, 42, 99], [229, 92, 48], [252, 181, 69], [252, 253, 191]])
_SURE = np.array([[255, 255, 255], [198, 219, 239], [107, 157, 214], [33, 90, 168], [8, 38, 94]])
_TITLES = {"attention": "attention, teacher-forced", "ctc": "CTC probabilities"}

Pixels = NDArray[np.uint8]


def spectrogram_picture(sample: Sample) -> Image:
    """The features over time, low ones at the bottom."""
    features_FT = as_bytes(sample.features_TF.T[::-1])
    high = max(1, round(120 / len(features_FT)))
    pixels = _stretch(_colour(features_FT, _LOUD), len(features_FT) * high)
    return _picture([("log-mel features", pixels, ())], sample.duration)


def alignment_picture(sample: Sample) -> Image | None:
    """A row for each token, dark where its weight is high; None if the model has no weights."""
    panels = []
    for weights in sample.weights:
        pixels = _colour(weights_as_bytes(weights), _SURE)
        panels.append((_TITLES[weights.name], _stretch(pixels, _ROW * len(weights.tokens)), weights.tokens))
    return _picture(panels, sample.duration) if panels else None


def as_bytes(values: NDArray[np.float32]) -> Pixels:
    """Values of any range as 0 to 255; the few lowest and highest are cut off."""
    low, high = np.percentile(values, [2, 99.5]) if values.size else (0.0, 1.0)
    return (255 * ((values - low) / max(high - low, 1e-6)).clip(0, 1)).astype(np.uint8)


def weights_as_bytes(weights: Weights) -> Pixels:
    """Weights from 0 to 1 as 0 to 255."""
    return (255 * weights.weights_US.clip(0, 1)).astype(np.uint8)


def _picture(panels: list[tuple[str, Pixels, tuple[str, ...]]], duration: float) -> Image:
    from PIL import Image as Pillow
    from PIL import ImageDraw

    height = sum(_GAP + len(pixels) for _, pixels, _ in panels) + _TICKS
    canvas = Pillow.new("RGB", (_MARGIN + _WIDTH + 8, height), _PAPER)
    draw, top = ImageDraw.Draw(canvas), 0
    for title, pixels, tokens in panels:
        draw.text((_MARGIN, top + 3), title, _INK, _font())
        top += _GAP
        canvas.paste(Pillow.fromarray(pixels), (_MARGIN, top))
        for row, token in enumerate(tokens):
            draw.text((_MARGIN - 6, top + row * _ROW + _ROW // 2), token[:5], _INK, _font(), anchor="rm")
        top += len(pixels)
    _draw_ticks(draw, top, duration)
    return Image(torch.from_numpy(np.asarray(canvas).copy()))


def _draw_ticks(draw: Any, top: int, duration: float) -> None:
    step = next((each for each in (0.1, 0.25, 0.5, 1, 2, 5, 10, 30) if duration / each <= 7), 60)
    for number in range(int(duration / step) + 1 if duration else 0):
        x = _MARGIN + round(_WIDTH * number * step / duration)
        draw.line((x, top, x, top + 4), _INK)
        draw.text((x, top + 5), f"{number * step:g} s", _INK, _font(), anchor="ma" if number else "la")


def _colour(values: Pixels, anchors: NDArray[np.int64]) -> Pixels:
    places = np.linspace(0, 255, len(anchors))
    brightness = 255 * np.linspace(0, 1, 256) ** _GAMMA
    table = np.stack([np.interp(brightness, places, anchors[:, channel]) for channel in range(3)], 1)
    return table.astype(np.uint8)[values]


def _stretch(pixels: Pixels, height: int) -> Pixels:
    """Pixels drawn larger (or columns left out), so that every picture has the same time axis."""
    rows = np.arange(height) * len(pixels) // max(height, 1)
    columns = np.arange(_WIDTH) * pixels.shape[1] // _WIDTH
    return np.ascontiguousarray(pixels[rows][:, columns])


@functools.cache
def _font() -> Any:
    """The font that comes with matplotlib: it knows far more scripts than that of Pillow."""
    from PIL import ImageFont

    package = importlib.util.find_spec("matplotlib")
    folder = Path(package.origin).parent if package is not None and package.origin else Path()
    file = folder / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(file), 11) if file.exists() else ImageFont.load_default()
