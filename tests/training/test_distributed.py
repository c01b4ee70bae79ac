"""Several processes that train one model together, started by a real torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from distributed_parts import Plain, batch_of, uneven_batch
from tiny import squared_error
from torchruns import HERE, said_by, sonosco, start

from sonosco_like import diff, load
from sonosco_like.runs.remote_copy import RemoteCopy
from sonosco_like.training import seed_everything

CONFIG = """
class: Experiment
name: together
seed: 7
trainer:
  class: ModelTrainer
  model: {class: MODEL}
  loss: tiny.squared_error
  epochs: 3
  accumulate_gradients: 2
  train_data_loader: {class: distributed_parts.Shares}
  val_data_loader: {class: distributed_parts.Shares, batches: 2}
  optimizer: {class: SGD, lr: 0.05}
  callbacks:
  - {class: distributed_parts.Witness}FREEZE
  - {class: tiny.Gate, at: 6}
  - {class: ModelCheckpoint, every: 2ba, keep_last: 9}
"""


def train(
    folder: Path, model: str, freeze: str = "", changes: dict[str, str] | None = None, warm: bool = True
) -> subprocess.Popen:
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIG.replace("MODEL", model).replace("FREEZE", freeze)
    for old, new in (changes or {}).items():
        assert old in config
        config = config.replace(old, new)
    (folder / "config.yaml").write_text(config)
    return sonosco(folder, "train", "--config", "config.yaml", "--run-dir", "run", warm=warm)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run of two processes with a model that draws no random numbers."""
    folder = tmp_path_factory.mktemp("plain")
    said_by(train(folder, "distributed_parts.Plain"))
    return folder


def test_two_processes_learn_what_one_would_learn_from_all_their_batches(plain):
    expected = _of_one_large_batch(lambda epoch, number: batch_of(epoch, number, last=number >= 8), together=2)
    for rank in (0, 1):
        assert torch.allclose(torch.tensor(_seen(plain, 2, rank)["weights"]), expected, atol=1e-6)


@pytest.mark.parametrize("together", [1, 2])
def test_batches_of_two_processes_count_for_as_much_as_is_in_them(together, tmp_path):
    changes = {"accumulate_gradients: 2": f"accumulate_gradients: {together}", "parts.Shares}": "parts.Uneven}"}
    said_by(train(tmp_path, "distributed_parts.Plain", changes=changes))
    expected = _of_one_large_batch(uneven_batch, together)
    for rank in (0, 1):
        assert torch.allclose(torch.tensor(_seen(tmp_path, 2, rank)["weights"]), expected, atol=1e-5)


def _of_one_large_batch(batch, together):
    """The weights after three epochs in one process, for which the batches of a step, of both processes, are one."""
    seed_everything(7)
    model = Plain()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        for first in range(0, 5, together):
            positions = range(first, min(first + together, 5))
            parts = [batch(epoch, 2 * position + rank) for position in positions for rank in (0, 1)]
            inputs, targets = (torch.cat(each) for each in zip(*parts, strict=True))
            squared_error(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def test_measures_are_those_of_all_data_in_every_process(plain):
    seen = [_seen(plain, 1, rank) for rank in (0, 1)]
    assert seen[0]["measures"] == seen[1]["measures"]
    model = Plain()
    torch.nn.utils.vector_to_parameters(torch.tensor(seen[0]["weights"]), model.parameters())
    total, count = 0.0, 0
    for number in range(4):
        inputs, targets = batch_of(0, number, last=number >= 2)
        total, count = total + (model(inputs) - targets).square().sum().item(), count + len(inputs)
    assert seen[0]["measures"]["val_loss"] == pytest.approx(total / count, rel=1e-5)


def test_processes_draw_different_random_numbers(plain):
    assert _seen(plain, 0, 0)["drawn"] != _seen(plain, 0, 1)["drawn"]


def test_only_the_first_process_writes_the_run(plain):
    assert sorted(path.name for path in (plain / "run" / "checkpoints").iterdir()) == [
        f"step-{step:08d}" for step in (2, 4, 6, 8, 10, 12, 14, 15)
    ]


def test_a_run_of_two_processes_that_was_killed_goes_on_bit_exact(tmp_path):
    freeze = '\n  - {class: FreezeParameters, patterns: ["layers.3.*"], until: 4ba}'
    said_by(train(tmp_path / "whole", "tiny.Net", freeze=freeze))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.hold").touch()
    process = train(tmp_path / "broken", "tiny.Net", freeze=freeze, warm=False)
    while not (tmp_path / "broken" / "run" / "checkpoints" / "step-00000006").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    _kill(process)
    said_by(sonosco(tmp_path / "broken", "resume", "run"))
    found = [str(each) for each in diff(tmp_path / "whole" / "run" / "final", tmp_path / "broken" / "run" / "final")]
    assert [each for each in found if "seconds" not in each] == []
    for rank in (0, 1):
        assert _seen(tmp_path / "whole", 2, rank) == _seen(tmp_path / "broken", 2, rank)
    assert _seen(tmp_path / "whole", 2, 0)["weights"] == _seen(tmp_path / "whole", 2, 1)["weights"]  # what thawed too


def test_two_processes_resume_a_run_from_a_url_which_the_first_one_fetches(plain, tmp_path):
    url = (tmp_path / "remote").as_uri()
    with RemoteCopy(plain / "run", url):
        pass
    said_by(sonosco(tmp_path, "resume", url, "--run-dir", "here", "--set", "trainer.epochs=4"))
    assert load(tmp_path / "here" / "final").epoch == 4
    assert _seen(tmp_path, 3, 0)["weights"] == _seen(tmp_path, 3, 1)["weights"]


def test_processes_agree_on_the_folder_of_a_run_that_is_named_after_the_time(plain, tmp_path):
    (tmp_path / "config.yaml").write_text((plain / "config.yaml").read_text().replace("epochs: 3", "epochs: 1"))
    said_by(sonosco(tmp_path, "train", "--config", "config.yaml"))
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert _seen(tmp_path, 0, 0)["folder"] == _seen(tmp_path, 0, 1)["folder"]


def test_batch_normalisation_can_see_the_batches_of_all_processes_as_one(tmp_path):
    said_by(start(tmp_path, str(HERE / "distributed_normalization.py")))


def _kill(process: subprocess.Popen) -> None:
    """End torchrun and the processes it started, which are in sessions of their own and would outlive it."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (process.pid, *map(int, children)):
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def _seen(folder: Path, epoch: int, rank: int) -> dict:
    return json.loads((folder / f"epoch-{epoch}-rank-{rank}.json").read_text())
