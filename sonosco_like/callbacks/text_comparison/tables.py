"""Transcripts in TensorBoard's own tabs: what was said beside what was heard, with audio and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

import torch
from torch.nn.utils.rnn import pad_sequence

from sonosco_like.callbacks.media import Markdown
from sonosco_like.callbacks.naming import number_among
from sonosco_like.callbacks.text_comparison.comparing import ComparesTexts
from sonosco_like.callbacks.text_comparison.markdown import comparison
from sonosco_like.callbacks.text_comparison.pictures import alignment_picture, spectrogram_picture
from sonosco_like.callbacks.text_comparison.samples import Sample
from sonosco_like.decoding import AttentionBeamDecoder, Decoder
from sonosco_like.errors import UsageError
from sonosco_like.events import Moment
from sonosco_like.metrics import Judged, Need, count_errors, words_of
from sonosco_like.records import Output
from sonosco_like.serialization import diff, serializable, state


@serializable
class TbTextComparisonCallback(ComparesTexts):
    """Logs what the trainer's decoder hears, left to itself, beside what was said.

    For each sample: a Markdown table `free_running/<set>/<id>` with the words aligned and the errors marked,
    `audio/...` and `log_mel/...` once, and `alignment/...`: where the model saw each token. Several such callbacks
    share these.
    """

    how: ClassVar[str] = "free-running"

    rates: dict[str, dict[str, float]] = state({})

    def texts_needed(self) -> Iterable[Need]:
        """What the trainer's decoder hears, whoever else wants it."""
        return ("hypotheses",)

    def texts(self, moment: Moment, judged: Judged, rows: list[int]) -> Sequence[str]:
        """The trainer's own hypotheses."""
        return [judged.hypotheses[row] for row in rows]

    def compare(self, samples: list[Sample], set_name: str, context: Any) -> None:
        """Log a table for each sample, and the pictures and sounds that no callback before this one logs."""
        before = self.rates.get(set_name, {})
        values: dict[str, Any] = {}
        for sample in samples:
            text = comparison(sample.id, sample.reference, sample.hypothesis, before.get(sample.id), self.how)
            values[f"{self._name(context)}/{set_name}/{sample.id}"] = Markdown(text)
        values.update(self._media(samples, set_name, context))
        self.rates = {**self.rates, set_name: {sample.id: _word_error_rate(sample) for sample in samples}}
        if values:
            context.log(values)

    def _name(self, context: Any) -> str:
        """What the tables stand under; a second callback of one kind has a number."""
        number = number_among(self, [other for other in _siblings(context) if other.how == self.how])
        return self.how.replace("-", "_").replace(" ", "_") + (f"_{number + 1}" if number else "")

    def _media(self, samples: list[Sample], set_name: str, context: Any) -> dict[str, Any]:
        siblings = _siblings(context)
        earlier = siblings[: number_among(self, siblings)]
        heard = {name for other in earlier if other.audio for name in other.chosen.get(set_name, ())}
        seen = {name for other in earlier if other.pictures for name in other.chosen.get(set_name, ())}
        is_first = set_name not in self.rates
        values: dict[str, Any] = {}
        if self.audio and is_first:
            names = [sample.id for sample in samples if sample.id not in heard]
            values.update({f"audio/{set_name}/{name}": audio for name, audio in self.recordings(names).items()})
        for sample in samples if self.pictures else ():
            if sample.id in seen:
                continue
            if is_first:
                values[f"log_mel/{set_name}/{sample.id}"] = spectrogram_picture(sample)
            if (picture := alignment_picture(sample)) is not None:
                values[f"alignment/{set_name}/{sample.id}"] = picture
        return values


