"""`sonosco verify-resume`: the verdict, and what differed first when it is a bad one. Real processes, real kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from tiny import make_trainer, tiny_config

from sonosco_like import save, serializable
from sonosco_like.cli import run
from sonosco_like.events import AbstractCallback
from sonosco_like.runs.run_folder import STEP_CHECKSUMS
from sonosco_like.training.verification import (
    FirstDifference,
    StepChecksums,
    VerificationError,
    _Process,
    compare_runs,
    first_difference,
    is_clock,
    verify_resume,
)

CONFIG = tiny_config(
    """
  callbacks:
  - {class: tiny.Gate, at: 15}
  - {class: LogMeasures, every: 1ba}
  - {class: MetricsFile}
  - {class: TensorBoardCallback}
  - {class: ModelCheckpoint, every: 2ba}
""",
    epochs=4,
)


@serializable
class Restless(AbstractCallback):
    """Changes a weight by something that no seed decides."""

    at: int = 6

    def __call__(self, epoch, step, performance_measures, context):
        if context.global_step == self.at:
            with torch.no_grad():
                next(context.model.parameters())[0, 0] += 1 + int.from_bytes(os.urandom(4), "big") / 2**32


@serializable
class Forgetful(AbstractCallback):
    """Changes weights by how often it was called, and does not say that this is state."""

    def __post_init__(self):
        self.calls = 0

    def __call__(self, epoch, step, performance_measures, context):
        self.calls += 1
        with torch.no_grad():
            context.model.layers[3].bias += self.calls


@pytest.fixture
def config(tmp_path, monkeypatch, repository):
    """A config of 20 steps; one of them is held, in a run that is to be killed, until it was."""
    folders = [str(repository / "tests"), str(repository / "tests" / "training"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    path = tmp_path / "verified.yaml"
    path.write_text(CONFIG)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "killed.hold").touch()
    return path


def test_a_config_that_can_be_killed_is_exact(config, tmp_path, capsys):
    arguments = ["--kills", "1", "--keep", str(tmp_path / "kept"), "--import", "tiny"]
    assert run(["verify-resume", "--config", str(config), *arguments]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^killed after step 1?\d of 20; it", said, re.MULTILINE)
    assert "EXACT: 20 steps" in said
    assert (tmp_path / "kept" / "killed" / "final").is_dir()


def test_what_no_seed_decides_is_found_at_its_step_and_is_not_blamed_on_resuming(config, tmp_path, capsys):
    config.write_text(config.read_text() + "  - {class: test_verification.Restless}\n")
    modules = ["--import", "tiny", "--import", "test_verification"]
    assert run(["verify-resume", "--config", str(config), "--kills", "0", *modules]) == 1
    said = capsys.readouterr().out
    assert "NOT EXACT" in said
    assert "first difference at step 6 (epoch 2): the weights layers.0.weight\n" in said
    assert "The runs differed before the first kill" in said
    assert "metrics.jsonl:7: step 7: loss" in said or "differences at the end" in said


@pytest.mark.slow
def test_state_that_a_checkpoint_does_not_hold_is_found(config, tmp_path):
    config.write_text(config.read_text() + "  - {class: test_verification.Forgetful}\n")
    modules = ["tiny", "test_verification"]
    verdict = verify_resume(config, tmp_path / "kept", 1, modules=modules, report=lambda text: None)
    assert not verdict.is_exact
    assert not verdict.first.before_any_kill
    assert verdict.first.step >= verdict.kills[0] - 1, "steps after the last checkpoint, at most two, are done anew"
    assert "the weights layers.3.bias" in verdict.first.names


def test_a_run_that_fails_by_itself_is_shown(config, tmp_path):
    with pytest.raises(VerificationError, match="ended with exit code 2"):
        verify_resume(config, tmp_path / "kept", 1, overrides=["trainer.epochz=3"], modules=["tiny"])


def test_a_run_does_not_outlive_a_verification_that_is_interrupted(tmp_path, monkeypatch):
    (tmp_path / "sleeper.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.chdir(tmp_path)
    process = _Process(["train", "--config", "any.yaml", "--import", "sleeper"], tmp_path / "log")
    with pytest.raises(KeyboardInterrupt), process:
        raise KeyboardInterrupt
    assert process._popen.returncode == -signal.SIGKILL


def test_a_verification_that_is_terminated_leaves_neither_process_nor_folder(config, tmp_path):
    (tmp_path / "sleeper.py").write_text(
        "import os, time\nfrom pathlib import Path\n"
        "Path('started.new').write_text(str(os.getpid()))\nPath('started.new').rename('started')\ntime.sleep(600)\n"
    )
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "sonosco_like", "verify-resume", "--config", str(config), "--import", "sleeper"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "started").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.terminate()
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 143, errors
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "started").read_text()), 0)
    assert list((tmp_path / "temporary").iterdir()) == []


def rows(folder, *content):
    folder.mkdir(exist_ok=True)
    blank = {"epoch": 0, "process": 1, "loss": "0x1p+0", "random": 1, "rates": [], "weights": {}}
    (folder / STEP_CHECKSUMS).write_text("".join(json.dumps({**blank, **row}) + "\n" for row in content) + '{"torn')
    return folder


def test_the_first_difference_is_the_earliest_step_of_any_start(tmp_path):
    whole = rows(tmp_path / "a", *({"step": step, "weights": {"w": step}} for step in (1, 2, 3)))
    redone = {"step": 2, "process": 2, "random": 5, "loss": "0x1p+1", "weights": {"w": 9}}
    killed = rows(tmp_path / "b", {"step": 1, "weights": {"w": 1}}, {"step": 2, "weights": {"w": 2}}, redone)
    found = first_difference(whole, killed)
    assert found == FirstDifference(2, 0, ("the loss", "the random generator", "the weights w"), False)
    assert first_difference(whole, whole) is None


def test_finals_and_rows_are_compared_but_for_the_clock(tmp_path):
    for name in ("a", "b"):
        trainer = make_trainer(max_duration="2ba")
        trainer.start_training()
        save(trainer, tmp_path / name / "final")
        (tmp_path / name / "metrics.jsonl").write_text(f'{{"step": 1, "seconds": {len(name)}, "loss": 2.0}}\n')
    assert [line for line in compare_runs(tmp_path / "a", tmp_path / "b") if "heard" not in line] == []
    (tmp_path / "b" / "metrics.jsonl").write_text('{"step": 1, "seconds": 3, "loss": 2.5}\n{"step": 2}\n')
    found = compare_runs(tmp_path / "a", tmp_path / "b")
    assert found == ["metrics.jsonl:1: step 1: loss: 2.0 -> 2.5", "metrics.jsonl: 1 rows -> 2 rows"]


@pytest.mark.parametrize(
    ("path", "clock"),
    [
        ("state.position.seconds", True),
        ("state['callbacks[1]'].row.seconds", True),
        ("batches_per_second", True),
        ("state['callbacks[3]'].sizes['events.out.tfevents.17.sonosco']", True),
        ("state['model'].state_dict.time_embedding", False),
        ("state['model'].state_dict['memory.time']", False),
        ("state['callbacks[2]'].seconds.LogMeasures", True),
        ("callback_seconds/LogMeasures", True),
        ("seconds_to_target", True),
        ("model.convolutions[0].time_kernel", False),
        ("state.epoch", False),
        ("val_loss", False),
    ],
)
def test_only_readings_of_the_clock_are_left_out(path, clock):
    assert is_clock(path) is clock


def test_there_is_one_row_of_checksums_per_batch(tmp_path):
    trainer = make_trainer(callbacks=[StepChecksums()], max_duration="3ba")
    trainer.experiment = type("Place", (), {"folder": tmp_path})()
    trainer.start_training()
    written = [json.loads(line) for line in (tmp_path / STEP_CHECKSUMS).read_text().splitlines()]
    assert [row["step"] for row in written] == [1, 2, 3]
    assert set(written[0]["weights"]) == set(trainer.model.state_dict())
    assert written[0]["weights"] != written[1]["weights"]
