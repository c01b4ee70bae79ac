"""The errors a user can meet. Each message says what was expected, what came, and what to do.

Layer 0: every room raises these, and the command line turns them into one readable line and an exit code.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class SonoscoError(Exception):
    """Anything this package raises on purpose; a traceback of it is never needed to understand it."""


class UsageError(SonoscoError, ValueError):
    """The caller asked for something that cannot be: a wrong argument, a missing file, a wrong combination."""


class DataError(SonoscoError, ValueError):
    """A manifest, a recording or a transcript is not what it should be."""


class MissingPackageError(SonoscoError, ImportError):
    """An optional package is needed for what was asked, and is not installed."""


class DefinitionError(SonoscoError, TypeError):
    """A class or function cannot be made serializable; raised where it is defined."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a file: where it is, where it sits in the object graph, and what is wrong with it."""

    message: str
    path: str = ""
    source: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ConfigError(SonoscoError, ValueError):
    """A text or an object graph that does not fit its classes; carries every problem that was found, not the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class StorageError(SonoscoError, OSError):
    """A saved file is missing, torn, changed, or could not be written."""


class NetworkError(SonoscoError, ConnectionError):
    """A machine at the other end of the network cannot be reached; no fault of a config that happened to be read."""

    exit_code = 1


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """A remedy to append to a message, or nothing if no candidate is near."""
    folded = {candidate.casefold(): candidate for candidate in sorted(candidates, reverse=True)}
    near = difflib.get_close_matches(word[:100].casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""
