"""Where a saved trainer comes from: the run, the step and what computed it, in the sealed part of its state file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.errors import ConfigError, Problem
from sonosco_like.serialization.converter import mapping_node
from sonosco_like.serialization.scalars import INT, STR

_STEP = re.compile(r"\d{1,18}")


@dataclass(frozen=True)
class Origin:
    """The id of a run, the step a checkpoint of it was taken at, and what it was computed with, such as `torch`."""

    run: str
    step: int
    computed_with: Mapping[str, str] = field(default_factory=dict)

    def node(self) -> Node:
        """The entry of the state file."""
        machine: list[tuple[Node, Node]] = [(_text(name), _text(value)) for name, value in self.computed_with.items()]
        return mapping_node(
            [
                (_text("run"), _text(self.run)),
                (_text("step"), ScalarNode(INT, str(self.step))),
                (_text("computed_with"), mapping_node(machine)),
            ]
        )


def origin_of(node: Node, source: str) -> Origin:
    """The origin that an entry of a state file says. Raises ConfigError if it is none."""
    entries = _entries(node)
    run, step = entries.get("run"), entries.get("step")
    if not (isinstance(run, ScalarNode) and isinstance(step, ScalarNode) and _STEP.fullmatch(step.value)):
        raise ConfigError([Problem("`origin` does not say the `run` and the `step`", source=source)])
    machine = _entries(entries.get("computed_with"))
    told = {name: value.value for name, value in machine.items() if isinstance(value, ScalarNode)}
    return Origin(run.value, int(step.value), told)


def _entries(node: Node | None) -> dict[str, Node]:
    pairs = node.value if isinstance(node, MappingNode) else ()
    return {key.value: value for key, value in pairs if isinstance(key, ScalarNode)}


def _text(value: str) -> ScalarNode:
    return ScalarNode(STR, value)
