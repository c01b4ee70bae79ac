"""The request of the dashboard: which runs at which step, and which of their utterances in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from werkzeug.datastructures import MultiDict

SORTS = ("wer", "cer", "change", "duration", "words", "id")
FILTERS = ("all", "wrong", "right", "improved", "worsened", "audio")
_MOST_ROWS, _MOST_LANES, _LONGEST_SEARCH = 200, 12, 200


class BadQueryError(Exception):
    """The request asks for something that does not exist or makes no sense."""


Arguments: TypeAlias = "MultiDict[str, str]"


@dataclass(frozen=True, slots=True)
class Query:
    """Utterances of a validation set at a step; the first run with the first mode decides which, and their order."""

    runs: tuple[str, ...]
    set: str
    step: int
    modes: tuple[str, ...]
    sort: str = "wer"
    descending: bool = True
    filter: str = "all"
    search: str = ""
    offset: int = 0
    limit: int = 50

    @classmethod
    def parse(cls, arguments: Arguments) -> Query:
        """The query in the arguments of an address; raises BadQueryError if it makes no sense."""
        runs, modes = tuple(arguments.getlist("run")), tuple(arguments.getlist("mode"))
        if not runs or not modes or len(runs) * len(modes) > _MOST_LANES:
            raise BadQueryError(f"Ask for at least one run and mode, and for at most {_MOST_LANES} of them together.")
        return cls(
            runs=runs,
            set=arguments.get("set", ""),
            step=whole_number(arguments, "step", 0),
            modes=modes,
            sort=_one_of(arguments.get("sort", "wer"), "sort", SORTS),
            descending=arguments.get("order", "desc") != "asc",
            filter=_one_of(arguments.get("filter", "all"), "filter", FILTERS),
            search=arguments.get("search", "")[:_LONGEST_SEARCH].strip().lower(),
            offset=max(0, whole_number(arguments, "offset", 0)),
            limit=min(_MOST_ROWS, max(1, whole_number(arguments, "limit", 50))),
        )


def whole_number(arguments: Arguments, name: str, default: int) -> int:
    """An argument as a whole number."""
    text = arguments.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise BadQueryError(f"`{name}` must be a whole number, got {text[:40]!r}.") from None


def _one_of(value: str, name: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise BadQueryError(f"`{name}` must be one of {', '.join(known)}, got {value[:40]!r}.")
    return value


def lookup(found: Mapping[str, Any], name: str, what: str) -> Any:
    """The entry of that name; raises BadQueryError if there is none."""
    if name not in found:
        raise BadQueryError(f"There is no {what} {name[:80]!r}.")
    return found[name]
