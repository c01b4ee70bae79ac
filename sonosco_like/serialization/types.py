"""The converter of each type that a field may have, in the only list of these types; and the schema of a config."""

from __future__ import annotations

import collections.abc as abc
import enum
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Union

from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.errors import DefinitionError, did_you_mean
from sonosco_like.serialization import scalar_types
from sonosco_like.serialization.compound_types import (
    AnyConverter,
    DictConverter,
    ListConverter,
    SetConverter,
    TupleConverter,
    UnionConverter,
)
from sonosco_like.serialization.converter import (
    INVALID,
    Converter,
    FieldPlan,
    Fit,
    Invalid,
    Plan,
    Reader,
    Schema,
    Writer,
    mapping_items,
)
from sonosco_like.serialization.nodes import is_mapping, mapping_node
from sonosco_like.serialization.objects import CLASS, ObjectConverter, decode_fields, find_registration, value_of
from sonosco_like.serialization.registry import REGISTRY, Registration, is_abstract
from sonosco_like.serialization.yaml_text import MAP, STR, Kind, kind_of

FUNCTION = "function"


class CallableConverter(ObjectConverter):
    """A registered function by name, with or without keyword arguments, or an object that can be called."""

    def __init__(self, plan_of: Callable[[Any], Plan]) -> None:
        super().__init__(object, plan_of)
        self.expected = "the name of a function"

    def encode(self, value: Any, writer: Writer) -> Node:
        if inspect.isroutine(value):  # a name, not an object: never an anchor
            return self.write(value, writer)
        return super().encode(value, writer)

    def read(self, node: Node, reader: Reader) -> Any:
        if isinstance(node, ScalarNode):
            found = find_registration(node, "function", reader, function_names)
            return INVALID if isinstance(found, Invalid) else found[0].target
        if is_mapping(node) and value_of(node, FUNCTION) is not None:
            return self._partial(node, reader)
        if not is_mapping(node):
            return reader.expected(node, self.expected)
        made = super().read(node, reader)
        return made if made is INVALID or callable(made) else reader.expected(node, "something that can be called")

    def write(self, value: Any, writer: Writer) -> Node:
        if isinstance(value, functools.partial):
            return self._write_partial(value, writer)
        if inspect.isroutine(value):
            entry = REGISTRY.registration_of(value)
            if entry is not None:
                return ScalarNode(STR, entry.name)
            name = getattr(value, "__qualname__", repr(value))
            return writer.problem(f"the function {name} is not registered. Decorate it with @serializable")
        return super().write(value, writer)

    def tagged_form(self, node: Node) -> Node | None:
        if not isinstance(node, ScalarNode):
            return node
        return MappingNode(MAP, [(ScalarNode(STR, FUNCTION), node)], flow_style=True)

    def fit_of_node(self, node: Node) -> Fit:
        if isinstance(node, ScalarNode):
            entry = REGISTRY.find(node.value) if kind_of(node) is Kind.TEXT else None
            return Fit.POSSIBLE if entry and not entry.is_class else Fit.NO
        return Fit.POSSIBLE if is_mapping(node) and (value_of(node, FUNCTION) or value_of(node, CLASS)) else Fit.NO

    def fit_of_value(self, value: Any) -> Fit:
        return Fit.EXACT if inspect.isroutine(value) or isinstance(value, functools.partial) else (
            Fit.POSSIBLE if callable(value) and not isinstance(value, type) else Fit.NO)  # fmt: skip

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {
            "anyOf": [
                {"enum": function_names()},
                {"type": "object", "required": [FUNCTION], "properties": {FUNCTION: {"enum": function_names()}}},
                {"type": "object", "required": [CLASS]},
            ]
        }

    def _partial(self, node: MappingNode, reader: Reader) -> Any:
        items = mapping_items(node, reader)
        with reader.at(FUNCTION):
            found = find_registration(items[FUNCTION], "function", reader, function_names)
        if isinstance(found, Invalid):
            return INVALID
        known_problems = reader.problem_count
        entry = found[0]
        values = decode_fields(node, items, self.plan_of(entry.target).fields, entry, reader, also=(FUNCTION,))
        if reader.problem_count > known_problems:
            return INVALID
        return functools.partial(entry.target, **values) if values else entry.target

    def _write_partial(self, value: functools.partial[Any], writer: Writer) -> Node:
        entry = REGISTRY.registration_of(value.func)
        if entry is None or entry.is_class or value.args:
            return writer.problem(
                f"functools.partial({getattr(value.func, '__qualname__', value.func)}, ...) cannot be restored; it "
                f"needs a registered function (@serializable) and keyword arguments only"
            )
        fields = self.plan_of(entry.target).fields
        items: list[tuple[Node, Node]] = [(ScalarNode(STR, FUNCTION), ScalarNode(STR, entry.name))]
        for name, argument in value.keywords.items():
            with writer.at(name):
                if name not in fields:
                    writer.problem(f"{entry.name} has no such argument{did_you_mean(name, fields)}")
                    continue
                items.append((ScalarNode(STR, name), fields[name].converter.encode(argument, writer)))
        return mapping_node(items)


def function_names() -> list[str]:
    """Names of every registered function."""
    return [entry.name for entry in REGISTRY.registrations() if not entry.is_class]


