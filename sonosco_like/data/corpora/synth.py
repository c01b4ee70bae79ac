"""The synthetic corpus: speech made on the spot, with the same bits for the same seed."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from sonosco_like.data.corpora.corpus import SPLITS, claim_target, manifest_path, write_manifests
from sonosco_like.data.corpora.espeak import require_espeak
from sonosco_like.data.corpora.grammar import Kind, grammar
from sonosco_like.data.corpora.rendering import SpeakerJob, SpokenUtterance, render_speakers
from sonosco_like.data.corpora.speakers import draw_voices, split_variants
from sonosco_like.data.tools.split import SHARES
from sonosco_like.errors import UsageError
from sonosco_like.process import usable_processors
from sonosco_like.progress import Progress, no_progress
from sonosco_like.records import Utterance
from sonosco_like.serialization import replace_file, serializable
from sonosco_like.untrusted_files import check_writing, read_limited, refuse_links

_SECONDS_PER_SPEAKER = 12.0  # few, because new speakers teach more than more speech of the same speakers
_FEWEST_SPEAKERS = 2


def synthesize(
    target: Path,
    kind: str = "digits",
    minutes: float = 30.0,
    seed: int = 0,
    variety: float = 1.0,
    workers: int | None = None,
    force: bool = False,
    progress: Progress = no_progress,
    begun: Callable[[], None] | None = None,
) -> dict[str, Path]:
    """Write `train`, `val` and `test` manifests and their audio into a folder; `minutes` is the length of all three.

    Voices and texts of the three are disjoint. `variety` from 0 to 1 is how much rooms, microphones, noise and loudness
    differ. Audio is made in `workers` processes (default: all processors), whose number changes no bit.
    `begun` is called after the folder is claimed.
    """
    _check(kind, minutes, seed, variety, workers)
    require_espeak()
    claim_target(target, force)
    if begun is not None:
        begun()
    jobs = plan_speakers(target / "audio", kind, minutes, seed, variety)
    spoken: dict[str, list[SpokenUtterance]] = {split: [] for split in SPLITS}
    shown = progress(f"{kind} spoken by {len(jobs)} speakers", minutes * 60, "s")
    with closing(render_speakers(jobs, workers or usable_processors())) as rendered, shown as advance:
        for job, utterances in zip(jobs, rendered, strict=True):
            spoken[job.split] += utterances
            advance(sum(utterance.duration for utterance in utterances))
    return write_manifests(target, {split: map(_utterance, rows) for split, rows in spoken.items()})


def plan_speakers(folder: Path, kind: str, minutes: float, seed: int, variety: float) -> list[SpeakerJob]:
    """The speakers to render: a pure function of the arguments."""
    variants = split_variants(np.random.default_rng(seed))
    jobs = []
    for number, split in enumerate(SPLITS, 1):  # from 1, because numpy takes [seed, 0] for [seed]
        seconds = minutes * 60 * SHARES[split]
        count = max(_FEWEST_SPEAKERS, round(seconds / _SECONDS_PER_SPEAKER))
        voices = draw_voices(variants[split], np.random.default_rng([seed, number]))
        for index, voice in enumerate(itertools.islice(voices, count), 1):
            jobs.append(
                SpeakerJob(
                    name=f"{split}-{index:04d}-{voice.rpartition('/')[2].replace(' ', '_')}",
                    voice=voice,
                    split=split,
                    kind=kind,
                    seconds=seconds / count,
                    variety=variety,
                    seed=(seed, number, index),
                    folder=folder,
                )
            )
    return jobs


def _utterance(spoken: SpokenUtterance) -> Utterance:
    return Utterance(spoken.id, str(spoken.path), spoken.duration, spoken.text, spoken.speaker)


def _check(kind: str, minutes: float, seed: int, variety: float, workers: int | None) -> None:
    grammar(kind)
    if not (math.isfinite(minutes) and minutes > 0):
        raise UsageError(f"`minutes` must be a number above 0, got {minutes}.")
    if seed < 0:
        raise UsageError(f"`seed` must not be negative, got {seed}.")
    if not 0.0 <= variety <= 1.0:
        raise UsageError(f"`variety` must be from 0 (a quiet studio) to 1 (anything), got {variety}.")
    if workers is not None and workers < 1:
        raise UsageError(f"`workers` must be at least 1, got {workers}.")


_MADE_WITH = "made_with.json"
_BEGUN = "being_made.json"
_MOST_BYTES = 10_000  # in the note of the settings


@serializable
class SyntheticCorpus:
    """The synthetic corpus of a config, in `folder`. The first run makes it, and later runs use it."""

    folder: Path
    kind: Kind = "digits"
    minutes: float = 30.0
    seed: int = 0
    variety: float = 1.0

    def prepare(self, progress: Progress = no_progress) -> None:
        """Make the corpus unless it exists; the manifests are written last, so a corpus with them is complete."""
        if manifest_path(self.folder, "test").exists():
            self._refuse_other_settings()
            return
        check_writing(self.folder, "corpus.folder")
        if self.folder.is_dir():
            refuse_links(self.folder, [path.name for path in self.folder.iterdir()])
        what = (self.kind, self.minutes, self.seed, self.variety)
        begun = any((self.folder / name).is_file() for name in (_BEGUN, _MADE_WITH))
        if not begun:
            self._refuse_folder_of_others()
        synthesize(self.folder, *what, force=begun, progress=progress, begun=self._begin)
        replace_file(self.folder / _MADE_WITH, f"{self._settings()}\n".encode())
        (self.folder / _BEGUN).unlink(missing_ok=True)

    def _refuse_folder_of_others(self) -> None:
        present = sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []
        if present:
            raise UsageError(
                f"The corpus of the config is to be made in {self.folder}, which holds other files "
                f"({present[0]!r}). Give another folder: --set corpus.folder=..."
            )

    def _begin(self) -> None:
        """Mark the folder as ours, so that an incomplete corpus is made again; other folders belong to the user."""
        replace_file(self.folder / _BEGUN, f"{self._settings()}\n".encode())

    def _settings(self) -> str:
        names = ("kind", "minutes", "seed", "variety")
        return json.dumps({name: getattr(self, name) for name in names})

    def _refuse_other_settings(self) -> None:
        """Refuse a corpus that was made with other settings; a corpus without a note of them is used as it is."""
        note = self.folder / _MADE_WITH
        if not note.exists():
            return
        made_with = read_limited(note, _MOST_BYTES).decode(errors="replace").strip()
        if made_with != self._settings():
            raise UsageError(
                f"The corpus in {self.folder} was made with {made_with}, but the config asks for {self._settings()}. "
                "Remove that folder, or give the config's corpus another `folder`."
            )
