"""The places to which a config may write: an untrusted config must not write anywhere.

The commands that read a config allow the run folder, the working directory, and the places that the user names with
the option `--allow-write` or in the environment. Python code belongs to the user and may write anywhere.
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
from sonosco_like.redaction import drop_user, mask_secrets

ALLOW_WRITE_VARIABLE = "SONOSCO_ALLOW_WRITE"
"""The environment variable with the places, separated by commas, that every command may write to."""
EVERYWHERE = "*"
_IN_MEMORY = "memory://"
_LOCAL = re.compile(r"(file|local):(//)?", re.IGNORECASE)
_SQLITE = re.compile(r"sqlite(\+\w+)?:///?([^?]*)", re.IGNORECASE)
_limits: list[tuple[str, ...]] = []  # the last entry counts; with no entry, everything is allowed


@contextmanager
def allow_writing_only_to(places: Iterable[str | Path]) -> Iterator[None]:
    """Have `check_writing` refuse all other places, except those that the environment allows."""
    allowed_by_user = os.environ.get(ALLOW_WRITE_VARIABLE, "").split(",")
    _limits.append(tuple(text for place in (*places, *allowed_by_user) if (text := str(place).strip())))
    try:
        yield
    finally:
        _limits.pop()


def allowed_places() -> tuple[str, ...]:
    """The places that may be written to now; a command that is started from here gets the same."""
    return _limits[-1] if _limits else (EVERYWHERE,)


def check_writing(place: str | Path, name: str) -> None:
    """Raise UsageError, with the option that allows it, if the field `name` may not write to this place."""
    text = str(place)
    if not any(_is_within(text, each) for each in allowed_places()):
        shown = mask_secrets(drop_user(text))
        raise UsageError(
            f"`{name}` would write to {shown}{_behind_link(text)}, outside the run folder and the working "
            f"directory. If you trust this config, allow it: --allow-write {shlex.quote(shown)}"
        )


def _behind_link(place: str) -> str:
    """Where a path leads to, if a link hides that."""
    path, real = os.path.abspath(place), os.path.realpath(place)  # noqa: PTH100
    return "" if "://" in place or path == real else f", which leads to {real} by a link"


def _is_within(place: str, allowed: str) -> bool:
    if allowed == EVERYWHERE:
        return True
    paths, outer = _paths(place), _paths(allowed)
    if paths is not None:
        return outer is not None and all(any(path.is_relative_to(each) for each in outer) for path in paths)
    return outer is None and _is_url_within(drop_user(place), drop_user(allowed))


def _paths(place: str) -> list[Path] | None:
    """The paths on this machine that a place may mean to different libraries; None for a URL of another machine."""
    if "::" not in place and place.startswith(_IN_MEMORY):
        return []
    if sqlite := _SQLITE.match(place):
        place = sqlite[2]
    hosted = place
    while local := _LOCAL.match(place):
        place = hosted = place[local.end() :]
        if local[2] and not place.startswith("/"):  # some libraries take the first part for a host, others for a folder
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
