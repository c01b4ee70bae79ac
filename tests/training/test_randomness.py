"""What a run draws depends on its seed, and on nothing that a process happened to import before."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from sonosco_like.training.randomness import drawing_from, generator_states, restore_generators
from sonosco_like.training.torch_loader import TorchLoader

_IMPORT_AFTER_SEED = """
from sonosco_like.training.randomness import generator_states, seed_everything
seed_everything(3)
before = generator_states()
import sonosco_like.catalog
after = generator_states()
assert before["python"] == after["python"]
assert (before["numpy"][1] == after["numpy"][1]).all()
assert before["torch"].equal(after["torch"])
"""


def test_rooms_that_are_imported_after_the_seed_is_set_draw_nothing():
    done = subprocess.run([sys.executable, "-c", _IMPORT_AFTER_SEED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def plain(states):
    """Generator states that can be compared with ==."""
    name, keys, *rest = states["numpy"]
    return states["torch"].tolist(), states["python"], (name, keys.tolist(), *rest)


@pytest.mark.parametrize(
    "draw",
    [
        random.random, lambda: random.gauss(0, 1), np.random.random, np.random.standard_normal,
        lambda: torch.rand(()), lambda: np.random.set_state(np.random.RandomState(5).get_state()),
    ],
)  # fmt: skip
def test_every_draw_is_seen_in_the_states(draw):
    before = generator_states()
    assert plain(generator_states()) == plain(before)
    for _ in range(3):  # of normal numbers each second one is kept from the call before, and moves nothing else
        before = plain(generator_states())
        draw()
        numpy, python = np.random.get_state(), random.getstate()
        now = plain(generator_states())
        assert now[1] == python
        assert now[2] == (numpy[0], numpy[1].tolist(), *numpy[2:])
        assert now != before or "set_state" in draw.__code__.co_names


def test_states_that_were_taken_are_not_changed_by_later_draws():
    taken = generator_states()
    expected = plain(taken)
    first = random.random(), np.random.standard_normal(), torch.rand(()).item()
    assert plain(taken) == expected
    restore_generators(taken)
    assert (random.random(), np.random.standard_normal(), torch.rand(()).item()) == first


@pytest.mark.parametrize("normals", [0, 1])
def test_drawing_apart_leaves_no_trace_not_even_of_a_kept_normal_number(normals):
    np.random.seed(3)
    for _ in range(normals):
        np.random.standard_normal()
    before = plain(generator_states())
    with drawing_from(1, 2):
        outer = random.random(), np.random.standard_normal()
        with drawing_from(1, 2):
            assert (random.random(), np.random.standard_normal()) == outer
        after_inner = random.random(), np.random.standard_normal()
    assert plain(generator_states()) == before
    with drawing_from(1, 2):
        assert (random.random(), np.random.standard_normal()) == outer
        assert (random.random(), np.random.standard_normal()) == after_inner


class DrawsLate(Dataset):
    """Draws random numbers for some examples only, none of them in the first batches."""

    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return float(self.draw()) if index in (5, 10) else float(index)


@pytest.mark.parametrize("draw", [random.random, np.random.random, lambda: torch.rand(())])
def test_a_dataset_that_draws_late_draws_from_its_place(draw):
    def batches(start):
        loader = TorchLoader(DataLoader(DrawsLate(draw), batch_size=2), seed=1, equal_shards=True)
        loader.seek(start)
        return [batch.tolist() for batch in loader]

    before = plain(generator_states())
    whole = batches(0)
    assert plain(generator_states()) == before
    assert [batches(start) for start in range(1, 6)] == [whole[start:] for start in range(1, 6)]
