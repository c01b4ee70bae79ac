"""Parts of a saved object, read without the rest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sonosco_like import save, serializable, state
from sonosco_like.errors import StorageError
from sonosco_like.serialization import GRAPH_FILE, Saved, saved_folder


@serializable
class Part(nn.Module):
    size: int = 1
    steps: int = state(0)

    def __post_init__(self):
        self.linear = nn.Linear(self.size, 1)


@serializable
class Training:
    model: Part
    note: str = ""


def saved_with_size(size, folder):
    training = Training(model=Part(size=size))
    training.model.steps = size
    save(training, folder)


def test_a_part_comes_with_its_state_and_weights(tmp_path):
    saved_with_size(3, tmp_path / "saved")
    model = Saved(tmp_path / "saved").read("model", Part)
    assert (model.size, model.steps, tuple(model.linear.weight.shape)) == (3, 3, (1, 3))


def test_a_save_that_comes_between_two_files_is_read_from_the_beginning(tmp_path, monkeypatch):
    folder = tmp_path / "saved"
    saved_with_size(2, folder)
    read_file = saved_folder.read_file
    saves = iter([5])

    def read_while_another_saves(path, *limit):
        content = read_file(path, *limit)
        if path.name == GRAPH_FILE and (size := next(saves, None)):
            saved_with_size(size, folder)
        return content

    monkeypatch.setattr(saved_folder, "read_file", read_while_another_saves)
    model = Saved(folder).read("model", Part)
    assert (model.size, model.steps) == (5, 5)
    assert torch.equal(model.linear.weight, Saved(folder).read("model", Part).linear.weight)


@pytest.mark.parametrize("name", ["trainer.yaml", "state.yaml", "tensors.safetensors"])
def test_a_changed_file_is_refused_by_name(tmp_path, name):
    saved_with_size(2, tmp_path / "saved")
    with (tmp_path / "saved" / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(StorageError, match=f"{name} is torn or was changed"):
        Saved(tmp_path / "saved")
