"""`diff` names what differs, and nothing else."""

from __future__ import annotations

from dataclasses import field

import pytest
import torch
from torch import nn

from sonosco_like import diff, load, save, serializable, state
from sonosco_like.errors import StorageError


@serializable
class Rate:
    value: float = 0.1
    steps: int = state(0)


@serializable
class Thing(nn.Module):
    size: int = 2
    rates: list[Rate] = field(default_factory=list)

    def __post_init__(self):
        self.linear = nn.Linear(self.size, self.size)


def test_a_thing_and_its_restored_twin_are_alike(tmp_path):
    thing = Thing(rates=[Rate()])
    save(thing, tmp_path / "t")
    assert diff(thing, load(tmp_path / "t")) == []


def test_fields_state_and_tensors_are_compared_by_path(tmp_path):
    a = Thing(rates=[Rate(), Rate()])
    save(a, tmp_path / "t")
    b = load(tmp_path / "t")
    b.rates[1].value = 0.2
    b.rates[0].steps = 3
    with torch.no_grad():
        b.linear.bias[0] += 1
    found = {difference.path: difference for difference in diff(a, b)}
    assert sorted(found) == ["rates[0].state.steps", "rates[1].value", "state.state_dict['linear.bias']"]
    assert str(found["rates[1].value"]) == "rates[1].value: the number 0.1 -> the number 0.2"


def test_saved_folders_and_files_are_compared_without_building_them(tmp_path):
    (tmp_path / "a.yaml").write_text("class: Unknown\nx: 1\ny: [1, 2]")
    (tmp_path / "b.yaml").write_text("class: Unknown\nx: 2\ny: [1]")
    assert [str(d) for d in diff(tmp_path / "a.yaml", str(tmp_path / "b.yaml"))] == [
        "x: the number 1 -> the number 2",
        "y[1]: the number 2 -> (absent)",
    ]
    save(Thing(), tmp_path / "one")
    save(Thing(), tmp_path / "two")
    assert [d.path for d in diff(tmp_path / "one", tmp_path / "two")] == [
        "state[''].state_dict['linear.weight']",
        "state[''].state_dict['linear.bias']",
    ]


@pytest.mark.parametrize("name", ["trainer.yaml", "state.yaml", "tensors.safetensors"])
def test_a_saved_folder_that_was_changed_is_refused_by_name(tmp_path, name):
    save(Thing(), tmp_path / "one")
    with (tmp_path / "one" / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(StorageError, match=f"{name} is torn or was changed"):
        diff(tmp_path / "one", Thing())
