"""`Saved`: a folder that is opened once, and of which the whole or parts are read by path."""

from __future__ import annotations

from dataclasses import field

import pytest
import torch
from torch import nn

from sonosco_like import diff, load, save, serializable, state
from sonosco_like.errors import ConfigError, StorageError, UsageError
from sonosco_like.serialization import Origin, Saved, Snapshot, read_origin


@serializable
class Layer(nn.Module):
    size: int = 2

    def __post_init__(self) -> None:
        self.linear = nn.Linear(self.size, self.size)


@serializable
class Counter:
    name: str = "c"
    counts: dict[int, float] = state({})
    seen: list[str] = state([])


@serializable
class Whole:
    model: Layer
    counters: list[Counter] = field(default_factory=list)
    spare: Layer | None = None
    step: int = state(0)


@pytest.fixture
def whole():
    found = Whole(model=Layer(size=3), counters=[Counter(), Counter(name="d")])
    found.step = 7
    found.counters[1].counts = {4: 0.5}
    return found


@pytest.fixture
def folder(whole, tmp_path):
    Snapshot(whole, origin=Origin("id", 7)).write(tmp_path / "saved")
    return tmp_path / "saved"


def test_parts_are_read_by_path_with_their_state(whole, folder):
    saved = Saved(folder)
    assert torch.equal(saved.read("model", Layer).linear.weight, whole.model.linear.weight)
    assert saved.read("counters[1]", Counter).counts == {4: 0.5}
    assert [saved.has(path) for path in ("model", "spare", "nothing.there")] == [True, False, False]
    assert saved.get("counters[1].name") == "d"


def test_what_parts_share_stays_shared(tmp_path):
    layer = Layer()
    save(Whole(model=layer, spare=layer), tmp_path / "saved")
    model, spare = Saved(tmp_path / "saved").read_all({"model": Layer, "spare": Layer})
    assert model is spare


def test_a_path_without_a_part_is_refused(folder):
    with pytest.raises(UsageError, match="has no 'modle'"):
        Saved(folder).read("modle", Layer)


def test_state_is_read_without_building_anything(whole, folder):
    saved = Saved(folder)
    assert saved.state("", "step") == 7
    assert saved.state("counters[1]", "counts", expected=dict[int, float]) == {4: 0.5}
    assert saved.state("counters[9]", "counts") is None
    assert torch.equal(saved.tensors("model")["linear.bias"], whole.model.linear.bias)
    assert saved.tensors("counters[0]") == {}


def test_objects_are_found_by_their_class(folder):
    assert Saved(folder).paths(Counter) == ["counters[0]", "counters[1]"]
    assert Saved(folder).paths() == ["", "model", "counters[0]", "counters[1]"]


def test_the_whole_is_built_and_restored(whole, folder):
    saved = Saved(folder)
    assert diff(saved.build(Whole), whole) == []
    other = Whole(model=Layer(size=3), counters=[Counter(), Counter(name="d")])
    saved.restore_into(other)
    assert diff(other, load(folder)) == []
    with pytest.raises(ConfigError, match=r"counters\[1\]"):
        saved.restore_into(Whole(model=Layer(size=3), counters=[Counter()]))


def test_settings_can_be_changed_before_they_are_built(folder):
    saved = Saved(folder)
    assert saved.settings(["counters[0].name=new"]).build(Whole).counters[0].name == "new"
    assert saved.leaves()["counters[0].name"] == "c"


def test_the_origin_is_that_of_the_run(folder):
    assert Saved(folder).origin == Origin("id", 7)


@pytest.mark.parametrize("best", [None, (), (40, 20)], ids=["older-version", "none-ranked", "ranked"])
def test_the_origin_holds_the_best_steps_in_their_order(whole, tmp_path, best):
    origin = Origin("id", 7, {"torch": "2.0"}, best)
    Snapshot(whole, origin=origin).write(tmp_path / "ranked")
    assert Saved(tmp_path / "ranked").origin == read_origin(tmp_path / "ranked") == origin


def test_a_snapshot_shows_the_tensors_that_it_will_write(whole, tmp_path):
    snapshot = Snapshot(whole, detach=True)
    weight = whole.model.linear.weight.detach().clone()
    nn.init.zeros_(whole.model.linear.weight)
    assert torch.equal(snapshot.tensors["model.linear.weight"], weight), "a copy, as of the moment of the snapshot"
    snapshot.write(tmp_path / "written")
    written = Saved(tmp_path / "written").tensors("model")
    assert {f"model.{name}" for name in written} == set(snapshot.tensors)
    assert torch.equal(written["linear.weight"], weight)


def test_a_torn_file_is_refused(folder):
    tensors = folder / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"\1")
    with pytest.raises(StorageError, match="torn or was changed"):
        Saved(folder)
    assert Saved(folder, tensors=False).state("", "step") == 7


def test_it_can_be_read_after_the_folder_is_gone(whole, folder):
    saved = Saved(folder)
    for file in folder.iterdir():
        file.unlink()
    assert torch.equal(saved.tensors("model")["linear.bias"], whole.model.linear.bias)
