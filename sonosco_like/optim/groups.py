"""Parameters that are optimized with settings of their own, chosen by their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from sonosco_like.errors import UsageError, did_you_mean
from sonosco_like.serialization import serializable

REST = "rest"


@serializable
class ParameterGroup:
    """Settings for the parameters whose names fit `pattern`, such as `*.bias`; null stands for the optimizer's own."""

    pattern: str
    lr: float | None = None
    weight_decay: float | None = None
    momentum: float | None = None
    betas: tuple[float, float] | None = None
    eps: float | None = None

    def settings(self) -> dict[str, Any]:
        """What differs from the optimizer's own settings."""
        given = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {name: value for name, value in given if name != "pattern" and value is not None}


def divided(named: Sequence[tuple[str, Any]], groups: Sequence[ParameterGroup]) -> list[dict[str, Any]]:
    """Torch's parameter groups: those that no pattern fits, named `rest`, then one for each pattern.

    Raises UsageError for a pattern that fits no name, or none that an earlier pattern has not taken.
    """
    found: dict[int, list[Any]] = {place: [] for place in range(-1, len(groups))}
    for name, parameter in named:
        fitting = (place for place, group in enumerate(groups) if fnmatchcase(name, group.pattern))
        found[next(fitting, -1)].append(parameter)
    names = [name for name, _ in named]
    for place, group in enumerate(groups):
        if not found[place]:
            raise UsageError(_nothing_left(group.pattern, names))
    parts = [{"params": found[place], "name": _name(group), **group.settings()} for place, group in enumerate(groups)]
    return [{"params": found[-1], "name": REST}, *parts] if found[-1] else parts


def check_patterns(patterns: Iterable[str], names: Sequence[str]) -> None:
    """Raise UsageError for the first pattern that fits no name."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(_fits_nothing(pattern, names))


def _nothing_left(pattern: str, names: Sequence[str]) -> str:
    if any(fnmatchcase(name, pattern) for name in names):
        return f"All parameters that {pattern!r} fits are taken by patterns before it; put it before them."
    return _fits_nothing(pattern, names)


def _fits_nothing(pattern: str, names: Sequence[str]) -> str:
    hint = did_you_mean(pattern, _patterns_for(names))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"The pattern {pattern!r} fits no parameter{hint or '.'} There are {', '.join(names[:3])}{more}."


def _patterns_for(names: Iterable[str]) -> set[str]:
    """Patterns that people may have meant: whole names, parts of the model, and last names."""
    found = set()
    for name in names:
        parts = name.split(".")
        found |= {name, f"*.{parts[-1]}"} | {".".join(parts[:end]) + ".*" for end in range(1, len(parts))}
    return found


def _name(group: ParameterGroup) -> str:
    """What curves of a group are called: `encoder` for `encoder.*`."""
    return group.pattern.strip("*.") or group.pattern
