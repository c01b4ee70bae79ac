"""Objects of registered classes: a mapping of their fields."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sonosco_like.errors import NetworkError, SonoscoError, as_sentence, did_you_mean, list_some, message_of
from sonosco_like.serialization.converter import (
    INVALID,
    REFERENCE,
    Compound,
    FieldPlan,
    Fit,
    Invalid,
    Plan,
    Reader,
    Schema,
    Writer,
    field_value,
    mapping_items,
    not_of_type,
    not_serializable,
)
from sonosco_like.serialization.nodes import brief, is_mapping, is_removal, mapping_node, plain_node, plain_scalar
from sonosco_like.serialization.registry import REGISTRY, Registration, fits, is_abstract
from sonosco_like.serialization.yaml_text import MAP, SEQ, STR, Kind, kind_of

_RESERVED = ("class", "state")
_MAX_VALUES = 100_000


def upgraded(
    entry: Registration, version: int, items: dict[str, Node], node: Node, reader: Reader, hook: str
) -> dict[str, Node]:
    """The entries after every upgrade from `version` to the current one; unchanged when there is nothing to do."""
    step = getattr(entry.target, hook, None)
    if version == entry.version or step is None:
        return items
    kept = {name: items[name] for name in _RESERVED if name in items}
    try:
        budget = itertools.count()
        plain = {name: _plain(value, budget) for name, value in items.items() if name not in kept}
        originals = {id(value): items[name] for name, value in plain.items()}
        current = dict(plain)
        for number in range(version, entry.version):
            current = dict(step(number, current))
        made = {name: _as_node(value, originals.get(id(value)), node, budget) for name, value in current.items()}
        return {**kept, **made}
    except Exception as error:  # an upgrade is code for files it has not seen; its failure is a problem of this file
        reader.problem(node, f"{entry.name} version {version} could not be upgraded: {type(error).__name__}: {error}")
        return items


def _as_node(value: Any, original: Node | None, near: Node, budget: Iterator[int]) -> Node:
    """A value as a node: the one it was read from, with its line and its aliases, if the upgrade left it as it was."""
    if original is not None and _plain(original, budget) == value:
        return original
    return plain_node(value, near)


def _plain(node: Node, budget: Iterator[int]) -> Any:
    """A node as plain data for an upgrade: scalars, and lists and mappings of them.

    Anything else, such as an object or a reference to a tensor, stays a node, which may be moved, renamed or dropped.
    """
    if next(budget) > _MAX_VALUES:
        raise ValueError(f"it holds more than {_MAX_VALUES:,} values, aliases counted each time")
    if isinstance(node, ScalarNode):
        return plain_scalar(node) if kind_of(node) is not Kind.OTHER else node
    if isinstance(node, SequenceNode) and node.tag == SEQ:
        return [_plain(item, budget) for item in node.value]
    if not isinstance(node, MappingNode):  # a list with a tag, such as a tuple
        return node
    keys = [key.value for key, _ in node.value if isinstance(key, ScalarNode) and kind_of(key) is Kind.TEXT]
    if node.tag == MAP and len(keys) == len(node.value) and not {"class", "function"} & set(keys):
        return {key.value: _plain(value, budget) for key, value in node.value}
    return node


_VERSION = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
CLASS, STATE, STATE_DICT = "class", "state", "state_dict"


class ObjectConverter(Compound):
    """An object of a class that fits `base`: a mapping of its fields, with its `class`."""

    def __init__(self, base: Any, plan_of: Callable[[Any], Plan]) -> None:
        self.base = base
        self.plan_of = plan_of
        self.name = getattr(base, "__name__", str(base))
        self.expected = f"{_article(self.name)} {self.name}" if base is not object else "an object"

    def read(self, node: Node, reader: Reader) -> Any:
        if isinstance(node, ScalarNode) and node.tag == REFERENCE:
            return self._refer(node, reader)
        if not is_mapping(node):
            hint = did_you_mean(node.value, self._names()) if isinstance(node, ScalarNode) else ""
            known = isinstance(node, ScalarNode) and node.value in self._names()
            return reader.expected(node, self.expected, f"; write {{class: {node.value}}}" if known else hint)
        found = self._registration(node, reader)
        if isinstance(found, Invalid):
            return INVALID
        return self.construct(node, *found, reader)

    def _refer(self, node: ScalarNode, reader: Reader) -> Any:
        found = reader.objects.get(node.value)
        if found is None or not self.fit_of_value(found):
            return reader.problem(node, f"there is no {self.name} at {brief(node.value)} in this graph")
        return found

    def construct(self, node: MappingNode, entry: Registration, version: int, reader: Reader) -> Any:
        """The object that a mapping describes; the same object for every alias of the mapping."""
        key = (id(node), id(entry))
        if key in reader.memo:
            found = reader.memo[key][1]
            return reader.expected(node, self.expected, " that is valid") if found is INVALID else found
        plan = self.plan_of(entry.target)
        known_problems = reader.problem_count
        items = upgraded(entry, version, mapping_items(node, reader), node, reader, "upgrade")
        values = decode_fields(node, items, plan.fields, entry, reader, also=(CLASS, STATE))
        made: Any = INVALID
        if reader.problem_count == known_problems:
            made = self._call(node, entry, values, reader)
        if made is not INVALID and STATE in items:
            with reader.at(STATE):
                restore_states(made, plan, entry, version, items[STATE], reader)
        reader.memo[key] = (node, made)
        return made

    def write(self, value: Any, writer: Writer) -> Node:
        entry = REGISTRY.registration_of(type(value))
        if entry is None or not isinstance(type(value), type):
            return not_serializable(value, writer)
        if not self.fit_of_value(value):
            return not_of_type(value, self, writer)
        if id(value) in writer.objects:
            return ScalarNode(REFERENCE, writer.objects[id(value)])
        key = (id(value), id(entry))
        known = writer.memo.get(key)
        if known is not None and known[1] is not None:
            return known[1]
        plan = self.plan_of(entry.target)
        writer.covered |= parts_covered(value, plan)
        before = writer.problem_count
        items: list[tuple[Node, Node]] = [(ScalarNode(STR, CLASS), ScalarNode(STR, entry.tag))]
        for field in plan.fields.values():
            writer.parts.append(field.name)
            items.append((ScalarNode(STR, field.name), encode_attribute(value, field, writer)))
            writer.parts.pop()
        if writer.with_state:
            with writer.at(STATE):
                states = encode_states(value, plan, writer)
            items += [(ScalarNode(STR, STATE), mapping_node(states))] if states else []
        node = mapping_node(items)
        if writer.problem_count == before:
            writer.memo[key] = (value, node)
        return node

    def fit_of_node(self, node: Node) -> Fit:
        if not is_mapping(node):
            return Fit.EXACT if node.tag == REFERENCE else Fit.NO
        name = value_of(node, CLASS)
        if name is None:
            return Fit.POSSIBLE if self._is_concrete() else Fit.NO
        entry = REGISTRY.find(_split(name)[0])
        return Fit.EXACT if entry and entry.is_class and fits(entry.target, self.base) else Fit.NO

    def fit_of_value(self, value: Any) -> Fit:
        try:
            return Fit.EXACT if isinstance(value, self.base) else Fit.NO
        except TypeError:  # a protocol that cannot be checked at run time
            return Fit.POSSIBLE

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        options = [refer(entry.target) for entry in REGISTRY.subclasses(self.base) if not is_abstract(entry.target)]
        if len(options) == 1:
            return options[0]
        return {"anyOf": options} if options else {"type": "object"}

    def _version_without_class(self, entry: Registration, node: MappingNode) -> int:
        """The current version, unless a key is unknown to it: only a file of an older version has such keys."""
        known = {CLASS, STATE, *self.plan_of(entry.target).fields}
        unknown = any(isinstance(key, ScalarNode) and key.value not in known for key, _ in node.value)
        return 1 if unknown else entry.version

    def _registration(self, node: MappingNode, reader: Reader) -> tuple[Registration, int] | Invalid:
        class_node = next((value for key, value in node.value if _is_key(key, CLASS)), None)
        if class_node is None:
            if self._is_concrete():
                entry = REGISTRY.registration_of(self.base)
                assert entry is not None
                return entry, self._version_without_class(entry, node)
            return reader.problem(node, f"needs `class`: which {self.name} is it? One of {_list_names(self._names())}")
        with reader.at(CLASS):
            found = find_registration(class_node, "class", reader, self._names)
            if isinstance(found, Invalid):
                return INVALID
            if not fits(found[0].target, self.base):
                names = _list_names(self._names())
                return reader.problem(class_node, f"expected {self.expected}, got {found[0].name}; known are {names}")
            if is_abstract(found[0].target):
                return reader.problem(
                    class_node, f"{found[0].name} is abstract; take one of {_list_names(self._names())}"
                )
            return found

    def _is_concrete(self) -> bool:
        return REGISTRY.registration_of(self.base) is not None and not is_abstract(self.base)

    def _names(self) -> list[str]:
        return [entry.name for entry in REGISTRY.subclasses(self.base) if not is_abstract(entry.target)]

    @staticmethod
    def _call(node: Node, entry: Registration, values: dict[str, Any], reader: Reader) -> Any:
        try:
            return entry.target(**values)
        except NetworkError:
            raise
        except (ConnectionError, TimeoutError) as error:
            raise NetworkError(f"{entry.name} cannot reach what it needs: {as_sentence(message_of(error))}") from error
        except SonoscoError as error:
            return reader.problem(node, f"{entry.name}: {error}")
        except Exception as error:  # whatever a class's own __post_init__ objects to is a problem of the file
            return reader.problem(node, f"{entry.name} refuses these values: {type(error).__name__}: {error}")


def parts_covered(value: Any, plan: Plan) -> set[int]:
    """The ids of the modules whose weights are in the `state_dict` of this module, so that they are not saved twice."""
    if not plan.has_state_dict or not hasattr(value, "modules"):
        return set()
    return {id(part) for part in value.modules() if part is not value}


def encode_states(value: Any, plan: Plan, writer: Writer) -> list[tuple[Node, Node]]:
    """The entries of an object's state."""
    items: list[tuple[Node, Node]] = []
    for field in plan.states.values():
        with writer.at(field.name):
            items.append((ScalarNode(STR, field.name), field.converter.encode(getattr(value, field.name), writer)))
    if plan.has_state_dict and id(value) not in writer.covered and (content := value.state_dict()):
        with writer.at(STATE_DICT):
            items.append((ScalarNode(STR, STATE_DICT), plan.anything.encode(dict(content), writer)))
    return items


