"""The tensor file: one safetensors file per save, without metadata, so that equal tensors give equal bytes.

Any safetensors library reads the file. It is written here, so that a second thread hashes the tensors while the first
one waits for the disk; hashing the finished file would nearly double the time of a save.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors import SafetensorError, safe_open

from sonosco_like.errors import StorageError, as_sentence

_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.bool: "BOOL", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float8_e8m0fnu: "F8_E8M0",
}  # fmt: skip
_METADATA = "__metadata__"  # a name that means something else in the file


class TensorWriter:
    """Collects tensors under the paths they have in the object graph; the same tensor twice is kept once."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._storages: set[int] = set()
        self._kept: list[torch.Tensor] = []  # keeps alive what `_names` and `_storages` know by its address

    def add(self, parts: Sequence[Any], value: Any) -> str:
        """Keep the tensor or array at a path, and return its name. Raises TypeError if its type cannot be written."""
        tensor = _as_tensor(value)
        view = (tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        identity = (tensor.data_ptr(), tensor.device, view)
        if tensor.numel() and identity in self._names:
            return self._names[identity]
        self._kept.append(tensor)
        name = ".".join(str(part) for part in parts if part != "state_dict") or "value"
        while name in self.tensors or name.endswith(_METADATA):
            name += "'"
        self.tensors[name] = self._apart(tensor.resolve_conj().resolve_neg().contiguous())
        self._names[identity] = name
        return name

    def detach(self) -> None:
        """Copy everything, so that training may continue while this is written."""
        self.tensors = {name: tensor.to("cpu", copy=True) for name, tensor in self.tensors.items()}

    def write(self, path: Path) -> str:
        """Write and flush the file; returns its SHA-256."""
        return write_tensors(path, {name: tensor.cpu() for name, tensor in self.tensors.items()})

    def _apart(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, copied if it is a view into memory that another kept tensor uses too."""
        storage = tensor.untyped_storage().data_ptr()
        if tensor.numel() and storage in self._storages:
            return tensor.clone()
        self._storages.add(storage)
        return tensor


class TensorReader:
    """Reads tensors by name from a file whose hash was already checked."""

    def __init__(self, path: Path) -> None:
        try:
            file: Any = safe_open(path, framework="pt")
        except (SafetensorError, OSError, RuntimeError) as error:  # torch opens it a second time: RuntimeError
            raise StorageError(f"{path} is not a safetensors file: {as_sentence(error)}") from error
        self._file = file
        self._names = set(file.keys())
        self._read: dict[str, torch.Tensor] = {}
        self._arrays: dict[str, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def read(self, name: str) -> torch.Tensor:
        """The tensor of a name, the same object each time; raises KeyError if the file has none of that name."""
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            try:
                self._read[name] = self._file.get_tensor(name).clone()  # of its own: the file may change or vanish
            except (SafetensorError, TypeError, ValueError, RuntimeError) as error:
                raise StorageError(str(error)) from error
        return self._read[name]

    def read_array(self, name: str) -> Any:
        """As `read`, as a numpy array; also the same object each time."""
        if name not in self._arrays:
            self._arrays[name] = self.read(name).numpy()
        return self._arrays[name]


def _from_array(array: Any) -> torch.Tensor:
    """A numpy array as tensor; copied where torch cannot share its memory."""
    array = numpy.asarray(array)
    native = array.dtype.newbyteorder("=")
    if array.dtype != native or not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.astype(native, copy=True)
    return torch.from_numpy(array)


def _as_tensor(value: Any) -> torch.Tensor:
    tensor = (value if isinstance(value, torch.Tensor) else _from_array(value)).detach()
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise TypeError("only dense tensors that hold data can be saved")
    if not can_be_written(tensor.dtype):
        raise TypeError(f"the safetensors format has no {tensor.dtype}")
    return tensor


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
