"""TED-LIUM: TED talks with aligned transcripts; release 3 has 452 hours (Hernandez et al. 2018), releases 1 and 2 less.

TEDLIUM_release-3/legacy/dev/stm/AlGore_2009.stm    AlGore_2009 1 AlGore_2009 17.80 28.81 <o,f0,male> what i 'm ...
TEDLIUM_release-3/legacy/dev/sph/AlGore_2009.sph
TEDLIUM_release2/dev/stm/AlGore_2009.stm            the same without `legacy`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from sonosco_like.data.corpora.corpus import SPLIT_OF_PART, Corpus, Row
from sonosco_like.data.corpora.download import Download
from sonosco_like.data.tools.texts import read_text
from sonosco_like.errors import DataError

_NOT_SCORED = "ignore_time_segment_in_scoring"
_MARKS = re.compile(
    r"<[^<>]*>|\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\)"
)  # <unk>, {NOISE}, [NOISE], word(2), (name-of-utterance)
_LOOSE_SUFFIX = re.compile(r" (?=')")  # i 'm


class TEDLIUM(Corpus):
    """The official splits, in release 3 those called `legacy`; a talk is a speaker."""

    expected: ClassVar[str] = "legacy/dev/stm/*.stm and legacy/dev/sph/*.sph"

    def downloads(self) -> Sequence[Download]:
        """Release 3, with the SHA-256 that torchaudio publishes."""
        return [
            Download(
                "https://www.openslr.org/resources/51/TEDLIUM_release-3.tgz",
                "ad1e454d14d1ad550bc2564c462d87c7a7ec83d4dc2b9210f22ab4973b9eccdb",
            )
        ]

    def rows(self, folder: Path) -> Iterator[Row]:
        """The segments of all talks."""
        for part, split in SPLIT_OF_PART.items():
            for transcript in sorted(folder.rglob(f"{part}/stm/*.stm")):
                if "speaker-adaptation" not in transcript.parts:
                    yield from _read_talk(transcript, split)


def _read_talk(transcript: Path, split: str) -> Iterator[Row]:
    audio = transcript.parent.parent / "sph" / f"{transcript.stem}.sph"
    for number, line in enumerate(read_text(transcript, errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith(";;"):
            continue
        fields = line.split(maxsplit=6)
        try:
            start, end = float(fields[3]), float(fields[4])
        except (IndexError, ValueError):
            raise DataError(f"{transcript}, line {number}: expected talk, channel, speaker, start, end.") from None
        text = fields[6] if len(fields) > 6 else ""
        if _NOT_SCORED not in text and end > start:
            yield Row(
                id=f"{transcript.stem}-{number:04d}",
                path=audio,
                text=_clean(text),
                speaker=transcript.stem,
                split=split,
                offset=start,
                duration=round(end - start, 6),
            )


def _clean(text: str) -> str:
    words = " ".join(_MARKS.sub("", text).lower().split())
    return _LOOSE_SUFFIX.sub("", words)
