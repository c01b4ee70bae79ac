"""The corpus that a config asks for."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from sonosco_like.data.corpora.synthetic import SyntheticCorpus
from sonosco_like.data.manifest import Manifest
from sonosco_like.errors import UsageError
from sonosco_like.serialization import dumps, loads


def contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def corpus(folder, **settings) -> SyntheticCorpus:
    return SyntheticCorpus(folder=folder, minutes=0.2, **{"seed": 3, **settings})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a prepared corpus, to look at only."""
    folder = tmp_path_factory.mktemp("synthetic") / "deep" / "digits"
    corpus(folder).prepare()
    return folder


@pytest.fixture
def copied(made, tmp_path):
    """A copy of that folder, to change."""
    return shutil.copytree(made, tmp_path / "digits")


def test_it_is_made_once_and_then_left_alone(made):
    assert all(len(Manifest.read(made / f"{split}.jsonl")) > 0 for split in ("train", "val", "test"))
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    corpus(made).prepare()
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*")} == before


def test_one_that_was_left_half_made_is_made_anew_and_the_seed_decides_what_it_is(made, copied):
    (copied / "test.jsonl").unlink()
    next(copied.rglob("*.flac")).unlink()
    corpus(copied).prepare()
    assert contents(copied) == contents(made)
    (copied / "test.jsonl").unlink()
    corpus(copied, seed=4).prepare()
    assert contents(copied)["train.jsonl"] != contents(made)["train.jsonl"]


def test_a_corpus_of_other_settings_is_not_taken_for_this_one(made):
    with pytest.raises(UsageError, match=r'made with .*"seed": 3.* asks for .*"seed": 4.* Remove that folder'):
        corpus(made, seed=4).prepare()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match=r"holds something else \('thesis.txt'\).* --set corpus.folder="):
        corpus(tmp_path).prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_damaged_note_of_the_settings_is_one_of_other_settings(copied):
    (copied / "made_with.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(UsageError, match="Remove that folder"):
        corpus(copied).prepare()


def test_one_made_by_hand_is_taken_as_it_is(copied):
    (copied / "made_with.json").unlink()
    before = contents(copied)
    corpus(copied, seed=4).prepare()
    assert contents(copied) == before


def test_it_is_a_part_of_a_config(tmp_path):
    asked = corpus(tmp_path, kind="commands", seed=7)
    read = loads(dumps(asked), SyntheticCorpus)
    assert (read.folder, read.kind, read.minutes, read.seed) == (tmp_path, "commands", 0.2, 7)
