"""The end of a run: `final/` is the same wherever near it the run was killed, and stays as it is once it is there."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
import torch
from matrix_parts import KILL, config_text, make_corpus
from test_resume_matrix import points, resume, run_matrix, train

from sonosco_like import load
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.training.verification import compare_runs

HERE = Path(__file__).parent
LAST_STEP = 15  # of 3 epochs of 5 batches; a checkpoint is taken every 2 batches, so the last one is that of the end
CALLBACKS = """  - {class: matrix_parts.EndKiller, name: before, order: -10}
  - {class: CheckpointAverage, last: 3}
  - {class: matrix_parts.EndKiller, name: averaged, order: 10}
  - {class: ExportForInference}
  - {class: matrix_parts.EndKiller, name: exported, order: 2000}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A model with batch normalisation, an average of its weights, and the mean of the last three checkpoints."""
    corpus = tmp_path_factory.mktemp("noise")
    make_corpus(corpus)
    text = config_text(corpus, "deepspeech2") + CALLBACKS
    return text.replace("averaging: null", "averaging: {decay: 0.9}").replace("keep_last: 2", "keep_last: 4")


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """The run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "config.yaml").write_text(config)
    train(folder, 0)
    return folder / "run"


@pytest.fixture(scope="module")
def begun(config, tmp_path_factory):
    """A run that was killed one batch before its end."""
    folder = tmp_path_factory.mktemp("begun")
    (folder / "config.yaml").write_text(config)
    train(folder, -signal.SIGKILL, **{KILL: f"batch_end {LAST_STEP - 1}"})
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def assert_same_end(whole: Path, run: Path) -> None:
    assert compare_runs(whole, run) == []
    assert points(whole) == points(run)
    for place in ("final", "inference"):
        weights = [(each / place / "tensors.safetensors").read_bytes() for each in (whole, run)]
        assert weights[0] == weights[1], place
    names = [[path.name for path in Checkpoints(each).all()] for each in (whole, run)]
    assert names[0] == names[1] == [f"step-{step:08d}" for step in (10, 12, 14, 15)]
    for name in names[0]:
        kept = [(each / "checkpoints" / name / "tensors.safetensors").read_bytes() for each in (whole, run)]
        assert kept[0] == kept[1], name


def test_final_is_the_mean_of_the_weights_of_the_training_and_of_their_averages(whole):
    saved = [load(whole / "checkpoints" / f"step-{step:08d}") for step in (12, 14, 15)]
    final = load(whole / "final")
    for part, found in (("model", final.model.state_dict()), ("averaging", final.averaging.weights)):
        states = [each.model.state_dict() if part == "model" else each.averaging.weights for each in saved]
        for name, weight in found.items():
            floating = weight.is_floating_point()
            expected = sum(state[name].double() for state in states) / 3 if floating else states[-1][name]
            assert torch.equal(weight, expected.to(weight.dtype)), name
    assert not torch.equal(final.model.state_dict()["ctc_output.weight"], final.averaging.weights["ctc_output.weight"])


@pytest.mark.parametrize("place", ["before", "averaged", "exported"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_while_the_training_ends_changes_nothing(whole, begun, tmp_path, place, number):
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    code = -number if number == signal.SIGKILL else 128 + number
    resume(tmp_path, code, **{KILL: f"{place} {number:d}"})
    resume(tmp_path, 0)
    assert_same_end(whole, tmp_path / "run")


def test_a_kill_before_any_file_operation_of_the_end_changes_nothing(whole, begun, tmp_path):
    """Each of them: of the last checkpoint, of the pointers, of what is pruned, and of `final/`."""
    operation = code = 0
    while True:
        operation += 1
        folder = tmp_path / str(operation)
        shutil.copytree(begun, folder)
        code = run_matrix("resume", folder / "run", log=folder / "log.txt", **{KILL: f"save {operation} {LAST_STEP}"})
        if code == 0:
            break
        assert code == -signal.SIGKILL, (folder / "log.txt").read_text()
        resume(folder, 0)
        assert_same_end(whole, folder / "run")
        shutil.rmtree(folder)
    assert operation > 10


@pytest.mark.parametrize("times", [1, 3])
def test_to_resume_a_finished_run_changes_no_byte_of_what_it_came_to(whole, tmp_path, times):
    shutil.copytree(whole, tmp_path / "run")
    places = ("final", "checkpoints", "inference")
    before = [contents(tmp_path / "run" / place) for place in places]
    for _ in range(times):
        resume(tmp_path, 0)
    assert [contents(tmp_path / "run" / place) for place in places] == before
    assert points(tmp_path / "run") == points(whole)


def test_a_finished_run_goes_on_from_the_weights_of_its_training(whole, config, tmp_path):
    """It becomes the run that was asked for more epochs at once, but for the checkpoint at its first end."""
    shutil.copytree(whole, tmp_path / "short" / "run")
    resume(tmp_path / "short", 0, "--set", "trainer.epochs=5")
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "config.yaml").write_text(config.replace("epochs: 3", "epochs: 5"))
    train(tmp_path / "long", 0)
    last = [load(tmp_path / name / "run" / "checkpoints" / "step-00000025") for name in ("short", "long")]
    for name, weight in last[0].model.state_dict().items():
        assert torch.equal(weight, last[1].model.state_dict()[name]), name
    weights = [(tmp_path / name / "run" / "final" / "tensors.safetensors").read_bytes() for name in ("short", "long")]
    assert weights[0] == weights[1]


def test_an_interruption_near_the_end_adds_nothing_to_the_mean(whole, begun, tmp_path):
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    resume(tmp_path, 143, **{KILL: f"before {signal.SIGTERM:d}"})
    assert (tmp_path / "run" / "checkpoints" / f"step-{LAST_STEP:08d}").is_dir()
    assert not (tmp_path / "run" / "final").exists()
    resume(tmp_path, 0)
    assert_same_end(whole, tmp_path / "run")


def test_without_checkpoints_a_run_does_not_go_on_from_a_mean(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    before = contents(tmp_path / "run" / "final")
    command = ("resume", tmp_path / "run")
    assert run_matrix(*command, log=tmp_path / "log.txt") == 0
    assert run_matrix(*command, "--set", "trainer.epochs=5", log=tmp_path / "log.txt") == 2
    assert "cannot go on: the only weights that are left are the mean of step-" in (tmp_path / "log.txt").read_text()
    assert contents(tmp_path / "run" / "final") == before
