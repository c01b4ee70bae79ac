"""Run folders: what is in them, how a run is interrupted, killed and continued. Real processes, real signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tiny import tiny_config
from warm import warm_python

from sonosco_like import diff, load
from sonosco_like.cli import run
from sonosco_like.errors import UsageError
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.runs.lock import only_process
from sonosco_like.training import Experiment, open_run, read_experiment

HERE = Path(__file__).parents[1]

CONFIG = tiny_config(
    """
  callbacks:
  - {class: tiny.Diary}
  - {class: tiny.Gate, at: 9}
  - {class: ModelCheckpoint, every: 3ba, keep_last: 2}
""",
    epochs=6,
)


@pytest.fixture
def config(tmp_path):
    """A config whose classes are in tiny.py, imported as a user's own module."""
    path = tmp_path / "tiny.yaml"
    path.write_text(CONFIG)
    return path


def sonosco(*arguments: object, cwd: Path, warm: bool = True, **options) -> subprocess.Popen:
    """Start a command; not warm if it is to be killed, or has a hash seed of its own."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", **options}
    python = warm_python() if warm else [sys.executable]
    command = [*python, "-m", "sonosco_like", *map(str, arguments), "--import", "tiny"]
    return subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process: subprocess.Popen) -> tuple[int, str]:
    out, err = process.communicate(timeout=600)
    return process.returncode, out + err


def wait_for(path: Path, process: subprocess.Popen) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def held_run(folder: Path, warm: bool = True) -> subprocess.Popen:
    """A run in the midst of the batch after step 9, where it stays until `run.hold` is gone."""
    (folder / "tiny.yaml").write_text(CONFIG)
    (folder / "run.hold").touch()
    process = sonosco("train", "--config", "tiny.yaml", "--run-dir", "run", cwd=folder, warm=warm)
    wait_for(folder / "run" / "checkpoints" / "step-00000009", process)
    return process


def differences(a: Path, b: Path) -> list[str]:
    """Where two checkpoints differ, the clock and what was heard on a second start aside."""
    found = diff(a, b)
    return [str(d) for d in found if "seconds" not in d.path and "heard" not in d.path]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The run that was never stopped."""
    folder = tmp_path_factory.mktemp("unbroken")
    (folder / "tiny.yaml").write_text(CONFIG)
    code, said = finished(sonosco("train", "--config", "tiny.yaml", "--run-dir", "run", cwd=folder))
    assert code == 0, said
    return folder / "run"


def test_a_run_folder_holds_what_the_contract_says(unbroken):
    names = {path.name for path in unbroken.iterdir()}
    assert {"config.yaml", "environment.yaml", "checkpoints", "latest", "final"} <= names
    assert [path.name for path in Checkpoints(unbroken).all()] == ["step-00000027", "step-00000030"]
    assert (unbroken / "latest").read_text() == "checkpoints/step-00000030\n"
    weights = [path / "tensors.safetensors" for path in (unbroken / "final", Checkpoints(unbroken).path_of(30))]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_saves_the_batch_under_way_and_the_run_goes_on_bit_exact(unbroken, tmp_path, number, code):
    process = held_run(tmp_path)
    process.send_signal(number)
    (tmp_path / "run.hold").unlink()
    returned, said = finished(process)
    assert returned == code, said
    assert "sonosco resume run" in said
    returned, said = finished(sonosco("resume", "run", cwd=tmp_path, warm=False, PYTHONHASHSEED="5"))
    assert returned == 0, said
    assert "resumed from step " in said
    assert differences(unbroken / "final", tmp_path / "run" / "final") == []


def test_a_killed_run_goes_on_bit_exact_also_elsewhere(unbroken, tmp_path):
    process = held_run(tmp_path, warm=False)
    process.kill()
    process.communicate()
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "run").rename(tmp_path / "elsewhere" / "moved")
    returned, said = finished(sonosco("resume", moved, cwd=tmp_path))
    assert returned == 0, said
    assert differences(unbroken / "final", moved / "final") == []


