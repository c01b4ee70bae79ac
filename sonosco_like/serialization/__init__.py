"""Objects as text and tensors, and back: safe, readable, exact. The format is described in docs/format.md.

This is the only module of the room that others import. `serializable` and `state` define what can be written; `save`,
`load`, `dumps` and `loads` write and read it; `Document` is a config text and `Saved` a checkpoint folder, each opened
once and then asked by path.
"""

from typing import TYPE_CHECKING, Any

from sonosco_like.serialization.definition import SAVED_AS, field_types, is_state, serializable, state
from sonosco_like.serialization.document import Document, dumps, loads, quote_override
from sonosco_like.serialization.files import (
    absolute_path,
    detect_replacement,
    file_differs,
    flush_folder,
    hash_file,
    new_folder,
    read_file,
    replace_file,
    restore_previous,
    write_file,
)
from sonosco_like.serialization.folder_format import (
    GRAPH_FILE,
    STATE_FILE,
    TENSOR_FILE,
    Origin,
    Snapshot,
    parse_origin,
    read_origin,
    save,
)
from sonosco_like.serialization.nodes import join_path, split_path
from sonosco_like.serialization.registry import REGISTRY, is_abstract
from sonosco_like.serialization.saved_folder import Saved, load, restore, verify
from sonosco_like.serialization.types import json_schema
from sonosco_like.serialization.yaml_text import quote_text

if TYPE_CHECKING:
    from sonosco_like.serialization.difference import Difference, diff

__all__ = [
    "GRAPH_FILE", "REGISTRY", "SAVED_AS", "STATE_FILE", "TENSOR_FILE", "Difference", "Document", "Origin", "Saved",
    "Snapshot",
    "absolute_path", "detect_replacement", "diff", "dumps", "field_types", "file_differs", "flush_folder", "hash_file",
    "is_abstract", "is_state", "join_path", "json_schema", "load", "loads", "new_folder", "parse_origin",
    "quote_override", "quote_text", "read_file", "read_origin", "replace_file", "restore", "restore_previous", "save",
    "serializable", "split_path", "state", "verify", "write_file",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`diff` compares tensors and so needs torch, which takes a second to import; it is fetched when asked for."""
    if name in ("Difference", "diff"):
        from sonosco_like.serialization import difference

        return getattr(difference, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
