"""Names as MLflow takes them: of few characters, not too long, and such that each can be a file beside the others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

_LONGEST = 200  # MLflow takes 250; a name may still get a few characters more here
_REFUSED = re.compile(r"[^-\w. /]", re.ASCII)


class Names:
    """The names of the metrics of a run. MLflow keeps them as paths, and one cannot be a file and a folder."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._files = set(taken)
        self._folders = {folder for name in self._files for folder in _folders_of(name)}
        self._known: dict[str, str] = {}

    def of_metric(self, name: str) -> str:
        """The name of a metric, `loss/train`, as MLflow takes it; the same one for the same metric."""
        if name not in self._known:
            made = "/".join(map(_part, _written(name).split("/")))
            if made in self._folders:
                made += "_"
            if not self._files.isdisjoint(_folders_of(made)):
                made = made.replace("/", "_")
            self._files.add(made)
            self._folders.update(_folders_of(made))
            self._known[name] = made
        return self._known[name]


def name_of_parameter(path: str) -> str:
    """The path of a setting, `trainer.optimizer.lr`, as MLflow takes it."""
    return _part(_written(path).replace("/", "u002f"))


def _written(name: str) -> str:
    """A name of the characters that are allowed; others by their number, so that two names stay two."""
    name = _REFUSED.sub(lambda found: f"u{ord(found.group()):04x}", name)
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _part(part: str) -> str:
    """A part of a path that stands for itself."""
    return f"_{part}" if part in ("", ".", "..") else part


def _folders_of(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]
