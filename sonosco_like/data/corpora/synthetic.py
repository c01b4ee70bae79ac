"""The corpus a config may ask for, so that its first run needs no data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sonosco_like.data.corpora.synth import synthesize
from sonosco_like.data.tools.progress import Progress, no_progress
from sonosco_like.serialization import serializable


@serializable
class SyntheticCorpus:
    """Synthetic speech in `folder`, made before the first run and kept for the next ones."""

    folder: Path
    kind: Literal["digits", "commands", "sentences"] = "digits"
    minutes: float = 30.0
    seed: int = 0
    variety: float = 1.0

    def prepare(self, progress: Progress = no_progress) -> None:
        """Make the corpus unless it is there; the manifests are written last, so one that is there is whole."""
        if not (self.folder / "test.jsonl").exists():
            what = (self.kind, self.minutes, self.seed, self.variety)
            synthesize(self.folder, *what, force=self.folder.exists(), progress=progress)
