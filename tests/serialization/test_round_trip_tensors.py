"""Tensors and arrays come back from the tensor file to the bit, whatever their type, shape or place in memory."""

from __future__ import annotations

import numpy
import pytest
import torch
from generated_graphs import Holder, Node, assert_same_bits, assert_same_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sonosco_like.errors import ConfigError
from sonosco_like.serialization import dumps, load, save, serializable, state

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")  # said by torch once

EVERY_DTYPE = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
# Types of whole bytes that tensors of any kind can be made of and computed with; the others exist in name only.
COMMON = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.bool,
    torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


@serializable
class Arguments:
    """Tensors a class is made from, beside those a run changes."""

    weights: torch.Tensor
    table: numpy.ndarray
    more: dict[str, torch.Tensor | None]
    seen: torch.Tensor | None = state(None)


@serializable
class Tied(nn.Module):
    size: int = 3

    def __post_init__(self) -> None:
        self.inner = nn.Embedding(self.size, self.size)
        self.outer = nn.Linear(self.size, self.size, bias=False)
        self.outer.weight = self.inner.weight


@serializable
class KeepsItself:
    """Names what it keeps in its own way, at the root of the graph."""

    size: int = 2

    def state_dict(self):
        names = ("__metadata__", "x", "x'")
        return {name: torch.full((self.size,), float(index)) for index, name in enumerate(names)}

    def load_state_dict(self, content):
        self.content = content


def _there_and_back(folder, content, more=None):
    holder = Holder()
    holder.content, holder.more = content, more
    save(holder, folder / "saved")
    return load(folder / "saved")


