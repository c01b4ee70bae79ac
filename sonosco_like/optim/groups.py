"""Groups of parameters with settings of their own: by patterns of names, and by the depth of their layer.

The layers are the numbered modules of the encoder, such as `encoder.blocks.3`. If there are several lists of modules,
that with the most weights has the layers. Names are in the order in which the model was built, the way of the data.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from sonosco_like.errors import UsageError, check_patterns
from sonosco_like.serialization import serializable

REST = "rest"
_ENCODER = "encoder."
_NUMBERED = re.compile(r"(?P<list>(?:.*?\.)?)(?P<number>\d+)\.")  # the outermost number of a name


@serializable
class ParameterGroup:
    """Settings for the parameters whose names match `pattern`, such as `*.bias`; null means the optimizer's value."""

    pattern: str
    lr: float | None = None
    weight_decay: float | None = None
    momentum: float | None = None
    betas: tuple[float, float] | None = None
    eps: float | None = None

    def settings(self) -> dict[str, Any]:
        """The settings that differ from those of the optimizer."""
        given = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {name: value for name, value in given if name != "pattern" and value is not None}

    @property
    def name(self) -> str:
        """The name of the group in logged curves: `encoder` for `encoder.*`."""
        return self.pattern.strip("*.") or self.pattern


def split_by_pattern(named: Sequence[tuple[str, Any]], groups: Sequence[ParameterGroup]) -> list[dict[str, Any]]:
    """Torch's parameter groups: first `rest`, the parameters that no pattern matches, then one group per pattern.

    Raises UsageError for a pattern that matches no name, or only names that an earlier pattern matches too.
    """
    found = _assigned(named, groups)
    parts = [_group(group.name, found[place], group.settings()) for place, group in enumerate(groups)]
    return [_group(REST, found[-1], {}), *parts] if found[-1] else parts


def split_by_depth(
    named: Sequence[tuple[str, Any]], groups: Sequence[ParameterGroup], decay: float, lr: float
) -> list[dict[str, Any]]:
    """Torch's parameter groups by pattern, each one divided by depth, with rates that fall towards the input.

    A group with a rate of its own is not divided. Raises UsageError as `split_by_pattern` does, and for names without
    numbered layers.
    """
    depths = depths_of(named)
    last = max(depths.values())
    found = _assigned(named, groups)
    parts = []
    for place, group in [(-1, None), *enumerate(groups)]:
        settings = group.settings() if group is not None else {}
        name = group.name if group is not None else REST
        if "lr" in settings:
            parts.append(_group(name, found[place], settings))
            continue
        for depth in range(last, -1, -1):
            members = [pair for pair in found[place] if depths[pair[0]] == depth]
            if members:
                at_depth = {**settings, "lr": lr * decay ** (last - depth)}
                parts.append(_group(name if depth == last else f"{name}/depth_{depth}", members, at_depth))
    return parts


def depths_of(named: Sequence[tuple[str, Any]]) -> dict[str, int]:
    """The depth of each parameter: 0 before the layers of the encoder, then the number of the layer from 1 on.

    What comes after the layers, such as the output layer, has the highest depth. Raises UsageError without layers.
    """
    prefix = _ENCODER if any(name.startswith(_ENCODER) for name, _ in named) else ""
    inside = [(name, parameter) for name, parameter in named if name.startswith(prefix)]
    layers = {name: (found["list"], int(found["number"])) for name, _ in inside if (found := _NUMBERED.match(name))}
    if not layers:
        raise UsageError(
            f"`layer_decay` finds no layers: no parameter{' of the encoder' * bool(prefix)} is in a numbered module "
            "such as encoder.layers.0. Give `groups` with a `lr` each instead."
        )
    sizes: Counter[str] = Counter()
    for name, parameter in inside:
        if name in layers:
            sizes[layers[name][0]] += parameter.numel()
    chosen = sizes.most_common(1)[0][0]
    numbers = sorted({number for each, number in layers.values() if each == chosen})
    depths, depth = {}, 0
    for name, _ in inside:
        if name in layers and layers[name][0] == chosen:
            depth = numbers.index(layers[name][1]) + 1
            depths[name] = depth
        else:
            depths[name] = 0 if depth == 0 else len(numbers) + 1
    return {name: depths.get(name, len(numbers) + 1) for name, _ in named}


def _assigned(named: Sequence[tuple[str, Any]], groups: Sequence[ParameterGroup]) -> dict[int, list[tuple[str, Any]]]:
    """The named parameters of each group, by its place; -1 has those that no pattern matches."""
    found: dict[int, list[tuple[str, Any]]] = {place: [] for place in range(-1, len(groups))}
    for name, parameter in named:
        matching = (place for place, group in enumerate(groups) if fnmatchcase(name, group.pattern))
        found[next(matching, -1)].append((name, parameter))
    check_patterns((group.pattern for group in groups), [name for name, _ in named])
    for place, group in enumerate(groups):
        if not found[place]:
            raise UsageError(
                f"The patterns before {group.pattern!r} match all of its parameters. Put {group.pattern!r} before them."
            )
    return found


def _group(name: str, members: Sequence[tuple[str, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    return {"params": [parameter for _, parameter in members], "name": name, **settings}
