"""The tensor file is an ordinary safetensors file."""

from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from sonosco_like.serialization.tensors import _NAMES, write_tensors

DTYPES = sorted(_NAMES, key=str)


def _tensor(dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    count = torch.Size(shape).numel()
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.arange(count * size, dtype=torch.int64).remainder(2 if dtype == torch.bool else 61).to(torch.uint8)
    return raw.view(dtype).reshape(shape)


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12).filter(
            lambda n: n != "__metadata__"
        ),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)),
        max_size=6,
    )
)
def test_the_library_reads_exactly_what_was_written_and_the_hash_is_the_files(tmp_path_factory, described):
    tensors = {name: _tensor(dtype, shape) for name, (dtype, shape) in described.items()}
    path = tmp_path_factory.mktemp("t") / "tensors.safetensors"
    digest = write_tensors(path, tensors)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    read = load_file(path)
    assert {name: (t.dtype, list(t.shape)) for name, t in read.items()} == described
    for name, tensor in tensors.items():
        assert torch.equal(read[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_is_read_back_by_the_library(tmp_path, dtype):
    tensor = _tensor(dtype, [2, 3])
    write_tensors(tmp_path / "t", {"x": tensor})
    read = load_file(tmp_path / "t")["x"]
    assert read.dtype == dtype
    assert torch.equal(read.view(torch.uint8), tensor.view(torch.uint8))
