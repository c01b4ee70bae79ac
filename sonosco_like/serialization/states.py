"""What a run changed in one object: its `state(...)` fields, and its `state_dict` if it keeps one."""

from __future__ import annotations

from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.errors import did_you_mean
from sonosco_like.serialization.context import brief
from sonosco_like.serialization.converter import INVALID, Reader, Writer, is_mapping, mapping_items
from sonosco_like.serialization.plans import FieldPlan, Plan
from sonosco_like.serialization.registry import Entry
from sonosco_like.serialization.scalars import STR
from sonosco_like.serialization.upgrades import upgraded

STATE_DICT = "state_dict"


def parts_covered(value: Any, plan: Plan) -> set[int]:
    """Ids of the modules whose weights are in this module's own `state_dict`, so that they are not saved twice."""
    if not plan.has_state_dict or not hasattr(value, "modules"):
        return set()
    return {id(part) for part in value.modules() if part is not value}


def encode_states(value: Any, plan: Plan, writer: Writer, changed_only: bool = False) -> list[tuple[Node, Node]]:
    """The entries of an object's state; with `changed_only`, none at all if it is as fresh."""
    items: list[tuple[Node, Node]] = []
    changed = not changed_only
    for field in plan.states.values():
        with writer.at(field.name):
            node = field.converter.encode(getattr(value, field.name), writer)
        changed = changed or not _is_initial(node, field)
        items.append((ScalarNode(STR, field.name), node))
    if plan.has_state_dict and id(value) not in writer.covered:
        content = value.state_dict()
        if content:
            changed = True
            with writer.at(STATE_DICT):
                items.append((ScalarNode(STR, STATE_DICT), plan.anything.encode(dict(content), writer)))
    return items if changed else []


def restore_states(
    made: Any,
    plan: Plan,
    entry: Entry,
    version: int,
    node: Node,
    reader: Reader,
    complete: bool = False,
    covered: bool = False,
) -> None:
    """Give an object the state a mapping describes.

    `complete` makes state that is missing a problem, except the weights of a module that is `covered` by one around it.
    """
    if not is_mapping(node):
        reader.expected(node, "a mapping of state")
        return
    items = upgraded(entry, version, mapping_items(node, reader), node, reader, "upgrade_state")
    for name, value_node in items.items():
        with reader.at(name):
            if name in plan.states:
                value = plan.states[name].converter.decode(value_node, reader)
                if value is not INVALID:
                    setattr(made, name, value)
            elif name == STATE_DICT and plan.has_state_dict:
                _load_state_dict(made, entry, plan, value_node, reader)
            elif name != "class" or not complete:  # an entry of a state file says its class, the state of an object not
                reader.problem(value_node, f"{entry.name} has no state {brief(name)}{did_you_mean(name, plan.states)}")
    missing = [name for name in plan.states if name not in items]
    if complete and plan.has_state_dict and not covered and STATE_DICT not in items and made.state_dict():
        missing.append(STATE_DICT)
    if complete and missing:
        reader.problem(node, f"lacks the state {', '.join(missing)} of {entry.name}")


def _load_state_dict(made: Any, entry: Entry, plan: Plan, node: Node, reader: Reader) -> None:
    content = plan.anything.decode(node, reader)
    if content is INVALID:
        return
    try:
        made.load_state_dict(content)
    except Exception as error:  # classes check what they are given in their own ways; all mean that it does not fit
        reader.problem(node, f"{entry.name} cannot take this state: {type(error).__name__}: {error}")


def _is_initial(node: Node, field: FieldPlan) -> bool:
    fresh = Writer("")
    expected = field.converter.encode(field.default(), fresh)
    return not fresh.problems and _same(node, expected)


def _same(a: Node, b: Node) -> bool:
    if type(a) is not type(b) or a.tag != b.tag:
        return False
    if isinstance(a, ScalarNode):
        return bool(a.value == b.value)
    if len(a.value) != len(b.value):
        return False
    if isinstance(a, MappingNode):
        return all(_same(k, m) and _same(v, w) for (k, v), (m, w) in zip(a.value, b.value, strict=True))
    return all(_same(x, y) for x, y in zip(a.value, b.value, strict=True))
