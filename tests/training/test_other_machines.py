"""A run that goes on with other threads, another torch or another processor says that its bits are others."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest
import torch
from tiny import make_trainer

from sonosco_like.callbacks import ModelCheckpoint
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.training import Experiment, open_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    Experiment(name="tiny", trainer=make_trainer(callbacks=[ModelCheckpoint()])).start(folder)
    return folder


@pytest.fixture
def run(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def rewritten(checkpoint: Path, pattern: str, by: str) -> None:
    path = checkpoint / "state.yaml"
    body = path.read_text().rpartition("sha256: ")[0]
    changed = re.sub(pattern, by, body, count=1, flags=re.MULTILINE)
    assert changed != body
    path.write_text(f"{changed}sha256: {hashlib.sha256(changed.encode()).hexdigest()}\n")


def resumed(run: Path) -> str:
    """Resume, and give what the log of this start says."""
    before = set((run / "logs").iterdir())
    open_run(run, ["trainer.epochs=5"])[0].resume()
    (log,) = set((run / "logs").iterdir()) - before
    return log.read_text()


def test_nothing_is_said_where_nothing_changed(run):
    assert "differs" not in resumed(run)


def test_another_number_of_threads_is_said_with_the_way_to_get_the_same(run, caplog):
    now = torch.get_num_threads()
    torch.set_num_threads(now + 2)
    try:
        log = resumed(run)
    finally:
        torch.set_num_threads(now)
    said = f"The number of torch's threads differs: {now} until now, {now + 2} from here on."
    assert said in log
    assert caplog.text.count(said) == 1
    assert f"OMP_NUM_THREADS={now} sonosco resume {run}" in log


@pytest.mark.parametrize(
    ("pattern", "by", "said"),
    [
        (r"    torch: .*", "    torch: '1.0.0'", "pip install 'torch==1.0.0'"),
        (r"    processor: .*", "    processor: Abacus", "resume on a machine with this one: Abacus"),
    ],
)
def test_another_torch_and_another_processor_are_said(run, pattern, by, said):
    rewritten(Checkpoints(run).newest(), pattern, by)
    assert said in resumed(run)


def test_once_a_checkpoint_was_taken_here_nothing_is_said_any_more(run):
    rewritten(Checkpoints(run).newest(), r"    torch: .*", "    torch: '1.0.0'")
    assert "differs" in resumed(run)
    open_run(run, ["trainer.epochs=6"])[0].resume()
    assert "differs" not in max((run / "logs").iterdir(), key=lambda path: path.stat().st_mtime_ns).read_text()


def test_of_a_checkpoint_that_does_not_say_it_the_environment_of_the_start_does(run):
    for path in Checkpoints(run).all():
        rewritten(path, r"^origin:\n(  .*\n)+", "")
    text = (run / "environment.yaml").read_text()
    (run / "environment.yaml").write_text(re.sub(r"( +)threads: \d+", r"\1threads: 77", text))
    assert "The number of torch's threads differs: 77 until now" in resumed(run)