def _of_bytes(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """A tensor of any byte pattern, NaNs with payloads and both zeros among them."""
    size = torch.empty(0, dtype=dtype).element_size()
    count = torch.Size(shape).numel() * size
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (count,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
def test_every_dtype_comes_back_or_is_refused_by_name_before_anything_is_written(tmp_path, dtype):
    try:
        tensor = torch.zeros(16, dtype=torch.uint8).view(dtype)
    except (RuntimeError, TypeError):
        pytest.skip("torch cannot make such a tensor")
    try:
        restored = _there_and_back(tmp_path, tensor).content
    except ConfigError as error:
        restored = error
    if isinstance(restored, ConfigError):
        assert dtype not in COMMON
        assert "content" in str(restored)
        assert list(tmp_path.iterdir()) == []
    else:
        assert (restored.dtype, restored.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(restored.view(torch.uint8), tensor.view(torch.uint8))


@settings(max_examples=60)
@given(st.sampled_from(COMMON), st.lists(st.integers(0, 4), max_size=4).map(tuple), st.integers(0, 99))
def test_every_pattern_of_bits_in_every_shape_comes_back(tmp_path_factory, dtype, shape, seed):
    tensor = _of_bytes(dtype, shape, seed)
    assert_same_bits(tensor, _there_and_back(tmp_path_factory.mktemp("t"), tensor).content)


@pytest.mark.parametrize("dtype", COMMON, ids=str)
def test_scalars_empty_ones_and_odd_places_in_memory(tmp_path, dtype):
    whole = _of_bytes(dtype, (4, 6))
    content = {
        "scalar": _of_bytes(dtype, ()), "empty": _of_bytes(dtype, (0,)), "no rows": _of_bytes(dtype, (3, 0, 2)),
        "transposed": whole.t(), "strided": whole[::2, 1::3], "tail": whole[2:], "column": whole[:, 1],
        "expanded": whole[:1].expand(5, 6), "one": whole[3, 5],
    }  # fmt: skip
    restored = _there_and_back(tmp_path, content).content
    assert list(restored) == list(content)
    for name in content:
        assert_same_bits(content[name], restored[name])


def test_conjugated_and_negated_views_hold_what_they_show(tmp_path):
    base = torch.tensor([1 + 2j, -3j, 4.5], dtype=torch.complex64)
    content = {
        "base": base,
        "conj": base.conj(),
        "neg": torch._neg_view(base),
        "imag": base.conj().imag,
        "real": base.real,
    }
    for order in (list(content), list(reversed(content))):
        restored = _there_and_back(tmp_path, {name: content[name] for name in order}).content
        for name in order:
            assert torch.equal(restored[name], content[name]), name
            assert restored[name].dtype == content[name].dtype


def test_arrays_that_have_to_be_copied_do_not_take_each_others_place(tmp_path):
    """Copies that live only while they are written are given the same address one after the other."""
    content = [numpy.asfortranarray(numpy.full((3, 4), index, dtype=">f8")) for index in range(50)]
    restored = _there_and_back(tmp_path, content).content
    assert [float(array.mean()) for array in restored] == list(range(50))


def test_views_of_one_memory_are_kept_each_with_its_own_content(tmp_path):
    memory = torch.arange(12.0)
    content = [
        memory[:4],
        memory[2:6],
        memory.view(3, 4),
        memory,
        memory[4:],
        memory.view(torch.int32),
        memory.view(3, 4).t(),
    ]
    restored = _there_and_back(tmp_path, content).content
    for one, two in zip(content, restored, strict=True):
        assert_same_bits(one, two)
    restored[0].fill_(7)
    assert_same_bits(restored[3], memory)


def test_one_tensor_in_two_places_is_one_tensor_again(tmp_path):
    shared, array = torch.ones(3), numpy.ones(3)
    restored = _there_and_back(tmp_path, [shared, {"again": shared}, array], (shared, array))
    assert_same_graph([shared, {"again": shared}, array], restored.content)
    assert restored.more[0] is restored.content[0]
    assert restored.more[1] is restored.content[2]


def test_tied_weights_stay_tied_and_are_written_once(tmp_path):
    model = Tied()
    save(model, tmp_path / "tied")
    restored = load(tmp_path / "tied")
    assert restored.inner.weight is restored.outer.weight
    assert_same_bits(restored.inner.weight, model.inner.weight)
    assert (tmp_path / "tied" / "tensors.safetensors").stat().st_size < 2 * 9 * 4 + 200


def test_what_was_loaded_is_its_own_memory_and_does_not_change_with_the_file(tmp_path):
    restored = _there_and_back(tmp_path, torch.ones(1000), numpy.ones(1000))
    file = tmp_path / "saved" / "tensors.safetensors"
    with file.open("rb+") as opened:
        opened.write(bytes(file.stat().st_size))
    assert restored.content.sum() == restored.more.sum() == 1000
    restored.content.add_(1)
    restored.more += 1
    assert restored.content.sum() == restored.more.sum() == 2000


@pytest.mark.parametrize(
    "array",
    [
        numpy.array(3.5), numpy.zeros((0, 3)), numpy.arange(6)[::-1], numpy.arange(12.0).reshape(3, 4).T,
        numpy.arange(9)[::2],
        numpy.arange(4, dtype=">i4"), numpy.arange(4, dtype=">f8"), numpy.broadcast_to(numpy.arange(3), (2, 3)),
        numpy.array([1 + 2j], dtype="complex64"), numpy.array([True, False]),
        numpy.float16([1, 2]),
        numpy.asfortranarray(numpy.arange(6).reshape(2, 3)), numpy.array([2**64 - 1], dtype="uint64"),
        numpy.array([65535], dtype="uint16"),
        numpy.array([numpy.nan, -0.0, 5e-324]),
    ],
    ids=lambda array: f"{array.dtype.str}-{array.shape}-{array.strides}",
)  # fmt: skip
def test_arrays_come_back_as_arrays(tmp_path, array):
    restored = _there_and_back(tmp_path, array).content
    assert type(restored) is numpy.ndarray
    assert (restored.shape, restored.dtype) == (array.shape, array.dtype.newbyteorder("="))
    assert restored.tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()
    assert restored.flags.writeable


@pytest.mark.parametrize(
    "value",
    [
        numpy.array(["text"]), numpy.array([object()]), numpy.array(["2020"], dtype="M8[s]"),
        numpy.zeros(2, dtype=[("a", int)]),
        torch.eye(3).to_sparse(), torch.empty(3, device="meta"), numpy.array([1j]),
        torch.tensor([1j], dtype=torch.complex128),
    ],
    ids=["text", "object", "date", "record", "sparse", "meta", "complex array", "complex tensor"],
)  # fmt: skip
def test_what_a_tensor_file_cannot_hold_is_refused_with_its_path(tmp_path, value):
    with pytest.raises(ConfigError, match=r"content\[1\]"):
        _there_and_back(tmp_path, [1, value])
    assert list(tmp_path.iterdir()) == []


def test_tensors_a_class_is_made_from_are_kept_in_the_tensor_file(tmp_path):
    made = Arguments(weights=torch.randn(3), table=numpy.arange(3), more={"a": torch.ones(1), "b": None})
    made.seen = made.weights
    save([made, Node(anything=made.weights)], tmp_path / "made")
    restored = load(tmp_path / "made")
    assert_same_graph(made, restored[0])
    assert restored[1].anything is restored[0].weights
    assert "tensor" in (tmp_path / "made" / "trainer.yaml").read_text()
    with pytest.raises(ConfigError, match="weights"):
        dumps(made)


def test_names_with_a_meaning_in_the_file_are_names_like_others(tmp_path):
    save(KeepsItself(), tmp_path / "saved")
    assert_same_graph(KeepsItself().state_dict(), load(tmp_path / "saved").content)


@pytest.mark.parametrize("key", ["a.b", "a'", "state_dict", "", "__metadata__", "é\n", "../x", "\x00", "x" * 3000])
def test_names_of_tensors_never_clash(tmp_path, key):
    content = {
        key: torch.tensor([1.0]),
        "a": {"b": torch.tensor([2.0]), "": torch.tensor([3j])},
    }
    content |= {"state_dict": {key: torch.tensor([5.0])}, "a.b": torch.tensor([6.0])}
    restored = _there_and_back(tmp_path, content).content
    assert_same_graph(content, restored)
