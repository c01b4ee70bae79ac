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

from sonosco_like.data.corpora.corpus import SPLIT_OF_PART, Corpus, Row
from sonosco_like.data.corpora.download import Download
from sonosco_like.errors import DataError, UsageError
from sonosco_like.strangers import lines_of, open_file


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
        for part, split in SPLIT_OF_PART.items():
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
    records = _records(table, ("clip", "duration[ms]"))
    return {record["clip"]: _milliseconds(record["duration[ms]"], table) for record in records}


def _milliseconds(text: str, table: Path) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{table} has a duration that is no number of milliseconds: {text!r}.") from None


def _records(table: Path, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows of a table that must have these columns; what a short row lacks is empty."""
    try:
        with open_file(table) as stream:
            lines = (line.decode() for line in lines_of(stream, table))
            reader = csv.DictReader(lines, restval="", delimiter="\t", quoting=csv.QUOTE_NONE)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"{table} has no column {missing[0]!r}; is it of Common Voice?")
            yield from reader
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table} cannot be read as a table in UTF-8: {error}. Get it again.") from None
