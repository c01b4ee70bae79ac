"""What the Transcripts dashboard of TensorBoard shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sonosco_like.callbacks.naming import number_among
from sonosco_like.callbacks.text_comparison.comparing import ComparesTexts, is_of_utterances
from sonosco_like.callbacks.text_comparison.records import (
    Heard,
    alignments_record,
    heard_record,
    recordings_record,
    utterances_record,
)
from sonosco_like.callbacks.text_comparison.samples import Sample
from sonosco_like.events import Moment
from sonosco_like.metrics import Judged, Need
from sonosco_like.serialization import serializable, state

FREE, FORCED = "free", "teacher_forced"


@serializable
class TranscriptDashboard(ComparesTexts):
    """Logs what the Transcripts tab of TensorBoard shows: the texts of all utterances of each validation.

    Free-running hypotheses, if the trainer has a decoder, and teacher-forced ones, if the model has an attention
    decoder. Audio, features and alignments are those of the samples only.
    """

    written: list[str] = state([])
    last_steps: dict[str, int] = state({})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._heard = Heard()
        self._needed: tuple[Need, ...] = ()

    def texts_needed(self) -> Iterable[Need]:
        """Whatever texts this trainer can come by."""
        return self._needed

    def on_attach(self, moment: Moment) -> None:
        """See what the trainer can decode."""
        hears = getattr(moment.context, "decoder", None) is not None
        writes = getattr(moment.context.model, "decoder", None) is not None
        self._needed = (*(("hypotheses",) if hears else ()), *(("teacher_forced",) if writes else ()))

    def on_validation_start(self, moment: Moment) -> None:
        super().on_validation_start(moment)
        self._heard = Heard()

    def on_prediction_end(self, moment: Moment) -> None:
        """Keep the texts of every utterance."""
        if self._set is None or not is_of_utterances(moment.result):
            return
        judged, batch = moment.result, moment.result.batch
        texts = {FREE: judged.hypothesis_texts, FORCED: judged.teacher_forced_texts}
        self._heard.ids += batch.ids
        self._heard.references += batch.texts
        self._heard.durations += batch.durations or [0.0] * len(batch.ids)
        for mode, found in texts.items():
            if found is not None:
                self._heard.hypotheses.setdefault(mode, []).extend(found)
        super().on_prediction_end(moment)

    def texts(self, moment: Moment, judged: Judged, rows: list[int]) -> Sequence[str]:
        """The texts of samples are among those of all utterances."""
        return [""] * len(rows)

    def compare(self, samples: list[Sample], set_name: str, context: Any) -> None:
        """Log the validation, and what it is about if that was not logged before."""
        heard, self._heard = self._heard.sorted(), Heard()
        if not heard.hypotheses:
            return
        set_name, step = f"{set_name}{self._number(context)}", context.global_step
        place = f"transcripts/{set_name}"
        key, utterances = utterances_record(heard, set_name)
        record = heard_record(heard, set_name, key, step, self.last_steps.get(set_name))
        values = {f"{place}/heard/{step:08d}": record}
        self.last_steps = {**self.last_steps, set_name: step}
        if self._is_new(f"{place}/utterances/{key}"):
            values[f"{place}/utterances/{key}"] = utterances
        if samples and (self.audio or self.pictures) and self._is_new(f"{place}/recordings"):
            recordings = self.recordings([sample.id for sample in samples]) if self.audio else {}
            values[f"{place}/recordings"] = recordings_record(samples, recordings, set_name)
        if samples and self.pictures:
            values[f"{place}/alignments/{step:08d}"] = alignments_record(samples, set_name, step)
        context.log(values)

    def _is_new(self, tag: str) -> bool:
        """Whether this is to be written now, for the only time in this run."""
        is_new = tag not in self.written
        self.written = [*self.written, tag] if is_new else self.written
        return is_new

    def _number(self, context: Any) -> str:
        """Nothing for the first of these callbacks; a second one must not write to the same tags."""
        alike = [other for other in context.callbacks if isinstance(other, TranscriptDashboard)]
        number = number_among(self, alike)
        return f"-{number + 1}" if number else ""