def test_a_second_process_is_refused(tmp_path):
    with only_process(tmp_path):
        code = (
            "from pathlib import Path\nfrom sonosco_like.runs.lock import only_process\n"
            f"with only_process(Path({str(tmp_path)!r})): pass"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"is in use by process {os.getpid()}" in done.stderr
    with only_process(tmp_path):
        assert (tmp_path / "lock").exists()


def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path, unbroken, caplog):
    folder = tmp_path / "run"
    folder.mkdir()
    checkpoints = Checkpoints(folder)
    for step in (27, 30):
        source = unbroken / "checkpoints" / f"step-{step:08d}"
        target = checkpoints.path_of(step)
        target.mkdir(parents=True)
        for path in source.iterdir():
            (target / path.name).write_bytes(path.read_bytes())
    (checkpoints.path_of(30) / "tensors.safetensors").write_bytes(b"torn")
    assert checkpoints.newest() == checkpoints.path_of(27)
    assert "step-00000030 is damaged and not used" in caplog.text


def test_pruning_keeps_the_last_ones_and_the_wanted(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3, 4):
        checkpoints.path_of(step).mkdir(parents=True)
    checkpoints.prune({checkpoints.path_of(1)}, last=1)
    assert [path.name for path in checkpoints.all()] == ["step-00000001", "step-00000004"]
    checkpoints.prune(set(), last=0)
    assert [path.name for path in checkpoints.all()] == ["step-00000004"]


def test_a_lost_or_torn_pointer_is_no_pointer(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.path_of(5).mkdir(parents=True)
    assert checkpoints.pointed("latest") is None
    checkpoints.point("latest", checkpoints.path_of(5))
    assert checkpoints.pointed("latest") == checkpoints.path_of(5)
    (tmp_path / "latest").write_bytes(b"checkpoints/step-0000")
    assert checkpoints.pointed("latest") is None


def test_a_folder_that_holds_a_run_is_not_touched_and_the_command_that_continues_it_is_named(unbroken):
    experiment, step = open_run(unbroken)
    assert step == 30
    with pytest.raises(UsageError, match="Continue it with: sonosco resume"):
        experiment.start(unbroken)


def test_weights_follow_from_the_seed_of_the_config(config, unbroken):
    first, second = read_experiment(config), read_experiment(config)
    other = read_experiment(config, ["seed=8"])
    assert diff(first.trainer.model, second.trainer.model) == []
    assert diff(first.trainer.model, other.trainer.model) != []
    assert isinstance(first, Experiment)


def test_the_resolved_config_is_a_config(unbroken):
    assert read_experiment(unbroken / "config.yaml").trainer.epochs == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "--config", "nowhere.yaml"], "There is no config file nowhere.yaml"),
        (["resume", "nowhere"], "nowhere is not a run folder"),
        (["train"], "Missing option '--config'"),
        (["train", "--config", "x.yaml", "--import", "no_such_module"], "--import no_such_module"),
    ],
)
def test_what_the_user_got_wrong_is_said_in_a_line(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    assert said in capsys.readouterr().err


def test_the_environment_is_written_down(unbroken):
    environment = yaml.safe_load((unbroken / "environment.yaml").read_text())
    assert environment["seed"] == 7
    assert "torch" in environment["packages"]
    assert environment["command"][1:4] == ["train", "--config", "tiny.yaml"]


def test_the_final_folder_can_be_loaded(unbroken):
    assert load(unbroken / "final").global_step == 30


def test_a_mistake_found_at_the_start_leaves_the_folder_to_the_corrected_config(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    wrong = CONFIG.replace("callbacks:\n", "callbacks:\n  - {class: FreezeParameters}\n")
    (tmp_path / "tiny.yaml").write_text(wrong)
    assert run(["train", "--config", "tiny.yaml", "--run-dir", "run"]) == 2
    said = capsys.readouterr().err
    assert "'encoder.*' fits no parameter" in said
    assert "resume" not in said
    (tmp_path / "tiny.yaml").write_text(wrong.replace("FreezeParameters", "FreezeParameters, patterns: [layers.0.*]"))
    assert run(["train", "--config", "tiny.yaml", "--run-dir", "run"]) == 0


def test_a_run_without_a_checkpoint_says_that_it_begins_again(tmp_path, caplog):
    config = tmp_path / "config.yaml"
    config.write_text(tiny_config("  callbacks: []"))
    experiment = read_experiment(config)
    experiment.trainer.max_duration = "1ba"
    experiment.start(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "final")
    open_run(tmp_path / "run")
    assert (
        "has no checkpoint yet: it starts again from its config.yaml, with weights drawn from its seed" in caplog.text
    )
