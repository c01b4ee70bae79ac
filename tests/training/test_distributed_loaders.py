"""torch's DataLoader in several processes, started by a real torchrun: each example is one process's."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from torchruns import HERE, said_by, start

EXAMPLES, VALIDATED = 23, 7


def run(folder, kind, stop_at=0):
    return said_by(start(folder, str(HERE / "distributed_loaders.py"), kind, str(stop_at)))


def seen(folder, stop_at=0):
    return [json.loads((folder / f"seen-{stop_at}-{rank}.json").read_text()) for rank in (0, 1)]


def examples(rows, name, epoch):
    return [row for part, at, row in rows if part == name and at == epoch]


@pytest.mark.parametrize(("kind", "trained", "batches"), [("shuffled", 23, 3), ("in order", 23, 3), ("dropped", 16, 2)])
def test_each_example_is_one_process_s_in_training_and_in_validation(tmp_path, kind, trained, batches):
    said = run(tmp_path, kind)
    both = seen(tmp_path)
    for epoch in (0, 1):
        shares = [examples(each["rows"], "train", epoch) for each in both]
        assert [len(share) for share in shares] == [batches, batches], "DDP needs equally many"
        counts = Counter(index for share in shares for batch in share for index in batch)
        assert len(counts) == sum(counts.values()) == trained
        validated = [index for each in both for batch in examples(each["rows"], "val", epoch) for index in batch]
        assert sorted(validated) == list(range(VALIDATED))
    assert both[0]["weights"] == both[1]["weights"]
    assert both[0]["measures"] == both[1]["measures"]
    assert "batches of the DataLoader are distributed to 2 processes, each example to one of them" in said
    assert ("are left out" in said) == (kind == "dropped")
    if kind != "in order":
        assert examples(both[0]["rows"], "train", 0) != examples(both[0]["rows"], "train", 1)


def test_a_sampler_that_deals_out_is_left_to_it(tmp_path):
    said = run(tmp_path, "dealt")
    counts = Counter(
        index for each in seen(tmp_path) for batch in examples(each["rows"], "train", 0) for index in batch
    )
    assert set(counts) == set(range(EXAMPLES))
    assert sum(counts.values()) == 24, "as torch does: one example twice, so that it is even"
    assert "The sampler of the DataLoader distributes its examples to the processes" in said


def test_processes_that_were_stopped_in_an_epoch_go_on_with_the_batches_that_are_left(tmp_path):
    run(tmp_path, "shuffled")
    run(tmp_path, "shuffled", 2)
    whole, before, after = seen(tmp_path), seen(tmp_path, 2), seen(tmp_path, -2)
    for rank in (0, 1):
        trained = [row for row in before[rank]["rows"] + after[rank]["rows"] if row[0] == "train"]
        assert trained == [row for row in whole[rank]["rows"] if row[0] == "train"]
        assert after[rank]["weights"] == whole[rank]["weights"]
