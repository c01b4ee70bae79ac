"""What hostile folders are made from: two saved checkpoints, and a look at the disk before and after."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
import torch
from attack_targets import Model, Part, Target, nothing_is_executed_or_written, said_plainly, warm_up

from sonosco_like.errors import SonoscoError
from sonosco_like.serialization import load, save


def _target(number: int) -> Target:
    target = Target(number=number, part=Part(size=number, label="part"), listed=[Part(), Model()])
    target.seen, target.tensor, target.friend = number, torch.full((4,), float(number)), target.part
    return target


@pytest.fixture(scope="session")
def originals(tmp_path_factory) -> Path:
    """Two complete checkpoints, `one` and `two`, of the same classes."""
    warm_up()
    place = tmp_path_factory.mktemp("originals")
    save(_target(1), place / "one")
    save(_target(2), place / "two")
    return place


@pytest.fixture
def folder(originals, tmp_path) -> Path:
    """A copy of checkpoint `one` to tamper with."""
    return Path(shutil.copytree(originals / "one", tmp_path / "inside" / "checkpoint"))


@pytest.fixture
def outside(tmp_path) -> Path:
    """A folder no checkpoint has any business with; holds what links may point to."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "canary").write_text("untouched")
    return place


def _disk(place: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in place.rglob("*")}


@pytest.fixture
def refused(tmp_path):
    """Load a folder, which must be refused with an error of ours that names a file, and leave the disk as it was."""

    def check(folder: Path, *, names: str = "", reading=load) -> str:
        before = _disk(tmp_path)
        with nothing_is_executed_or_written(), pytest.raises(SonoscoError) as caught:
            reading(folder)
        assert _disk(tmp_path) == before
        message = said_plainly(caught.value)
        assert names in message, message
        return message

    return check


@pytest.fixture
def restored_logging():
    """The logging of the process as it was before a command in it."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
