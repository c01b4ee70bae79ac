"""State that one process sends to another comes back as it was."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from sonosco_like.errors import UsageError
from sonosco_like.training.exchange import from_plain, to_plain
from sonosco_like.training.randomness import generator_states


def there_and_back(value):
    return from_plain(json.loads(json.dumps(to_plain(value))))


def test_plain_values_and_containers_come_back():
    value = {"a": [1, 2.5, None, True, float("inf")], 3: ("x", {4, 5}), ("k", 1): b"\x00\xff", "kind": {"content": 1}}
    assert there_and_back(value) == value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
def test_tensors_come_back(dtype):
    for tensor in (torch.arange(6).reshape(2, 3).to(dtype), torch.tensor(1).to(dtype), torch.empty(0, 2, dtype=dtype)):
        found = there_and_back(tensor)
        assert found.dtype == dtype
        assert torch.equal(found, tensor)


def test_arrays_and_generators_come_back():
    assert np.array_equal(there_and_back(np.arange(3.0)), np.arange(3.0))
    states = generator_states()
    found = there_and_back(states)
    assert torch.equal(found["torch"], states["torch"])
    assert found["python"] == states["python"]
    assert np.array_equal(found["numpy"][1], states["numpy"][1])


def test_what_is_no_data_is_refused():
    with pytest.raises(UsageError, match="State of object cannot be sent"):
        to_plain({"a": object()})
