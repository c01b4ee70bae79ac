"""The records of the Transcripts dashboard, as docs/dashboard.md describes them: summaries made of byte strings.

TensorBoard keeps only some of the steps of a tag, and all tags. Therefore each validation has tags of its own.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from sonosco_like.callbacks.media import Audio, DashboardData
from sonosco_like.callbacks.text_comparison.pictures import as_bytes, weights_as_bytes
from sonosco_like.callbacks.text_comparison.samples import Sample
from sonosco_like.metrics import characters_of, words_of

PLUGIN = "sonosco_transcripts"
VERSION = 1
_QUICK = 1  # level of compression: a higher one takes long and saves little


@dataclass(slots=True)
class Heard:
    """What was said and heard in the utterances of one validation; hypotheses by the way they came about."""

    ids: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    hypotheses: dict[str, list[str]] = field(default_factory=dict)

    def sorted(self) -> Heard:
        """The same by id, so that two validations of one set agree whatever the batches were."""
        order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
        return Heard(
            [self.ids[place] for place in order],
            [self.references[place] for place in order],
            [self.durations[place] for place in order],
            {mode: [texts[place] for place in order] for mode, texts in self.hypotheses.items()},
        )


def utterances_record(heard: Heard, set_name: str) -> tuple[str, DashboardData]:
    """What stays the same from validation to validation, and a key that tells whether it did."""
    columns = {"ids": heard.ids, "references": heard.references, "durations": heard.durations}
    content = _json(columns)
    key = f"{zlib.crc32(content):08x}-{len(heard.ids)}"
    about = {"kind": "utterances", "set": set_name, "key": key}
    return key, _record(about, [_packed(content)])


def heard_record(heard: Heard, set_name: str, key: str, step: int, previous: int | None) -> DashboardData:
    """What was heard at a step: the errors of each utterance, which curves are drawn from, and then the texts.

    The step of the validation before lets a reader that has seen more tell what a resumed run has left behind.
    """
    errors = {mode: errors_of(heard.references, texts) for mode, texts in heard.hypotheses.items()}
    words = sum(len(words_of(text)) for text in heard.references)
    characters = sum(len(characters_of(text)) for text in heard.references)
    rates = {
        mode: {"wer": int(found[:, 0].sum()) / max(1, words), "cer": int(found[:, 1].sum()) / max(1, characters)}
        for mode, found in errors.items()
    }
    about = {"kind": "heard", "set": set_name, "utterances": key, "step": step, "previous": previous}
    about |= {"modes": list(errors), "rates": rates}
    counts = b"".join(found.astype("<i4").tobytes() for found in errors.values())
    return _record(about, [_packed(counts), *(_packed(_json(texts)) for texts in heard.hypotheses.values())])


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
    """Audio and features of the samples, which no training changes."""
    parts: list[bytes] = []
    entries = []
    for sample in samples:
        pixels_FT = as_bytes(sample.features_TF.T[::-1])
        entry = {"id": sample.id, "duration": sample.duration, "features": _matrix(pixels_FT, parts)}
        if sample.id in recordings:
            parts.append(_wav(recordings[sample.id]))
            entry["audio"] = len(parts)
        entries.append(entry)
    return _record({"kind": "recordings", "set": set_name}, [_packed(_json(entries)), *parts])


def alignments_record(samples: list[Sample], set_name: str, step: int) -> DashboardData:
    """Where the model saw each token of the samples, and when it heard which word."""
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
    return _record({"kind": "alignments", "set": set_name, "step": step}, [_packed(_json(entries)), *parts])


def _matrix(values: NDArray[np.uint8], parts: list[bytes]) -> dict[str, int]:
    """Rows, columns, and which part of the record holds the values; part 0 is the list of all."""
    parts.append(_packed(np.ascontiguousarray(values).tobytes()))
    return {"rows": values.shape[0], "columns": values.shape[1], "part": len(parts)}


def _wav(audio: Audio) -> bytes:
    with BytesIO() as file:
        soundfile.write(file, audio.samples_N.numpy(), audio.sample_rate, subtype="PCM_16", format="WAV")
        return file.getvalue()


def _record(about: dict[str, Any], parts: list[bytes]) -> DashboardData:
    return DashboardData(PLUGIN, _json({"version": VERSION, **about}), tuple(parts))


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _packed(content: bytes) -> bytes:
    return zlib.compress(content, _QUICK)
