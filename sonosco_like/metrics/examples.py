"""The examples of a batch of any form, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def examples_in(batch: Any) -> int:
    """How many examples a batch has: the length of the first tensor in it, or of the batch if it has none."""
    first = _first_tensor(batch)
    if first is not None:
        return len(first) if first.dim() else 1
    return len(batch) if hasattr(batch, "__len__") and not isinstance(batch, (list, tuple, Mapping)) else 1


def targets_in(batch: Any) -> Any:
    """What a batch says that the output should be: of several parts the last, else the batch itself."""
    return batch[-1] if isinstance(batch, (list, tuple)) and batch else batch


def rows_of(value: Any, count: int) -> list[Any] | None:
    """What `value` holds for each of so many examples, on the CPU; None if it is not one part for each."""
    if isinstance(value, Tensor):
        return list(value.detach().cpu()) if value.dim() and len(value) == count else None
    if isinstance(value, Mapping):
        parts = {key: rows_of(part, count) for key, part in value.items()}
        if not parts or any(part is None for part in parts.values()):
            return None
        return [{key: part[row] for key, part in parts.items() if part is not None} for row in range(count)]
    if isinstance(value, (list, tuple)):
        columns = [rows_of(part, count) for part in value]
        if value and all(column is not None for column in columns):
            return [tuple(column[row] for column in columns if column is not None) for row in range(count)]
        return list(value) if len(value) == count else None
    return None


def _first_tensor(part: Any) -> Tensor | None:
    if isinstance(part, Tensor):
        return part
    parts = part.values() if isinstance(part, Mapping) else part if isinstance(part, (list, tuple)) else ()
    return next((found for each in parts if (found := _first_tensor(each)) is not None), None)
