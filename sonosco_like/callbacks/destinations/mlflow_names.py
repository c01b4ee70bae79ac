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
    """The path of a setting, `trainer.optimizer.lr`, as MLflow takes it; a mark tells changed ones apart."""
    made = _part(_REFUSED.sub(_number, path).replace("/", "u002f"))
    return made if made == path and len(made) <= _LONGEST else _marked(made, path)


def _written(name: str) -> str:
    """A name of the characters that are allowed; others by their number, so that two names stay two."""
    name = _REFUSED.sub(_number, name)
    return name if len(name) <= _LONGEST else _marked(name, name)


def _number(found: re.Match[str]) -> str:
    return f"u{ord(found.group()):04x}"


def _marked(name: str, original: str) -> str:
    mark = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST - 9]}-{mark}"


def _part(part: str) -> str:
    """A part of a path that stands for itself."""
    return f"_{part}" if part in ("", ".", "..") else part


def _folders_of(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]
