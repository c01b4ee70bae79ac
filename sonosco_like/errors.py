"""The errors a user can meet. Each message contains what was expected, what came, and what to do.

Layer 0: every room raises these, and the command line turns them into one readable line and an exit code.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


class SonoscoError(Exception):
    """The base of all errors that this package raises on purpose; the message explains them without a traceback."""


class UsageError(SonoscoError, ValueError):
    """The caller asked for something impossible: a wrong argument, a missing file, a wrong combination."""


class DataError(SonoscoError, ValueError):
    """A manifest, a recording or a transcript is not what it should be."""


class MissingPackageError(SonoscoError, ImportError):
    """The request needs an optional package that is not installed."""


class DefinitionError(SonoscoError, TypeError):
    """A class or function cannot be made serializable; raised at its definition."""


@dataclass(frozen=True)
class Problem:
    """One problem in a file: the file and line, the path in the object graph, and what is wrong."""

    message: str
    path: str = ""
    source: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ConfigError(SonoscoError, ValueError):
    """A text or an object graph does not fit its classes; the error carries all problems, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class StorageError(SonoscoError, OSError):
    """A saved file is missing, torn, changed, or could not be written."""


class NetworkError(SonoscoError, ConnectionError):
    """Another machine cannot be reached over the network; the config is not the cause."""

    exit_code = 1


def message_of(error: BaseException) -> str:
    """The message of an error. One that is not of this package begins with its class: alone it may say too little."""
    return str(error) if isinstance(error, SonoscoError) else f"{type(error).__name__}: {error}"


def as_sentence(message: object) -> str:
    """A message, also of another package, as a sentence: with a full stop, unless it ends with a mark of its own."""
    text = str(message).rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """The end of a message that suggests the nearest candidate; empty if none is near."""
    folded = {candidate.casefold(): candidate for candidate in sorted(candidates, reverse=True)}
    near = difflib.get_close_matches(word[:100].casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def list_some(names: Sequence[object], most: int, separator: str = ", ") -> str:
    """The first names for a message, and how many more there are: `a, b and 3 more`; `none` for an empty list."""
    more = len(names) - most
    return (separator.join(map(str, names[:most])) or "none") + (f" and {more} more" if more > 0 else "")


def check_patterns(patterns: Iterable[str], names: Sequence[str]) -> None:
    """Raise UsageError for the first pattern, such as `encoder.*`, that matches no name of a parameter."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            hint = did_you_mean(pattern, _likely_patterns(names))
            raise UsageError(f"The pattern {pattern!r} fits no parameter{hint or '.'} There are {list_some(names, 3)}.")


def _likely_patterns(names: Iterable[str]) -> set[str]:
    """Patterns that a user may have meant: whole names, parts of the model, and last names."""
    found = set()
    for name in names:
        parts = name.split(".")
        found |= {name, f"*.{parts[-1]}"} | {".".join(parts[:end]) + ".*" for end in range(1, len(parts))}
    return found
