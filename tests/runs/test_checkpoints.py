"""Checkpoints of a run that were damaged, pointers that were lost, and processes that want the same folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import Diary, make_trainer, tiny_config

from sonosco_like.callbacks import ModelCheckpoint
from sonosco_like.errors import ConfigError, StorageError, UsageError
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.runs.lock import only_process
from sonosco_like.training import Experiment, open_run, read_experiment

FILES = ("trainer.yaml", "state.yaml", "tensors.safetensors")
OLD, NEW = 15, 20


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run with two checkpoints, the better one of which is the older."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    policy = ModelCheckpoint(every="1ep", keep_last=2, monitor="gradient_norm")
    Experiment(name="tiny", trainer=make_trainer(callbacks=[Diary(), policy])).start(folder)
    shutil.rmtree(folder / "final")
    return folder


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def flip(position: float):
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(position * (len(content) - 1))] ^= 1
        path.write_bytes(content)

    return damage


def cut(share: float):
    return lambda path: os.truncate(path, min(path.stat().st_size - 1, int(share * path.stat().st_size)))


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "emptied": cut(0),
    "cut in half": cut(0.5),
    "without its last byte": cut(1),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "first bit": flip(0),
    "bit in the middle": flip(0.5),
    "last bit": flip(1),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "deleted": Path.unlink,
    "a link": replace_by_link,
    "a folder": replace_by_folder,
    "of another checkpoint": lambda path: shutil.copy(path.parents[1] / f"step-{OLD:08d}" / path.name, path),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_every_damage_to_every_file_is_seen_and_the_newest_intact_checkpoint_used(run, file, damage, caplog):
    checkpoints = Checkpoints(run)
    path = checkpoints.path_of(NEW) / file
    before = path.read_bytes()
    DAMAGES[damage](path)
    if path.is_file() and not path.is_symlink() and path.read_bytes() == before:
        assert (file, damage) == ("trainer.yaml", "of another checkpoint"), "the fields of a run do not change"
        return
    assert checkpoints.newest() == checkpoints.path_of(OLD)
    assert f"step-{NEW:08d} is damaged and not used" in caplog.text
    assert open_run(run)[1] == OLD


def test_damage_is_said_once_however_often_a_command_looks(run, caplog):
    checkpoints = Checkpoints(run)
    (checkpoints.path_of(NEW) / "state.yaml").unlink()
    checkpoints.repair()
    assert open_run(run)[1] == OLD
    assert caplog.text.count(f"step-{NEW:08d} is damaged and not used") == 1


def test_a_run_whose_checkpoints_are_all_damaged_is_left_as_it_is(run, caplog):
    for path in Checkpoints(run).all():
        (path / "state.yaml").unlink()
    with pytest.raises(StorageError, match=r"Every checkpoint in .* is damaged"):
        open_run(run)
    assert caplog.text.count("is damaged and not used") == len(Checkpoints(run).all())


def test_a_checkpoint_of_a_newer_form_is_refused_not_passed_over(run):
    state = Checkpoints(run).path_of(NEW) / "state.yaml"
    body, mark, _ = state.read_text().rpartition("sha256: ")
    assert mark, "the last line is the seal"
    body = body.replace("format: 1\n", "format: 2\n")
    state.write_text(f"{body}{mark}{hashlib.sha256(body.encode()).hexdigest()}\n")
    with pytest.raises(ConfigError, match="is of format 2, this package reads 1"):
        open_run(run)


def test_a_new_run_does_not_mix_with_checkpoints_that_are_there(run):
    (run / "config.yaml").unlink()
    with pytest.raises(UsageError, match=r"holds checkpoints of a run whose config\.yaml is gone"):
        Experiment(name="another", trainer=make_trainer()).start(run)
    assert [path.name for path in Checkpoints(run).all()] == [f"step-{OLD:08d}", f"step-{NEW:08d}"]


def test_a_resume_that_fails_before_its_first_step_leaves_the_config(tmp_path):
    experiment = Experiment(name="early", trainer=make_trainer())
    experiment.use_folder(tmp_path)
    (tmp_path / "config.yaml").write_text("kept")

    def fail():
        raise UsageError("the manifest is away for a moment")

    experiment.trainer.continue_training = fail
    with pytest.raises(UsageError, match="away for a moment"):
        experiment.resume()
    assert (tmp_path / "config.yaml").read_text() == "kept"


@pytest.mark.parametrize("name", ["", "a/b", "..\\x"])
def test_a_name_that_would_lead_elsewhere_is_refused(name):
    with pytest.raises(UsageError, match="without slashes"):
        Experiment(name=name, trainer=make_trainer())


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "a\x1b[2Jb"])
def test_a_name_that_cannot_be_printed_is_refused(name):
    with pytest.raises(UsageError, match="cannot be printed"):
        Experiment(name=name, trainer=make_trainer())


def test_a_damaged_newest_checkpoint_is_written_again_bit_for_bit(run, finished):
    flip(0.5)(Checkpoints(run).path_of(NEW) / "tensors.safetensors")
    experiment, step = open_run(run)
    assert step == OLD
    assert experiment.resume() == 0
    files = [Checkpoints(folder).path_of(NEW) / "tensors.safetensors" for folder in (run, finished)]
    assert files[0].read_bytes() == files[1].read_bytes()


LOSSES = {
    "lost": lambda path: path.unlink(),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:15]),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 100),
    "naming one that is gone": lambda path: path.write_text("checkpoints/step-00000003\n"),
    "naming the wrong one": lambda path: path.write_text(f"checkpoints/step-{OLD:08d}\n"),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["latest", "best"])
def test_a_lost_or_torn_pointer_is_repaired(run, finished, name, loss):
    LOSSES[loss](run / name)
    Checkpoints(run).repair()
    assert (run / name).read_bytes() == (finished / name).read_bytes()


def test_best_is_known_to_the_newest_checkpoint_and_the_next_best_follows_a_damaged_one(run):
    checkpoints = Checkpoints(run)
    best = checkpoints.best()
    assert best == checkpoints.pointed("best")
    cut(0.5)(best / "tensors.safetensors")
    assert checkpoints.best() is None
    checkpoints.repair()
    assert not (run / "best").exists()


def test_a_run_without_a_ranking_has_no_best(tmp_path):
    trainer = make_trainer(callbacks=[ModelCheckpoint()])
    Experiment(name="tiny", trainer=trainer).start(tmp_path / "run")
    assert Checkpoints(tmp_path / "run").best() is None
    assert not (tmp_path / "run" / "best").exists()


def test_a_checkpoint_that_was_being_replaced_when_the_process_died_is_found(run):
    path = Checkpoints(run).path_of(NEW)
    path.rename(path.with_name(f".{path.name}.previous"))
    assert Checkpoints(run).newest() == path


def test_a_second_run_in_one_folder_is_refused_in_this_process_too(run):
    with only_process(run), pytest.raises(UsageError, match="in use by this process already"):
        open_run(run)[0].resume()
    with only_process(run):
        assert (run / "lock").read_text() == f"{os.getpid()}\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_the_lock_dies_with_its_owner_although_its_workers_live_on(tmp_path):
    code = f"""
import os, signal, time
from pathlib import Path
from sonosco_like.runs.lock import only_process
with only_process(Path({str(tmp_path)!r})):
    worker = os.fork()
    if worker == 0:
        time.sleep(600)
    print(worker, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert done.stdout is not None
    worker = int(done.stdout.readline())
    try:
        assert done.wait() == -signal.SIGKILL
        with only_process(tmp_path):
            os.kill(worker, 0)  # it is still there
    finally:
        os.kill(worker, signal.SIGKILL)
        done.stdout.close()


@pytest.mark.parametrize("seed", [-1, 2**63, 10**30])
def test_a_seed_that_no_generator_takes_is_refused(seed, tmp_path):
    (tmp_path / "config.yaml").write_text(tiny_config("", epochs=1))
    with pytest.raises(UsageError, match="`seed` must be from 0 to"):
        read_experiment(tmp_path / "config.yaml", [f"seed={seed}"])
