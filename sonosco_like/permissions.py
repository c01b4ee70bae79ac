"""Where a config may have something written: that of a stranger may not write wherever it likes.

The commands that read a config allow the run folder, the working directory, and what the user names with the option
`--allow-write` or in the environment. Python code is the user's own, and writes where it wants to.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from sonosco_like.errors import UsageError
from sonosco_like.passwords import masked, without_user

VARIABLE = "SONOSCO_ALLOW_WRITE"
"""Names places, with commas between them, that every command may write to."""
EVERYWHERE = "*"
_IN_MEMORY = "memory://"
_LOCAL = re.compile(r"(file|local):(//)?", re.IGNORECASE)
_SQLITE = re.compile(r"sqlite(\+\w+)?:///?([^?]*)", re.IGNORECASE)
_limits: list[tuple[str, ...]] = []  # the last one counts; without any, anything is allowed


@contextmanager
def writing_only_to(places: Iterable[str | Path]) -> Iterator[None]:
    """Let nothing that asks `check_writing` write elsewhere, but to what the environment allows."""
    own = os.environ.get(VARIABLE, "").split(",")
    _limits.append(tuple(text for place in (*places, *own) if (text := str(place).strip())))
    try:
        yield
    finally:
        _limits.pop()


def places_allowed() -> tuple[str, ...]:
    """What may be written to now, for a command that is started from here."""
    return _limits[-1] if _limits else (EVERYWHERE,)


def check_writing(place: str | Path, name: str) -> None:
    """Raise UsageError, which names the option that allows it, if this must not be written to now."""
    text = str(place)
    if not any(_is_within(text, each) for each in places_allowed()):
        shown = masked(without_user(text))
        raise UsageError(
            f"`{name}` would write to {shown}{_behind_link(text)}, outside of the run folder and of the working "
            f"directory. If you trust this config, allow it: --allow-write {shlex.quote(shown)}"
        )


def _behind_link(place: str) -> str:
    """Where a path leads to, if that cannot be seen."""
    path, real = os.path.abspath(place), os.path.realpath(place)  # noqa: PTH100
    return "" if "://" in place or path == real else f", which a link leads to {real}"


def _is_within(place: str, allowed: str) -> bool:
    if allowed == EVERYWHERE:
        return True
    paths, outer = _paths(place), _paths(allowed)
    if paths is not None:
        return outer is not None and all(any(path.is_relative_to(each) for each in outer) for path in paths)
    return outer is None and _is_url_within(without_user(place), without_user(allowed))


def _paths(place: str) -> list[Path] | None:
    """What a place may mean on this machine, whoever reads it; None for a URL that leads elsewhere."""
    if "::" not in place and place.startswith(_IN_MEMORY):
        return []
    if sqlite := _SQLITE.match(place):
        place = sqlite[2]
    hosted = place
    while local := _LOCAL.match(place):
        place = hosted = place[local.end() :]
        if local[2] and not place.startswith("/"):  # the name of a host comes first for some, a folder for others
            hosted = f"/{place.partition('/')[2]}"
    if "://" in place or "::" in place:
        return None
    texts = {text for each in (place, hosted) for text in (each, unquote(each))}
    readings = {reading for text in texts for reading in (text, os.path.expanduser(text))}  # noqa: PTH111
    return [Path(os.path.realpath(reading)) for reading in readings]


def _is_url_within(url: str, allowed: str) -> bool:
    base = allowed if allowed.endswith("://") else allowed.rstrip("/")
    inner = url.startswith((f"{base}/", f"{base}?")) or (base.endswith("://") and url.startswith(base))
    return url == base or (inner and "::" not in url and ".." not in unquote(url).split("/"))