_ATOMS: dict[Any, Converter] = {
    bool: scalar_types.BOOLEAN,
    int: scalar_types.INTEGER,
    float: scalar_types.NUMBER,
    str: scalar_types.TEXT,
    None: scalar_types.NOTHING,
    type(None): scalar_types.NOTHING,
    Path: scalar_types.PATH,
    PurePath: scalar_types.PATH,
}
_SEQUENCES = (abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence)
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)


def converter_for(hint: Any) -> Converter:
    """The converter of a type; the same one for the same type. Raises DefinitionError for what cannot be restored."""
    try:
        return _converter_for(hint)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _compile(hint)


@functools.cache
def _converter_for(hint: Any) -> Converter:
    return _compile(hint)


def plan_of(target: Any) -> Plan:
    """The plan of a serializable class or function; made once."""
    plan = _PLANS.get(target)
    if plan is None:
        plan = _PLANS[target] = Plan(target, converter_for)
    return plan


def _compile(hint: Any) -> Converter:
    if hint in _ATOMS:
        return _ATOMS[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return _ANYTHING
    if origin is Annotated:
        return converter_for(arguments[0])
    if origin is Literal:
        return scalar_types.literal_converter(arguments)
    if origin in (Union, types.UnionType):
        return (
            UnionConverter([converter_for(argument) for argument in arguments]) if Any not in arguments else _ANYTHING
        )
    if origin is abc.Callable or hint is abc.Callable or hint is typing.Callable:
        return CallableConverter(plan_of)
    return _container(origin or hint, arguments) or _class(origin or hint, hint)


def _container(kind: Any, arguments: tuple[Any, ...]) -> Converter | None:
    if kind is list or kind in _SEQUENCES:
        types_held = (list,) if kind is list else (list, tuple)
        return ListConverter(converter_for(arguments[0] if arguments else Any), types_held)
    if kind is tuple:
        repeated = not arguments or arguments[-1] is ...
        items = (arguments[0] if arguments else Any,) if repeated else arguments
        return TupleConverter([converter_for(item) for item in items], repeated)
    if kind in (set, abc.Set, abc.MutableSet):
        return SetConverter(converter_for(arguments[0] if arguments else Any))
    if kind in _MAPPINGS:
        key, value = arguments or (Any, Any)
        return DictConverter(converter_for(key), converter_for(value))
    return None


def _class(cls: Any, hint: Any) -> Converter:
    if not isinstance(cls, type):
        raise DefinitionError(f"A field cannot have the type {hint!r}: it could not be restored. See docs/format.md.")
    if issubclass(cls, enum.Enum):
        return scalar_types.enum_converter(cls)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch and cls is torch.device:
        return scalar_types.device_converter()
    if torch and cls is torch.dtype:
        return scalar_types.dtype_converter()
    if torch and issubclass(cls, torch.Tensor):
        return scalar_types.TENSOR
    if numpy and issubclass(cls, numpy.ndarray):
        return scalar_types.ARRAY
    return ObjectConverter(cls, plan_of)


_PLANS: dict[Any, Plan] = {}
_ANYTHING = AnyConverter(converter_for)


_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(top: type | None = None) -> Schema:
    """The schema of a config: an object of any registered class, each with its fields, types and defaults.

    An object of the class `top` needs no `class`.
    """
    entries = [entry for entry in REGISTRY.registrations() if entry.is_class and not is_abstract(entry.target)]
    return {
        "$schema": _DRAFT,
        "title": "sonosco_like configuration",
        "type": "object",
        "anyOf": [
            {"required": ["class"], "anyOf": [_refer(entry.target) for entry in entries]},
            *([_refer(top)] if top is not None else []),
            {  # only with its base is such a file whole: no class is required, and no field
                "required": ["base"],
                "properties": {"base": {"type": "string", "description": "The file over which this one is merged."}},
            },
        ],
        "$defs": {entry.name: _class_schema(entry) for entry in entries},
    }


def _refer(target: type) -> Schema:
    entry = REGISTRY.registration_of(target)
    assert entry is not None
    return {"$ref": f"#/$defs/{entry.name}"}


def _class_schema(entry: Registration) -> Schema:
    plan: Plan = plan_of(entry.target)
    names = [entry.tag, *(f"{name}@{entry.version}" if entry.version > 1 else name for name in entry.also)]
    if entry.version > 1:  # a name without a version is that of version 1, and is upgraded
        names += [entry.name, *entry.also]
    described: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "class": {"const": names[0]} if len(names) == 1 else {"enum": names},
            **{name: _field_schema(field) for name, field in plan.fields.items()},
            "state": {"type": "object"},
        },
        "required": [name for name, field in plan.fields.items() if field.required],
    }
    summary = (inspect.getdoc(entry.target) or "").split("\n\n")[0].replace("\n", " ")
    return {"description": summary, **described} if summary else described


def _field_schema(field: FieldPlan) -> Schema:
    schema = field.converter.schema(_refer)
    if field.required or "$ref" in schema:
        return schema
    default = _plain_default(field)
    return schema if default is _NONE_GIVEN else {**schema, "default": default}


_NONE_GIVEN = object()


def _plain_default(field: FieldPlan) -> Any:
    """A default that JSON can show; objects, and defaults that are only known when built, are left out."""
    default = field.default()
    if default is None or isinstance(default, (bool, int, str)):
        return default
    if isinstance(default, float):
        return default if abs(default) < float("inf") else _NONE_GIVEN
    if isinstance(default, (list, tuple)) and all(isinstance(item, (bool, int, str)) for item in default):
        return list(default)
    return _NONE_GIVEN
