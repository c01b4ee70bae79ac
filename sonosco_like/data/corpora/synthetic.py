"""The corpus a config may ask for, so that its first run needs no data."""

from __future__ import annotations

import json
from pathlib import Path

from sonosco_like.data.corpora.grammar import Kind
from sonosco_like.data.corpora.synth import synthesize
from sonosco_like.data.corpora.target import manifest_path
from sonosco_like.data.tools.progress import Progress, no_progress
from sonosco_like.errors import UsageError
from sonosco_like.links import refuse_links
from sonosco_like.permissions import check_writing
from sonosco_like.serialization import files, serializable
from sonosco_like.strangers import read_bytes

_MADE_WITH = "made_with.json"
_BEGUN = "being_made.json"
_MOST_BYTES = 10_000  # in the note of the settings


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
        check_writing(self.folder, "corpus.folder")
        if self.folder.is_dir():
            refuse_links(self.folder, [path.name for path in self.folder.iterdir()])
        what = (self.kind, self.minutes, self.seed, self.variety)
        begun = any((self.folder / name).is_file() for name in (_BEGUN, _MADE_WITH))
        if not begun:
            self._refuse_folder_of_others()
        synthesize(self.folder, *what, force=begun, progress=progress, begun=self._begin)
        files.replace_file(self.folder / _MADE_WITH, f"{self._settings()}\n".encode())
        (self.folder / _BEGUN).unlink(missing_ok=True)

    def _refuse_folder_of_others(self) -> None:
        present = sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []
        if present:
            raise UsageError(
                f"The corpus of the config is to be made in {self.folder}, which holds something else "
                f"({present[0]!r}). Give another folder: --set corpus.folder=..."
            )

    def _begin(self) -> None:
        """Mark the folder as this corpus's, so that one half made is made again; what else is there is somebody's."""
        files.replace_file(self.folder / _BEGUN, f"{self._settings()}\n".encode())

    def _settings(self) -> str:
        names = ("kind", "minutes", "seed", "variety")
        return json.dumps({name: getattr(self, name) for name in names})

    def _refuse_other_settings(self) -> None:
        """A corpus without a note of its settings was made by hand, and is taken as it is."""
        note = self.folder / _MADE_WITH
        if not note.exists():
            return
        made_with = read_bytes(note, _MOST_BYTES).decode(errors="replace").strip()
        if made_with != self._settings():
            raise UsageError(
                f"The corpus in {self.folder} was made with {made_with}, but the config asks for {self._settings()}. "
                "Remove that folder, or give the config's corpus another `folder`."
            )
