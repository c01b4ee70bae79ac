"""A folder that is torn, tampered with, linked or swapped is refused, and the message names the file."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil

import pytest
import torch
from attack_targets import FILES

from sonosco_like.errors import SonoscoError, StorageError
from sonosco_like.serialization import diff, load, restore, verify


class _Evil:
    def __reduce__(self):
        return os.system, ("touch canary",)


def test_the_untouched_folder_is_read(folder):
    assert load(folder).seen == 1
    verify(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_link_in_place_of_a_file_is_refused_even_if_it_points_to_the_same_bytes(folder, outside, refused, name):
    shutil.move(folder / name, outside / name)
    for target in (outside / name, "../../outside/" + name, outside / "missing", "/dev/zero", name):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
        refused(folder, names=name)
        refused(folder, names=name, reading=verify)


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_a_regular_file_is_refused_without_waiting_for_it(folder, refused, name):
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    refused(folder, names=name)
    os.mkfifo(folder / name)
    refused(folder, names=name)
    refused(folder, names=name, reading=verify)
    (folder / name).unlink()
    (folder / name).mkdir()
    refused(folder, names=name)
    (folder / name / "inside").write_bytes(content)
    refused(folder, names=name)


def test_a_fifo_a_link_and_a_device_as_the_whole_are_refused(tmp_path, folder, refused):
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path / "fifo", names="fifo")
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", names="loop")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    refused(tmp_path / "zero.yaml", names="zero.yaml")
    refused(folder / "missing", names="missing")
    refused(folder / "state.yaml" / "below", names="below")


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_at_any_byte_is_refused(folder, name):
    content = (folder / name).read_bytes()
    last_newline = 1 if name == "state.yaml" else 0  # without it nothing is lost
    for length in range(len(content) - last_newline):
        (folder / name).write_bytes(content[:length])
        with pytest.raises(StorageError, match=name):
            load(folder)
    assert length > 100


@pytest.mark.parametrize("name", FILES)
def test_a_single_bit_changed_anywhere_is_refused(folder, name):
    content = bytearray((folder / name).read_bytes())
    for index in range(len(content)):
        bit = 1 << (index % 8)
        content[index] ^= bit
        (folder / name).write_bytes(content)
        with pytest.raises(StorageError, match=name):
            load(folder)
        content[index] ^= bit
    (folder / name).write_bytes(content)
    load(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("more", [b"x", b"\x00" * 100, b"\nnumber: 9\n", b"sha256: " + b"0" * 64 + b"\n"], ids=repr)
def test_anything_appended_is_refused(folder, refused, name, more):
    with (folder / name).open("ab") as file:
        file.write(more)
    refused(folder, names=name)


@pytest.mark.parametrize("taken", [c for size in (1, 2) for c in itertools.combinations(FILES, size)], ids="+".join)
def test_files_of_two_checkpoints_do_not_mix(originals, folder, refused, taken):
    for name in taken:
        shutil.copy(originals / "two" / name, folder / name)
    refused(folder)
    refused(folder, reading=verify)
    if len({"state.yaml", "tensors.safetensors"} & set(taken)) == 1:
        refused(folder, reading=lambda path: restore(load(originals / "one"), path))


def test_an_edited_config_is_refused_by_name(folder, refused):
    text = (folder / "trainer.yaml").read_text()
    (folder / "trainer.yaml").write_text(text.replace("number: 1", "number: 2"))
    assert text.replace("number: 1", "number: 2") != text
    refused(folder, names="trainer.yaml")


def test_a_pickle_in_disguise_is_never_unpickled(folder, outside, refused, monkeypatch):
    monkeypatch.chdir(outside)
    for name in FILES:
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(pickle.dumps(_Evil()))
        refused(folder, names=name)
        torch.save({"weights": _Evil()}, folder / name)
        refused(folder, names=name)
        (folder / name).write_bytes(kept)
    assert (outside / "canary").read_text() == "untouched"


def test_an_empty_folder_and_one_with_other_files_are_refused(tmp_path, refused):
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", names="state.yaml")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    refused(tmp_path / "other", names="state.yaml")


def test_files_beside_the_three_are_not_looked_at(folder, outside):
    (folder / "sitecustomize.py").write_text("raise SystemExit")
    (folder / "pickle.pkl").write_bytes(pickle.dumps(_Evil()))
    (folder / "model.pt").symlink_to(outside / "canary")
    assert load(folder).seen == 1


def test_former_saves_lying_about_are_not_followed_out_of_the_folder(tmp_path, outside, refused):
    """A link under the name of a former save must not move, nor be taken for one."""
    (tmp_path / ".gone.previous").symlink_to(outside)
    refused(tmp_path / "gone")
    assert (outside / "canary").read_text() == "untouched"


def test_comparing_checks_what_it_compares(originals, folder):
    text = (folder / "state.yaml").read_text()
    for changed in ("abc", text.replace("seen: 1", "seen: 2"), text.replace("!tensor tensor", "!tensor missing"), ""):
        (folder / "state.yaml").write_text(changed)
        with pytest.raises(SonoscoError, match=r"state\.yaml"):
            diff(folder, originals / "one")
