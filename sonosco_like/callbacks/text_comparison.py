"""Transcripts in TensorBoard's own tabs: what was said beside what was heard, with audio and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, ClassVar

import torch

from sonosco_like.callbacks.media import Markdown
from sonosco_like.callbacks.text_comparison_base import ComparesTexts
from sonosco_like.callbacks.text_comparison_markdown import comparison
from sonosco_like.callbacks.text_comparison_pictures import alignment_picture, spectrogram_picture
from sonosco_like.callbacks.text_comparison_samples import Sample
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
        alike = [other for other in _siblings(context) if other.how == self.how]
        number = next((place for place, other in enumerate(alike) if other is self), 0)
        return self.how.replace("-", "_").replace(" ", "_") + (f"_{number + 1}" if number else "")

    def _media(self, samples: list[Sample], set_name: str, context: Any) -> dict[str, Any]:
        siblings = _siblings(context)
        earlier = siblings[: next((place for place, other in enumerate(siblings) if other is self), 0)]
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

    The validation itself may decode greedily, which is quicker; only the samples are searched with `decoder`, unless it
    is the trainer's. Tables are called `beam_search/<set>/<id>`.
    """

    how: ClassVar[str] = "beam search"

    decoder: Decoder = field(default_factory=AttentionBeamDecoder)

    def texts_needed(self) -> Iterable[Need]:
        """Nothing: the samples are searched here, a few of all utterances."""
        return ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._is_the_trainers = False

    def on_attach(self, moment: Moment) -> None:
        """Refuse models without attention decoder."""
        _require_attention(moment.context.model, self)
        other = moment.context.decoder
        self._is_the_trainers = type(other) is type(self.decoder) and not diff(other, self.decoder)

    def texts(self, moment: Moment, judged: Judged, rows: list[int]) -> Sequence[str]:
        """The best text of the beam of each sample."""
        context = moment.context
        if judged.hypothesis_texts is not None and self._is_the_trainers:
            return super().texts(moment, judged, rows)
        return self.decoder.texts(_rows_of(judged.output, rows), context.vocabulary, model=context.model)


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


def _rows_of(output: Output, rows: list[int]) -> Output:
    """A few utterances of a batch, cut to the length of the longest of them."""
    rows_B = torch.tensor(rows, device=output.encoded_BSD.device)
    lengths_B = output.encoded_lengths_B[rows_B]
    frames = int(lengths_B.max())
    ctc = output.ctc_logits_BSV
    return Output(
        encoded_BSD=output.encoded_BSD[rows_B, :frames],
        encoded_lengths_B=lengths_B,
        ctc_logits_BSV=None if ctc is None else ctc[rows_B, :frames],
    )


def _word_error_rate(sample: Sample) -> float:
    return count_errors(words_of(sample.reference), words_of(sample.hypothesis)).rate
