"""AN4: an hour of letters, digits and short answers, recorded at CMU in 1991. Made by Alex Acero.

an4/etc/an4_{train,test}.fileids           an4_clstk/fash/an251-fash-b
an4/etc/an4_{train,test}.transcription     <s> YES </s> (an251-fash-b)
an4/wav/an4_clstk/fash/an251-fash-b.sph
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from sonosco_like.data.corpora.corpus import Corpus, Row
from sonosco_like.data.corpora.download import Download
from sonosco_like.data.tools.texts import read_text
from sonosco_like.errors import DataError

_LINE = re.compile(r"(?:<s>)?(?P<text>[^<>()]*)(?:</s>)?\s*\((?P<id>[^()]+)\)\s*")


class AN4(Corpus):
    """The official test speakers are kept; a tenth of the others is for validation."""

    expected: ClassVar[str] = "etc/an4_train.fileids"
    shares: ClassVar[Mapping[str, float]] = {"train": 0.9, "val": 0.1}

    def downloads(self) -> Sequence[Download]:
        """The archive with NIST Sphere files; CMU publishes no checksum."""
        return [Download("http://www.speech.cs.cmu.edu/databases/an4/an4_sphere.tar.gz")]

    def rows(self, folder: Path) -> Iterator[Row]:
        """The utterances of both lists."""
        for part, split in (("train", None), ("test", "test")):
            for fileids in sorted(folder.rglob(f"an4_{part}.fileids")):
                yield from _read_list(fileids, split)


def _read_list(fileids: Path, split: str | None) -> Iterator[Row]:
    texts = _read_texts(fileids.with_suffix(".transcription"))
    for name in read_text(fileids).split():
        path = fileids.parent.parent / "wav" / f"{name}.sph"
        yield Row(path.stem, path, texts.get(path.stem, ""), path.parent.name, split)


def _read_texts(transcription: Path) -> dict[str, str]:
    texts = {}
    for number, line in enumerate(read_text(transcription).splitlines(), 1):
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise DataError(f"{transcription}, line {number}: expected words and an id in brackets, got {line!r}.")
        texts[match["id"]] = " ".join(match["text"].lower().split())
    return texts
