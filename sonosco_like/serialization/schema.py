"""JSON Schema (draft 2020-12) of every class a config may name, for completion and checking in editors."""

from __future__ import annotations

import inspect
from typing import Any

from sonosco_like.serialization.converter import Schema
from sonosco_like.serialization.fields import FieldPlan, Plan
from sonosco_like.serialization.registry import REGISTRY, Registration, is_abstract
from sonosco_like.serialization.types import plan_of

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> Schema:
    """The schema of a config: an object of any registered class, each with its fields, types and defaults."""
    entries = [entry for entry in REGISTRY.registrations() if entry.is_class and not is_abstract(entry.target)]
    return {
        "$schema": _DRAFT,
        "title": "sonosco_like configuration",
        "type": "object",
        "anyOf": [
            {"required": ["class"], "anyOf": [_refer(entry.target) for entry in entries]},
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
