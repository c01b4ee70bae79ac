"""The saved folder: three files, atomic, hashed; a damaged one is refused by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sonosco_like import load, save, serializable, state
from sonosco_like.errors import StorageError
from sonosco_like.serialization import Snapshot
from sonosco_like.serialization.tensors import TensorReader, TensorWriter


@serializable
class Tiny(nn.Module):
    size: int = 3
    steps: int = state(0)

    def __post_init__(self):
        self.linear = nn.Linear(self.size, self.size)


@pytest.fixture
def saved(tmp_path):
    model = Tiny()
    model.steps = 5
    save(model, tmp_path / "step-5")
    return tmp_path / "step-5"


def test_a_folder_holds_exactly_the_three_files_of_the_contract(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["state.yaml", "tensors.safetensors", "trainer.yaml"]
    assert [path.name for path in saved.parent.iterdir()] == ["step-5"]


def test_saving_the_same_twice_gives_the_same_bytes(saved, tmp_path):
    save(load(saved), tmp_path / "again")
    for path in saved.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_a_save_replaces_the_former_one(saved):
    model = Tiny(size=2)
    save(model, saved)
    assert load(saved, Tiny).size == 2
    assert [path.name for path in saved.parent.iterdir()] == ["step-5"]


@pytest.mark.parametrize("name", ["trainer.yaml", "state.yaml", "tensors.safetensors"])
def test_a_changed_file_is_refused_by_name(saved, name):
    content = bytearray((saved / name).read_bytes())
    content[len(content) // 2] ^= 1
    (saved / name).write_bytes(content)
    with pytest.raises(StorageError, match=f"{name} is torn or was changed"):
        load(saved)


@pytest.mark.parametrize("name", ["trainer.yaml", "state.yaml", "tensors.safetensors"])
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(StorageError, match=f"{name} does not exist"):
        load(saved)


def test_nothing_there_is_said_plainly(tmp_path):
    with pytest.raises(StorageError, match="nowhere does not exist"):
        load(tmp_path / "nowhere")


def test_a_crash_between_the_two_renames_is_repaired_by_reading(saved):
    saved.rename(saved.parent / ".step-5.previous")
    assert load(saved, Tiny).steps == 5
    assert saved.is_dir()


def test_a_detached_snapshot_keeps_the_moment_it_was_taken(tmp_path):
    model = Tiny()
    before = model.linear.weight.detach().clone()
    snapshot = Snapshot(model, detach=True)
    with torch.no_grad():
        model.linear.weight.zero_()
    snapshot.write(tmp_path / "s")
    assert torch.equal(load(tmp_path / "s").linear.weight, before)


def test_one_yaml_file_for_objects_without_tensors(tmp_path):
    @serializable
    class Plain:
        x: int = 1
        y: float = state(0.0)

    plain = Plain(x=4)
    plain.y = 0.5
    save(plain, tmp_path / "plain.yaml")
    assert (load(tmp_path / "plain.yaml").x, load(tmp_path / "plain.yaml").y) == (4, 0.5)
    assert [path.name for path in tmp_path.iterdir()] == ["plain.yaml"]


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="could not be written"):
        save(Tiny(), tmp_path / "file" / "step-1")


def test_a_tensor_file_that_goes_between_two_looks_at_it_is_a_storage_error(tmp_path, monkeypatch):
    """The reader of safetensors opens a file twice; a save of another process may come between."""
    path = tmp_path / "t.safetensors"
    writer = TensorWriter()
    writer.add(["weight"], torch.ones(3))
    writer.write(path)
    from_file = torch.UntypedStorage.from_file

    def from_file_that_is_gone(*args, **kwargs):
        path.unlink()
        return from_file(*args, **kwargs)

    monkeypatch.setattr(torch.UntypedStorage, "from_file", from_file_that_is_gone)
    with pytest.raises(StorageError, match="No such file"):
        TensorReader(path)