def restore_states(
    made: Any,
    plan: Plan,
    entry: Registration,
    version: int,
    node: Node,
    reader: Reader,
    complete: bool = False,
    covered: bool = False,
) -> None:
    """Give an object the state that a mapping describes.

    With `complete`, missing state is a problem, except the weights of a module that is `covered` by one around it.
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
            elif (
                name != "class" or not complete
            ):  # an entry of a state file has its `class`, the state of an object has not
                reader.problem(value_node, f"{entry.name} has no state {brief(name)}{did_you_mean(name, plan.states)}")
    missing = [name for name in plan.states if name not in items]
    if complete and plan.has_state_dict and not covered and STATE_DICT not in items and made.state_dict():
        missing.append(STATE_DICT)
    if complete and missing:
        reader.problem(node, f"lacks the state {', '.join(missing)} of {entry.name}")


def _load_state_dict(made: Any, entry: Registration, plan: Plan, node: Node, reader: Reader) -> None:
    content = plan.anything.decode(node, reader)
    if content is INVALID:
        return
    try:
        made.load_state_dict(content)
    except Exception as error:  # classes check what they are given in their own ways; all mean that it does not fit
        reader.problem(node, f"{entry.name} cannot take this state: {type(error).__name__}: {error}")


def encode_attribute(value: Any, field: FieldPlan, writer: Writer) -> Node:
    """One field of an object; an attribute that was deleted is a problem of the object, not a crash."""
    try:
        attribute = field_value(value, field.name)
    except AttributeError:
        return writer.problem("is a field without a value: the object no longer has this attribute")
    return field.converter.encode(attribute, writer)


def decode_fields(
    node: Node,
    items: dict[str, Node],
    fields: dict[str, FieldPlan],
    entry: Registration,
    reader: Reader,
    also: Iterable[str],
) -> dict[str, Any]:
    """The values of the named fields; unknown and missing names are problems."""
    values = {}
    removed = [name for name, each in items.items() if is_removal(each) and not _takes_null(fields.get(name), each)]
    items = {name: each for name, each in items.items() if name not in removed} if removed else items
    for name, value_node in items.items():
        field = fields.get(name)
        if field is not None:
            reader.parts.append(name)
            values[name] = field.converter.decode(value_node, reader)
            reader.parts.pop()
        elif name not in also:
            with reader.at(name):
                reader.problem(value_node, f"{entry.name} has no field {brief(name)}{_known_fields(name, fields)}")
    for name, field in fields.items():
        if field.required and name not in items:
            with reader.at(name):
                reader.problem(node, f"{entry.name} needs this field: {field.converter.expected}")
    return values


def _takes_null(field: FieldPlan | None, null: Node) -> bool:
    return field is not None and field.converter.fit_of_node(null) is Fit.EXACT


def find_registration(
    node: Node, kind: str, reader: Reader, candidates: Callable[[], list[str]]
) -> tuple[Registration, int] | Invalid:
    """The registered class or function that a scalar names, and the version; `candidates` are names for the hint."""
    if not isinstance(node, ScalarNode) or kind_of(node) is not Kind.TEXT:
        return reader.expected(node, f"the name of a {kind}")
    name, version = _split(node.value)
    entry = REGISTRY.find(name)
    if entry is None or entry.kind != kind:
        hint = did_you_mean(name, candidates()) or did_you_mean(
            name, [e.name for e in REGISTRY.registrations() if e.kind == kind]
        )
        remedy = hint or "; if it is your own, import its module first (--import MODULE)"
        return reader.problem(node, f"there is no {kind} {brief(name)}{remedy}")
    if version > entry.version:
        return reader.problem(
            node, f"was saved as version {version} of {entry.name}, but the installed one is version {entry.version}; "
            f"update the package that defines it"
        )  # fmt: skip
    return entry, version


def _split(name: str) -> tuple[str, int]:
    """`LAS@2` as ("LAS", 2). A name without a version is version 1. Other text behind `@` stays in the name."""
    base, mark, version = name.rpartition("@")
    return (base, int(version)) if mark and _VERSION.fullmatch(version) else (name, 1)


def value_of(node: MappingNode, name: str) -> str | None:
    """The text of the entry of that name in a mapping, if there is one and it is a scalar."""
    found = next((value for key, value in node.value if _is_key(key, name)), None)
    return found.value if isinstance(found, ScalarNode) else None


def _is_key(key: Node, name: str) -> bool:
    return isinstance(key, ScalarNode) and key.value == name and kind_of(key) is Kind.TEXT


def _known_fields(name: str, fields: dict[str, FieldPlan]) -> str:
    return did_you_mean(name, fields) or (
        f"; its fields are {_list_names(list(fields), 12)}" if fields else "; it has none"
    )


def _list_names(names: list[str], most: int = 8) -> str:
    return list_some(names, most) if names else "(none is registered)"


def _article(name: str) -> str:
    return "an" if name[:1].upper() in "AEIOU" else "a"
