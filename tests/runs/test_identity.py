"""Checkpoints say whose they are and of which step; those of others in a run folder are named and passed over."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest
from tiny import Diary, make_trainer

from sonosco_like.callbacks import ModelCheckpoint
from sonosco_like.errors import UsageError
from sonosco_like.runs.checkpoints import Checkpoints, find_checkpoint
from sonosco_like.runs.fetching import fetch_run
from sonosco_like.serialization import read_origin
from sonosco_like.training import Experiment, open_run


def trained(folder: Path, **fields) -> Path:
    policy = ModelCheckpoint(every="1ep", keep_last=2, monitor="val_loss")
    Experiment(name="tiny", trainer=make_trainer(callbacks=[Diary(), policy], **fields)).start(folder)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    """A run, and a shorter one of the same config."""
    folder = tmp_path_factory.mktemp("runs")
    return trained(folder / "own"), trained(folder / "other", epochs=6)


@pytest.fixture
def run(runs, tmp_path) -> Path:
    """A copy to be tampered with."""
    return Path(shutil.copytree(runs[0], tmp_path / "run"))


@pytest.fixture
def stranger(runs) -> Path:
    return Checkpoints(runs[1]).path_of(30)


def without_origin(checkpoint: Path) -> None:
    """Make a checkpoint one of an older version, seal and all."""
    path = checkpoint / "state.yaml"
    body = path.read_text().rpartition("sha256: ")[0]
    body = re.sub(r"^origin:\n(  .*\n)+", "", body, flags=re.MULTILINE)
    path.write_text(f"{body}sha256: {hashlib.sha256(body.encode()).hexdigest()}\n")


def test_every_checkpoint_and_the_final_one_say_the_id_and_the_step_of_their_run(run):
    (name,) = {read_origin(path).run for path in (*Checkpoints(run).all(), run / "final")}
    assert name == (run / "run_id").read_text().strip()
    assert [read_origin(path).step for path in Checkpoints(run).all()] == [15, 20]
    assert read_origin(run / "final").step == 20


def test_a_checkpoint_of_another_run_is_named_and_never_chosen_pointed_at_or_deleted(run, stranger, caplog):
    target = run / "checkpoints" / stranger.name
    shutil.copytree(stranger, target)
    (run / "best").write_text(f"checkpoints/{stranger.name}\n")
    (run / "latest").write_text(f"checkpoints/{stranger.name}\n")
    before = (target / "state.yaml").read_bytes()
    shutil.rmtree(run / "final")
    assert find_checkpoint(run).name == "step-00000020"
    assert f"{stranger.name} is not used: it is of another run" in caplog.text
    with pytest.raises(UsageError, match="is not a checkpoint of this run"):
        find_checkpoint(run / "best")
    experiment, step = open_run(run, ["trainer.epochs=5"])
    assert step == 20
    experiment.resume()
    assert (run / "latest").read_text() == "checkpoints/step-00000025\n"
    assert "step-00000030" not in (run / "best").read_text()
    assert (target / "state.yaml").read_bytes() == before
    assert [path.name for path in Checkpoints(run).all()][-1] == "step-00000025"


def test_one_that_was_renamed_to_a_later_step_is_not_the_newest(run, caplog):
    shutil.copytree(run / "checkpoints" / "step-00000015", run / "checkpoints" / "step-00000999")
    assert open_run(run)[1] == 20
    assert "step-00000999 is not used: it was taken at step 15" in caplog.text
    shutil.rmtree(run / "checkpoints" / "step-00000020")
    assert open_run(run)[1] == 15


def test_the_final_one_of_another_run_is_passed_over_too(run, runs, caplog):
    shutil.rmtree(run / "final")
    shutil.copytree(runs[1] / "final", run / "final")
    (run / "best").unlink()
    assert find_checkpoint(run).name == "step-00000020"
    assert "final is not used: it is of another run" in caplog.text


def test_a_run_of_which_nothing_is_its_own_is_not_begun_again(run, runs):
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "final")
    shutil.copytree(runs[1] / "checkpoints", run / "checkpoints")
    with pytest.raises(UsageError, match=r"Every checkpoint in .* is of another run"):
        open_run(run)
    with pytest.raises(UsageError, match="has no checkpoint yet"):
        find_checkpoint(run)


@pytest.mark.parametrize("lost", [("run_id",), ("environment.yaml",), ("run_id", "environment.yaml")])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"\xff\0\xfe")], ids=["gone", "torn"])
def test_the_id_survives_the_loss_of_the_files_that_hold_it(run, stranger, lost, damage):
    name = (run / "run_id").read_text()
    shutil.copytree(stranger, run / "checkpoints" / stranger.name)
    for file in lost:
        damage(run / file)
    experiment, step = open_run(run)
    assert step == 20
    experiment.resume()
    assert (run / "run_id").read_text() == name


def test_a_run_that_was_moved_or_copied_is_the_same_run(run, tmp_path):
    moved = run.rename(tmp_path / "moved")
    copied = Path(shutil.copytree(moved, tmp_path / "copied"))
    assert open_run(moved)[1] == open_run(copied)[1] == 20
    assert (copied / "run_id").read_text() == (moved / "run_id").read_text()


def test_checkpoints_of_older_versions_are_used_and_the_run_gets_an_id(run):
    for path in (*Checkpoints(run).all(), run / "final"):
        without_origin(path)
    (run / "run_id").unlink()
    text = (run / "environment.yaml").read_text()
    (run / "environment.yaml").write_text(re.sub(r"^run_id: .*\n", "", text, flags=re.MULTILINE))
    shutil.copytree(run / "checkpoints" / "step-00000015", run / "checkpoints" / "step-00000999")
    experiment, step = open_run(run, ["trainer.epochs=5"])
    assert step == 20, "the trainer in it knows at which step it is"
    experiment.resume()
    (name,) = {read_origin(path).run for path in (Checkpoints(run).path_of(25), run / "final")}
    assert (run / "run_id").read_text().strip() == name
    assert open_run(run)[1] == 25


def test_an_unsigned_checkpoint_after_signed_ones_is_not_of_this_run(run, stranger, caplog):
    target = shutil.copytree(stranger, run / "checkpoints" / stranger.name)
    without_origin(target)
    assert open_run(run)[1] == 20
    assert f"{stranger.name} is not used: it does not say which run it is of" in caplog.text


def test_another_run_can_still_begin_with_these_weights(run, tmp_path):
    Experiment(name="tuned", trainer=make_trainer(), init_from=run).start(tmp_path / "tuned")
    assert (tmp_path / "tuned" / "run_id").read_text() != (run / "run_id").read_text()


def test_a_run_fetched_from_its_remote_copy_is_the_same_run(tmp_path):
    url = f"file://{tmp_path}/remote"
    Experiment(name="tiny", trainer=make_trainer(callbacks=[ModelCheckpoint()]), remote=url).start(tmp_path / "run")
    fetched = fetch_run(url, tmp_path / "fetched")
    assert (fetched / "run_id").read_text() == (tmp_path / "run" / "run_id").read_text()
    assert open_run(fetched)[1] == 20
