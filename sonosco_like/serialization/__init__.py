"""Objects as text and tensors, and back: safe, readable, exact. The format is described in docs/format.md."""

from typing import TYPE_CHECKING, Any

from sonosco_like.serialization.definition import serializable, state
from sonosco_like.serialization.folder import Snapshot, load, restore, save, verify
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.schema import json_schema
from sonosco_like.serialization.text import dumps, loads

if TYPE_CHECKING:
    from sonosco_like.serialization.difference import Difference, diff

__all__ = [
    "REGISTRY", "Difference", "Snapshot", "diff", "dumps", "json_schema",
    "load", "loads", "restore", "save", "serializable", "state", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`diff` compares tensors and so needs torch, which takes a second to import; it is fetched when asked for."""
    if name in ("Difference", "diff"):
        from sonosco_like.serialization import difference

        return getattr(difference, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
