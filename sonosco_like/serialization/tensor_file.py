"""Writing a safetensors file and its SHA-256 in one pass over the memory.

Any safetensors library reads the file. Writing it here lets a second thread hash the tensors while the first one waits
for the disk; hashing the finished file would nearly double the time of a save.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
from pathlib import Path
from typing import Any

import torch

_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.bool: "BOOL", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float8_e8m0fnu: "F8_E8M0",
}  # fmt: skip


def can_be_written(dtype: torch.dtype) -> bool:
    """Whether the format has this type."""
    return dtype in _NAMES


def write_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> str:
    """Write and flush the file; returns its SHA-256. Tensors are contiguous and on the CPU."""
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # each aligned to its own size
    buffers: list[Any] = [_header(tensors, order), *(_bytes_of(tensors[name]) for name in order)]
    digest = hashlib.sha256()
    hashing = threading.Thread(target=_update, args=(digest, buffers))
    hashing.start()
    try:
        with path.open("wb") as file:
            for buffer in buffers:
                file.write(buffer)
            file.flush()
            os.fsync(file.fileno())
    finally:
        hashing.join()
    return digest.hexdigest()


def _update(digest: Any, buffers: list[Any]) -> None:
    for buffer in buffers:
        digest.update(buffer)


def _header(tensors: dict[str, torch.Tensor], order: list[str]) -> bytes:
    entries = {}
    start = 0
    for name in order:
        tensor = tensors[name]
        end = start + tensor.nbytes
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _bytes_of(tensor: torch.Tensor) -> Any:
    """The memory of a tensor, not a copy, as something that can be hashed and written."""
    return tensor.reshape(-1).view(torch.uint8).numpy()
