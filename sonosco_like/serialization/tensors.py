"""The tensor file: one safetensors file per save, without metadata, so that equal tensors give equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors import SafetensorError, safe_open

from sonosco_like.errors import StorageError
from sonosco_like.serialization.tensor_file import can_be_written, write_tensors

_AS_PAIRS = (torch.complex128, torch.complex32)  # not in the format: kept as pairs of floats, and named so
_PAIRS = ":complex"
_MEANINGFUL = (_PAIRS, "__metadata__")  # names that mean something else in the file


class TensorWriter:
    """Collects tensors under the paths they have in the object graph; the same tensor twice is kept once."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._storages: set[int] = set()
        self._kept: list[torch.Tensor] = []  # keeps alive what `_names` and `_storages` know by its address

    def add(self, parts: Sequence[Any], value: Any) -> str:
        """Keep the tensor or array found at a path; returns its name. Raises TypeError for what cannot be kept."""
        tensor = _as_tensor(value)
        view = (tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        identity = (tensor.data_ptr(), tensor.device, view)
        if tensor.numel() and identity in self._names:
            return self._names[identity]
        self._kept.append(tensor)
        name = ".".join(str(part) for part in parts if part != "state_dict") or "value"
        while name in self.tensors or name + _PAIRS in self.tensors or name.endswith(_MEANINGFUL):
            name += "'"
        if tensor.dtype in _AS_PAIRS:
            name, tensor = name + _PAIRS, torch.view_as_real(tensor.resolve_conj())
        self.tensors[name] = self._apart(tensor.resolve_conj().resolve_neg().contiguous())
        self._names[identity] = name
        return name

    def detach(self) -> None:
        """Copy everything, so that training may go on while this is written."""
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
            raise StorageError(f"{path} is not a safetensors file: {error}.") from error
        self._file = file
        self._names = set(file.keys())
        self._read: dict[str, torch.Tensor] = {}
        self._arrays: dict[str, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def read(self, name: str) -> torch.Tensor:
        """The tensor of a name, one and the same each time; raises KeyError if the file has none of that name."""
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            try:
                tensor: torch.Tensor = self._file.get_tensor(name).clone()  # of its own: the file may change or vanish
                self._read[name] = torch.view_as_complex(tensor) if name.endswith(_PAIRS) else tensor
            except (SafetensorError, TypeError, ValueError, RuntimeError) as error:
                raise StorageError(str(error)) from error
        return self._read[name]

    def read_array(self, name: str) -> Any:
        """As `read`, as a numpy array; also one and the same each time."""
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
    if not can_be_written(tensor.dtype) and tensor.dtype not in _AS_PAIRS:
        raise TypeError(f"the safetensors format has no {tensor.dtype}")
    return tensor
