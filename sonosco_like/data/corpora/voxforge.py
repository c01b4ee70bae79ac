"""VoxForge: sentences read by volunteers, one archive for each submission.

anonymous-20080425-gxi/etc/PROMPTS             anonymous-20080425-gxi/mfc/a0001 AUTHOR OF THE DANGER TRAIL
anonymous-20080425-gxi/etc/prompts-original    a0001 Author of the danger trail.
anonymous-20080425-gxi/wav/a0001.wav           or flac/a0001.flac
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from sonosco_like.data.corpora.corpus import Corpus, Row
from sonosco_like.data.corpora.download import Download, list_downloads
from sonosco_like.data.tools.texts import read_text
from sonosco_like.errors import UsageError

INDEX = "http://www.repository.voxforge1.org/downloads/SpeechCorpus/Trunk/Audio/Main/16kHz_16bit/"
_PROMPTS = ("PROMPTS", "prompts-original")  # the first that is there


class VoxForge(Corpus):
    """Speakers are shared out. An anonymous submission is a speaker of its own, for nobody knows better."""

    expected: ClassVar[str] = "speaker-20080425-abc/etc/PROMPTS"

    def __init__(self, submissions: int | None = None, index: str = INDEX) -> None:
        if submissions is not None and submissions < 1:
            raise UsageError(f"`submissions` must be at least 1, got {submissions}.")
        self._submissions = submissions
        self._index = index

    def downloads(self) -> Sequence[Download]:
        """The archives that the repository's page links to, or the first of them; no checksums are published."""
        return list_downloads(self._index, ".tgz")[: self._submissions]

    def rows(self, folder: Path) -> Iterator[Row]:
        """The utterances of all submissions."""
        for etc in sorted(path for path in folder.rglob("etc") if path.is_dir()):
            prompts = next((etc / name for name in _PROMPTS if (etc / name).is_file()), None)
            if prompts is not None:
                yield from _read_submission(prompts)


def _read_submission(prompts: Path) -> Iterator[Row]:
    submission = prompts.parent.parent
    for line in read_text(prompts, errors="replace").splitlines():
        name, _, text = line.strip().partition(" ")
        stem = name.rpartition("/")[2]
        candidates = [submission / kind / f"{stem}.{kind}" for kind in ("wav", "flac")]
        yield Row(
            id=f"{submission.name}/{stem}",
            path=next((path for path in candidates if path.is_file()), candidates[0]),
            text=" ".join(text.lower().split()),
            speaker=_speaker(submission.name),
        )


def _speaker(submission: str) -> str:
    name = submission.partition("-")[0]
    return submission if name.lower() == "anonymous" else name
