"""Objects of registered classes, and registered classes as values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.errors import NetworkError, SonoscoError, did_you_mean
from sonosco_like.serialization.context import Invalid, brief
from sonosco_like.serialization.converter import (
    EXACT,
    INVALID,
    NO,
    POSSIBLE,
    REFERENCE,
    Compound,
    Converter,
    Reader,
    Schema,
    Writer,
    is_mapping,
    mapping_items,
    mapping_node,
    not_of_type,
    not_serializable,
)  # fmt: skip
from sonosco_like.serialization.plans import FieldPlan, Plan, field_value
from sonosco_like.serialization.registry import REGISTRY, Entry, fits, is_abstract
from sonosco_like.serialization.scalars import STR, kind_of
from sonosco_like.serialization.states import encode_states, parts_covered, restore_states
from sonosco_like.serialization.upgrades import upgraded

_VERSION = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
CLASS, STATE = "class", "state"


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
        entry_and_version = self._entry(node, reader)
        if isinstance(entry_and_version, Invalid):
            return INVALID
        return self.construct(node, *entry_and_version, reader)

    def _refer(self, node: ScalarNode, reader: Reader) -> Any:
        found = reader.objects.get(node.value)
        if found is None or not self.holds(found):
            return reader.problem(node, f"there is no {self.name} at {brief(node.value)} in this graph")
        return found

    def construct(self, node: MappingNode, entry: Entry, version: int, reader: Reader) -> Any:
        """The object a mapping describes; one and the same for every place that aliases the mapping."""
        key = (id(node), id(entry))
        if key in reader.memo:
            found = reader.memo[key]
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
        reader.memo[key] = made
        return made

    def write(self, value: Any, writer: Writer) -> Node:
        entry = REGISTRY.entry_of(type(value))
        if entry is None or not isinstance(type(value), type):
            return not_serializable(value, writer)
        if not self.holds(value):
            return not_of_type(value, self, writer)
        if id(value) in writer.objects:
            return ScalarNode(REFERENCE, writer.objects[id(value)])
        key = (id(value), id(entry))
        if key in writer.memo:
            return writer.memo[key]
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
                states = encode_states(value, plan, writer, changed_only=True)
            items += [(ScalarNode(STR, STATE), mapping_node(states))] if states else []
        node = mapping_node(items)
        if writer.problem_count == before:
            writer.memo[key] = node
        return node

    def reads(self, node: Node) -> int:
        if not is_mapping(node):
            return EXACT if node.tag == REFERENCE else NO
        name = value_of(node, CLASS)
        if name is None:
            return POSSIBLE if self._is_concrete() else NO
        entry = REGISTRY.find(_split(name)[0])
        return EXACT if entry and entry.is_class and fits(entry.target, self.base) else NO

    def holds(self, value: Any) -> int:
        try:
            return EXACT if isinstance(value, self.base) else NO
        except TypeError:  # a protocol that cannot be checked at run time
            return POSSIBLE

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        options = [refer(entry.target) for entry in REGISTRY.subclasses(self.base) if not is_abstract(entry.target)]
        if len(options) == 1:
            return options[0]
        return {"anyOf": options} if options else {"type": "object"}

    def _entry(self, node: MappingNode, reader: Reader) -> tuple[Entry, int] | Invalid:
        class_node = next((value for key, value in node.value if _is_key(key, CLASS)), None)
        if class_node is None:
            if self._is_concrete():
                entry = REGISTRY.entry_of(self.base)
                assert entry is not None
                return entry, entry.version
            return reader.problem(node, f"needs `class`: which {self.name} is it? One of {_some(self._names())}")
        with reader.at(CLASS):
            found = find_entry(class_node, "class", reader, self._names())
            if isinstance(found, Invalid):
                return INVALID
            if not fits(found[0].target, self.base):
                names = _some(self._names())
                return reader.problem(class_node, f"expected {self.expected}, got {found[0].name}; known are {names}")
            if is_abstract(found[0].target):
                return reader.problem(class_node, f"{found[0].name} is abstract; take one of {_some(self._names())}")
            return found

    def _is_concrete(self) -> bool:
        return REGISTRY.entry_of(self.base) is not None and not is_abstract(self.base)

    def _names(self) -> list[str]:
        return [entry.name for entry in REGISTRY.subclasses(self.base) if not is_abstract(entry.target)]

    @staticmethod
    def _call(node: Node, entry: Entry, values: dict[str, Any], reader: Reader) -> Any:
        try:
            return entry.target(**values)
        except NetworkError:
            raise
        except (ConnectionError, TimeoutError) as error:
            raise NetworkError(f"{entry.name} cannot reach what it needs: {type(error).__name__}: {error}.") from error
        except SonoscoError as error:
            return reader.problem(node, f"{entry.name}: {error}")
        except Exception as error:  # whatever a class's own __post_init__ objects to is a problem of the file
            return reader.problem(node, f"{entry.name} refuses these values: {type(error).__name__}: {error}")


class ClassConverter(Converter):
    """A registered class itself, by its name."""

    tag = "!class"

    def __init__(self, base: Any = object) -> None:
        self.base = base
        self.expected = f"the name of a kind of {base.__name__}" if base is not object else "the name of a class"

    def decode(self, node: Node, reader: Reader) -> Any:
        names = [entry.name for entry in REGISTRY.subclasses(self.base)]
        found = find_entry(node, "class", reader, names, self.tag)
        if isinstance(found, Invalid):
            return INVALID
        if not fits(found[0].target, self.base):
            return reader.expected(node, self.expected, f"; known are {_some(names)}")
        return found[0].target

    def encode(self, value: Any, writer: Writer) -> Node:
        entry = REGISTRY.entry_of(value) if isinstance(value, type) else None
        if entry is None or not fits(value, self.base):
            return not_of_type(value, self, writer)
        return ScalarNode(STR, entry.name)

    def reads(self, node: Node) -> int:
        if not isinstance(node, ScalarNode) or kind_of(node) not in (STR, self.tag):
            return NO
        entry = REGISTRY.find(node.value)
        if not (entry and entry.is_class and fits(entry.target, self.base)):
            return NO
        return EXACT if node.tag == self.tag else POSSIBLE

    def holds(self, value: Any) -> int:
        return EXACT if isinstance(value, type) and fits(value, self.base) else NO

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {"enum": [entry.name for entry in REGISTRY.subclasses(self.base)]}


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
    entry: Entry,
    reader: Reader,
    also: Iterable[str],
) -> dict[str, Any]:
    """The values of the named fields; unknown and missing names are problems."""
    values = {}
    for name, value_node in items.items():
        field = fields.get(name)
        if field is not None:
            reader.parts.append(name)
            values[name] = field.converter.decode(value_node, reader)
            reader.parts.pop()
        elif name not in also:
            with reader.at(name):
                reader.problem(value_node, f"{entry.name} has no field {brief(name)}{_instead(name, fields)}")
    for name, field in fields.items():
        if field.required and name not in items:
            with reader.at(name):
                reader.problem(node, f"{entry.name} needs this field: {field.converter.expected}")
    return values


def find_entry(
    node: Node, kind: str, reader: Reader, candidates: list[str], tag: str | None = None
) -> tuple[Entry, int] | Invalid:
    """The registered class or function a scalar names, and the version it asks for."""
    if not isinstance(node, ScalarNode) or kind_of(node) not in (STR, tag):
        return reader.expected(node, f"the name of a {kind}")
    name, version = _split(node.value)
    entry = REGISTRY.find(name)
    if entry is None or entry.kind != kind:
        hint = did_you_mean(name, candidates) or did_you_mean(
            name, [e.name for e in REGISTRY.entries() if e.kind == kind]
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
    """`LAS@2` as ("LAS", 2); a name without a version is version 1; nonsense behind `@` stays part of the name."""
    base, mark, version = name.rpartition("@")
    return (base, int(version)) if mark and _VERSION.fullmatch(version) else (name, 1)


def value_of(node: MappingNode, name: str) -> str | None:
    """The text of a mapping's entry, if it has one of that name that is a scalar."""
    found = next((value for key, value in node.value if _is_key(key, name)), None)
    return found.value if isinstance(found, ScalarNode) else None


def _is_key(key: Node, name: str) -> bool:
    return isinstance(key, ScalarNode) and key.value == name and kind_of(key) == STR


def _instead(name: str, fields: dict[str, FieldPlan]) -> str:
    return did_you_mean(name, fields) or (f"; its fields are {_some(list(fields), 12)}" if fields else "; it has none")


def _some(names: list[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return (shown + (f" and {len(names) - most} more" if len(names) > most else "")) or "(none is registered)"


def _article(name: str) -> str:
    return "an" if name[:1].upper() in "AEIOU" else "a"
