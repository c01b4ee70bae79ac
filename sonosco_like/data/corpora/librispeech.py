"""LibriSpeech: 960 hours of read books (Panayotov et al. 2015), https://www.openslr.org/12.

LibriSpeech/dev-clean/84/121123/84-121123.trans.txt     84-121123-0000 GO DO YOU HEAR
LibriSpeech/dev-clean/84/121123/84-121123-0000.flac
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from sonosco_like.data.corpora.corpus import SPLIT_OF_PART, Corpus, Row
from sonosco_like.data.corpora.download import Download
from sonosco_like.data.tools.texts import read_text
from sonosco_like.errors import UsageError, did_you_mean

# SHA-256 of the archives, as torchaudio publishes them
PARTS = {
    "train-clean-100": "d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2",
    "train-clean-360": "146a56496217e96c14334a160df97fffedd6e0a04e66b9c5af0d40be3c792ecf",
    "train-other-500": "ddb22f27f96ec163645d53215559df6aa36515f26e01dd70798188350adcb6d2",
    "dev-clean": "76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3",
    "dev-other": "12661c48e8c3fe1de2c1caa4c3e135193bfb1811584f11f569dd12645aa84365",
    "test-clean": "39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23",
    "test-other": "d09c181bba5cf717b3dee7d4d592af11a3ee3a09e08ae025c5506f6ebe961c29",
}
DEFAULT_PARTS = ("train-clean-100", "dev-clean", "test-clean")


class LibriSpeech(Corpus):
    """The official splits; `parts` says which of the seven are wanted."""

    expected: ClassVar[str] = "dev-clean/84/121123/84-121123.trans.txt"

    def __init__(self, parts: Sequence[str] = DEFAULT_PARTS) -> None:
        for part in parts:
            if part not in PARTS:
                raise UsageError(f"LibriSpeech has no part {part!r}{did_you_mean(part, PARTS)}")
        self._parts = tuple(parts)

    def downloads(self) -> Sequence[Download]:
        """One archive for each part."""
        return [Download(f"https://www.openslr.org/resources/12/{part}.tar.gz", PARTS[part]) for part in self._parts]

    def rows(self, folder: Path) -> Iterator[Row]:
        """The utterances of the wanted parts; the folder may also be one of them."""
        for transcript in sorted(folder.absolute().rglob("*.trans.txt")):
            part = transcript.parent.parent.parent.name
            if part in self._parts:
                yield from _read_chapter(transcript, SPLIT_OF_PART[part.partition("-")[0]])


def _read_chapter(transcript: Path, split: str) -> Iterator[Row]:
    for line in read_text(transcript).splitlines():
        name, _, text = line.partition(" ")
        yield Row(
            id=name,
            path=transcript.parent / f"{name}.flac",
            text=text.strip().lower(),
            speaker=transcript.parent.parent.name,
            split=split,
        )
