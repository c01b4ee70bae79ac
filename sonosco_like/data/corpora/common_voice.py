"""Common Voice: sentences read by volunteers in many languages (Ardila et al. 2020).

cv-corpus-17.0-2024-03-15/en/{train,dev,test}.tsv     client_id  path  sentence ...
cv-corpus-17.0-2024-03-15/en/clip_durations.tsv       clip  duration[ms]; not in old releases
cv-corpus-17.0-2024-03-15/en/clips/common_voice_en_1234.mp3
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from sonosco_like.data.corpora.corpus import Corpus, Row
from sonosco_like.data.corpora.download import Download
from sonosco_like.errors import DataError, UsageError

_SPLITS = {"train": "train", "dev": "val", "test": "test"}


class CommonVoice(Corpus):
    """One language with its official splits. Texts keep their case and punctuation: cleaning is for training to say."""

    expected: ClassVar[str] = "en/train.tsv and en/clips/"

    def __init__(self, language: str = "en") -> None:
        self._language = language

    def downloads(self) -> Sequence[Download]:
        """None: Mozilla gives the archives only to who has agreed to the terms."""
        raise UsageError(
            "Common Voice cannot be downloaded without agreeing to its terms. Get the archive of your language from "
            "https://commonvoice.mozilla.org/datasets, and name it with --source."
        )

    def rows(self, folder: Path) -> Iterator[Row]:
        """The utterances of the language; the folder may also be that of the language itself."""
        for part, split in _SPLITS.items():
            for table in sorted(folder.absolute().rglob(f"{part}.tsv")):
                if table.parent.name == self._language:
                    yield from _read_table(table, split)


def _read_table(table: Path, split: str) -> Iterator[Row]:
    milliseconds = _read_durations(table.parent / "clip_durations.tsv")
    for record in _records(table, ("client_id", "path", "sentence")):
        name = record["path"] if Path(record["path"]).suffix else f"{record['path']}.mp3"
        duration = milliseconds.get(name)
        yield Row(
            id=Path(name).stem,
            path=table.parent / "clips" / name,
            text=" ".join(record["sentence"].split()),
            speaker=record["client_id"],
            split=split,
            duration=None if not duration else duration / 1000,
        )


def _read_durations(table: Path) -> dict[str, float]:
    if not table.exists():
        return {}
    return {record["clip"]: float(record["duration[ms]"]) for record in _records(table, ("clip", "duration[ms]"))}


def _records(table: Path, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise DataError(f"{table} has no column {missing[0]!r}; is it of Common Voice?")
        yield from reader
