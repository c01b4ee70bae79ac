"""The records of the Transcripts dashboard, as docs/dashboard.md describes them, and the callback that logs them.

TensorBoard keeps only some of the steps of a tag, but all tags. Therefore each validation has its own tags.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from sonosco_like.callbacks.destination import Audio, DashboardData, number_among
from sonosco_like.callbacks.text_comparison.samples import Sample, TranscriptSampler, has_utterances
from sonosco_like.callbacks.text_comparison.tables import as_bytes, weights_as_bytes
from sonosco_like.edits import characters_of, words_of
from sonosco_like.events import Moment, TrainerContext
from sonosco_like.metrics import DecodedBatch, Need
from sonosco_like.serialization import serializable, state

PLUGIN = "sonosco_transcripts"
VERSION = 1
_QUICK = 1  # level of compression: a higher one takes long and saves little


@dataclass(slots=True)
class ValidationTexts:
    """The texts of the utterances of one validation; hypotheses by the way of decoding."""

    ids: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    hypotheses: dict[str, list[str]] = field(default_factory=dict)

    def sorted(self) -> ValidationTexts:
        """The same texts sorted by id, so that validations of one set agree whatever their batches."""
        order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
        return ValidationTexts(
            [self.ids[place] for place in order],
            [self.references[place] for place in order],
            [self.durations[place] for place in order],
            {mode: [texts[place] for place in order] for mode, texts in self.hypotheses.items()},
        )


def utterances_record(texts: ValidationTexts, set_name: str) -> tuple[str, DashboardData]:
    """The record of the utterances, which validations share, and a key that depends on its content."""
    columns = {"ids": texts.ids, "references": texts.references, "durations": texts.durations}
    content = _json(columns)
    key = f"{zlib.crc32(content):08x}-{len(texts.ids)}"
    about = {"kind": "utterances", "set": set_name, "key": key}
    return key, _record(about, [_compress(content)])


def hypotheses_record(
    texts: ValidationTexts, set_name: str, key: str, step: int, previous: int | None
) -> DashboardData:
    """The record of one validation: the errors of each utterance, from which curves are drawn, then the texts.

    With the step of the previous validation, a reader can drop the validations that a resumed run has discarded.
    """
    errors = {mode: errors_of(texts.references, found) for mode, found in texts.hypotheses.items()}
    words = sum(len(words_of(text)) for text in texts.references)
    characters = sum(len(characters_of(text)) for text in texts.references)
    rates = {
        mode: {"wer": int(found[:, 0].sum()) / max(1, words), "cer": int(found[:, 1].sum()) / max(1, characters)}
        for mode, found in errors.items()
    }
    # `heard` is the name of this kind in the format
    about = {"kind": "heard", "set": set_name, "utterances": key, "step": step, "previous": previous}
    about |= {"modes": list(errors), "rates": rates}
    counts = b"".join(found.astype("<i4").tobytes() for found in errors.values())
    return _record(about, [_compress(counts), *(_compress(_json(found)) for found in texts.hypotheses.values())])


def errors_of(references: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.int64]:
    """Word errors and character errors of each utterance, as rows of two."""
    counts = [
        (
            Levenshtein.distance(words_of(reference), words_of(hypothesis)),
            Levenshtein.distance(characters_of(reference), characters_of(hypothesis)),
        )
        for reference, hypothesis in zip(references, hypotheses, strict=True)
    ]
    return np.array(counts, dtype=np.int64).reshape(-1, 2)


def recordings_record(samples: list[Sample], recordings: dict[str, Audio], set_name: str) -> DashboardData:
    """Audio and features of the samples, which training does not change."""
    parts: list[bytes] = []
    entries = []
    for sample in samples:
        pixels_FT = as_bytes(sample.features_TF.T[::-1])
        entry = {"id": sample.id, "duration": sample.duration, "features": _matrix(pixels_FT, parts)}
        if sample.id in recordings:
            parts.append(_wav(recordings[sample.id]))
            entry["audio"] = len(parts)
        entries.append(entry)
    return _record({"kind": "recordings", "set": set_name}, [_compress(_json(entries)), *parts])


def alignments_record(samples: list[Sample], set_name: str, step: int) -> DashboardData:
    """The weights of each token of the samples, and the times of the recognised words."""
    parts: list[bytes] = []
    entries = []
    for sample in samples:
        found = [
            {"name": each.name, "tokens": each.tokens, **_matrix(weights_as_bytes(each), parts)}
            for each in sample.weights
        ]
        words = [
            [each.text, round(each.start, 3), round(each.end, 3), round(each.confidence, 3)] for each in sample.words
        ]
        entries.append({"id": sample.id, "alignments": found, "words": words})
    return _record({"kind": "alignments", "set": set_name, "step": step}, [_compress(_json(entries)), *parts])


def _matrix(values: NDArray[np.uint8], parts: list[bytes]) -> dict[str, int]:
    """Rows, columns, and which part of the record holds the values; part 0 is the list of all."""
    parts.append(_compress(np.ascontiguousarray(values).tobytes()))
    return {"rows": values.shape[0], "columns": values.shape[1], "part": len(parts)}


def _wav(audio: Audio) -> bytes:
    with BytesIO() as file:
        soundfile.write(file, audio.samples_N.numpy(), audio.sample_rate, subtype="PCM_16", format="WAV")
        return file.getvalue()


def _record(about: dict[str, Any], parts: list[bytes]) -> DashboardData:
    return DashboardData(PLUGIN, _json({"version": VERSION, **about}), tuple(parts))


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _compress(content: bytes) -> bytes:
    return zlib.compress(content, _QUICK)


FREE, FORCED = "free", "teacher_forced"


@serializable
class TranscriptDashboard(TranscriptSampler):
    """Logs the data of the Transcripts tab of TensorBoard: the texts of all utterances of each validation.

    Free-running hypotheses, if the trainer has a decoder, and teacher-forced ones, if the model has an attention
    decoder. Audio, features and alignments are those of the samples only.
    """

    written: list[str] = state([])
    last_steps: dict[str, int] = state({})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._texts = ValidationTexts()
        self._needed: tuple[Need, ...] = ()

    def texts_needed(self) -> Iterable[Need]:
        """The texts that this trainer can decode."""
        return self._needed

    def on_attach(self, moment: Moment) -> None:
        """Find out which texts the trainer can decode."""
        has_decoder = getattr(moment.context, "decoder", None) is not None
        has_attention = getattr(moment.context.model, "decoder", None) is not None
        self._needed = (*(("hypotheses",) if has_decoder else ()), *(("teacher_forced",) if has_attention else ()))

    def on_validation_start(self, moment: Moment) -> None:
        super().on_validation_start(moment)
        self._texts = ValidationTexts()

    def on_prediction_end(self, moment: Moment) -> None:
        """Keep the texts of every utterance."""
        if self._set is None or not has_utterances(moment.result):
            return
        decoded, batch = moment.result, moment.result.batch
        texts = {FREE: decoded.hypothesis_texts, FORCED: decoded.teacher_forced_texts}
        self._texts.ids += batch.ids
        self._texts.references += batch.texts
        self._texts.durations += batch.durations or [0.0] * len(batch.ids)
        for mode, found in texts.items():
            if found is not None:
                self._texts.hypotheses.setdefault(mode, []).extend(found)
        super().on_prediction_end(moment)

    def texts(self, moment: Moment, decoded: DecodedBatch, rows: list[int]) -> Sequence[str]:
        """Nothing: the texts of the samples are among those of all utterances."""
        return [""] * len(rows)

    def compare(self, samples: list[Sample], set_name: str, context: TrainerContext) -> None:
        """Log the validation, and its utterances and recordings if they were not logged before."""
        texts, self._texts = self._texts.sorted(), ValidationTexts()
        if not texts.hypotheses:
            return
        set_name, step = f"{set_name}{self._number(context)}", context.global_step
        place = f"transcripts/{set_name}"
        key, utterances = utterances_record(texts, set_name)
        record = hypotheses_record(texts, set_name, key, step, self.last_steps.get(set_name))
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
        """Whether this is the first use of a tag in this run; the tag is remembered."""
        is_new = tag not in self.written
        self.written = [*self.written, tag] if is_new else self.written
        return is_new

    def _number(self, context: TrainerContext) -> str:
        """A suffix for the second and further callbacks of this kind, which must not write to the same tags."""
        alike = [other for other in context.callbacks if isinstance(other, TranscriptDashboard)]
        number = number_among(self, alike)
        return f"-{number + 1}" if number else ""
