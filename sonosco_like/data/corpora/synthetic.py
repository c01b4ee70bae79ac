"""The corpus a config may ask for, so that its first run needs no data."""

from __future__ import annotations

import json
from pathlib import Path

from sonosco_like.data.corpora.grammar import Kind
from sonosco_like.data.corpora.synth import synthesize
from sonosco_like.data.corpora.target import manifest_path
from sonosco_like.data.tools.progress import Progress, no_progress
from sonosco_like.errors import UsageError
from sonosco_like.serialization import serializable

_MADE_WITH = "made_with.json"


@serializable
class SyntheticCorpus:
    """Synthetic speech in `folder`, made before the first run and kept for the next ones."""

    folder: Path
    kind: Kind = "digits"
    minutes: float = 30.0
    seed: int = 0
    variety: float = 1.0

    def prepare(self, progress: Progress = no_progress) -> None:
        """Make the corpus unless it is there; the manifests are written last, so one that is there is whole."""
        if manifest_path(self.folder, "test").exists():
            self._refuse_other_settings()
            return
        what = (self.kind, self.minutes, self.seed, self.variety)
        synthesize(self.folder, *what, force=self.folder.exists(), progress=progress)
        (self.folder / _MADE_WITH).write_text(self._settings() + "\n")

    def _settings(self) -> str:
        names = ("kind", "minutes", "seed", "variety")
        return json.dumps({name: getattr(self, name) for name in names})

    def _refuse_other_settings(self) -> None:
        """A corpus without a note of its settings was made by hand, and is taken as it is."""
        note = self.folder / _MADE_WITH
        if not note.exists():
            return
        made_with = note.read_text().strip()
        if made_with != self._settings():
            raise UsageError(
                f"The corpus in {self.folder} was made with {made_with}, but the config asks for {self._settings()}. "
                "Remove that folder, or give the config's corpus another `folder`."
            )
