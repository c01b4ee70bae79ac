"""State as plain data that JSON can hold, so that one process can send it to another without pickle."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sonosco_like.errors import UsageError

_KIND, _CONTENT = "kind", "content"


def to_plain(value: Any) -> Any:
    """Numbers, texts, lists, tuples, sets, mappings, tensors and arrays as plain data; UsageError for all else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [to_plain(each) for each in value]
    if isinstance(value, (tuple, set)):
        return _tagged("tuple" if isinstance(value, tuple) else "set", [to_plain(each) for each in value])
    if isinstance(value, dict):
        return _tagged("dict", [[to_plain(key), to_plain(each)] for key, each in value.items()])
    if isinstance(value, bytes):
        return _tagged("bytes", _as_text(value))
    if isinstance(value, (np.ndarray, np.generic)):
        return _tagged("array", [value.dtype.str, list(value.shape), _as_text(value.tobytes())])
    if isinstance(value, Tensor):
        return _tagged("tensor", [str(value.dtype).removeprefix("torch."), list(value.shape), _as_text(_bytes(value))])
    raise UsageError(f"State of {type(value).__name__} cannot be sent to another process.")


def from_plain(plain: Any) -> Any:
    """The state again from what `to_plain` gave."""
    if isinstance(plain, list):
        return [from_plain(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    kind, content = plain[_KIND], plain[_CONTENT]
    if kind in ("tuple", "set"):
        return (tuple if kind == "tuple" else set)(from_plain(each) for each in content)
    if kind == "dict":
        return {from_plain(key): from_plain(each) for key, each in content}
    if kind == "bytes":
        return base64.b64decode(content)
    name, shape, text = content
    values = bytearray(base64.b64decode(text))
    if kind == "array":
        return np.frombuffer(values, np.dtype(name)).reshape(shape)
    dtype = getattr(torch, name)
    return torch.frombuffer(values, dtype=dtype).reshape(shape) if values else torch.empty(shape, dtype=dtype)


def _tagged(kind: str, content: Any) -> dict[str, Any]:
    return {_KIND: kind, _CONTENT: content}


def _as_text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _bytes(tensor: Tensor) -> bytes:
    content: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return bytes(content.tobytes())