@serializable
class TbTeacherForcingTextComparisonCallback(TbTextComparisonCallback):
    """Logs what the attention decoder writes when each of its steps is told the right beginning, beside what was said.

    This is no recognition, and says so: tables are called `teacher_forced/<set>/<id>`.
    """

    how: ClassVar[str] = "teacher-forced"

    def texts_needed(self) -> Iterable[Need]:
        """What the decoder writes when it is told the right beginning."""
        return ("teacher_forced",)

    def on_attach(self, moment: Moment) -> None:
        """Refuse models that cannot be told a beginning."""
        _require_attention(moment.context.model, self)

    def texts(self, moment: Moment, judged: Judged, rows: list[int]) -> Sequence[str]:
        """The best label at each position of the reference."""
        return [judged.teacher_forced[row] for row in rows]


@serializable
class LasTextComparisonCallback(TbTextComparisonCallback):
    """Logs what a beam search hears beside what was said, for models with an attention decoder such as LAS.

    The validation itself may decode greedily, which is quicker; only the samples are searched with `decoder`, all of
    them at once, unless it is the trainer's. Tables are called `beam_search/<set>/<id>`.
    """

    how: ClassVar[str] = "beam search"

    decoder: Decoder = field(default_factory=lambda: AttentionBeamDecoder(beam_size=4))

    def texts_needed(self) -> Iterable[Need]:
        """Nothing: the samples are searched here, a few of all utterances."""
        return ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._is_the_trainers = False
        self._outputs: dict[str, Output] = {}

    def on_attach(self, moment: Moment) -> None:
        """Refuse models without attention decoder."""
        _require_attention(moment.context.model, self)
        other = moment.context.decoder
        self._is_the_trainers = type(other) is type(self.decoder) and not diff(other, self.decoder)

    def on_validation_start(self, moment: Moment) -> None:
        super().on_validation_start(moment)
        self._outputs = {}

    def texts(self, moment: Moment, judged: Judged, rows: list[int]) -> Sequence[str]:
        """The trainer's own hypotheses, if they are of such a search; else nothing yet: samples wait for each other."""
        if judged.hypothesis_texts is not None and self._is_the_trainers:
            return super().texts(moment, judged, rows)
        still_samples = {name: output for name, output in self._outputs.items() if name in self._gathering.found}
        self._outputs = still_samples | {judged.batch.ids[row]: _output_of(judged.output, row) for row in rows}
        return [""] * len(rows)

    def compare(self, samples: list[Sample], set_name: str, context: Any) -> None:
        """Search the samples, and log them as the others do."""
        outputs, self._outputs = self._outputs, {}
        if outputs and samples:
            together = _together([outputs[sample.id] for sample in samples])
            with context.judging():
                texts = self.decoder.texts(together, context.vocabulary, model=context.model)
            samples = [replace(sample, hypothesis=text) for sample, text in zip(samples, texts, strict=True)]
        super().compare(samples, set_name, context)


def _siblings(context: Any) -> list[TbTextComparisonCallback]:
    """The callbacks of this kind in the order in which they hear."""
    found = [callback for callback in context.callbacks if isinstance(callback, TbTextComparisonCallback)]
    return sorted(found, key=lambda callback: callback.order)


def _require_attention(model: Any, callback: TbTextComparisonCallback) -> None:
    if getattr(model, "decoder", None) is None:
        raise UsageError(
            f"{type(callback).__name__} needs a model with an attention decoder, but {type(model).__name__} has none. "
            f"Use TbTextComparisonCallback, which compares what any model hears."
        )


def _output_of(output: Output, row: int) -> Output:
    """What a search needs of one utterance of a batch, without the padding; the rest of the batch can be forgotten."""
    lengths_B, ctc = output.encoded_lengths_B[row : row + 1], output.ctc_logits_BSV
    frames = int(lengths_B)
    return Output(
        encoded_BSD=output.encoded_BSD[row : row + 1, :frames].clone(),
        encoded_lengths_B=lengths_B.clone(),
        ctc_logits_BSV=None if ctc is None else ctc[row : row + 1, :frames].clone(),
    )


def _together(outputs: list[Output]) -> Output:
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
