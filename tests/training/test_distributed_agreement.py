"""A stop or a failure in one of several processes is one of all; parameters that a batch does not use do no harm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from distributed_parts import Heads, task_of
from tiny import squared_error
from torchruns import HERE, said_by, sonosco, start

from sonosco_like import diff, load
from sonosco_like.training import seed_everything

CONFIG = """
class: Experiment
name: together
seed: 7
trainer:
  class: ModelTrainer
  model: {class: tiny.Net}
  loss: tiny.squared_error
  epochs: 2
  accumulate_gradients: 2
  averaging: {class: WeightAverage, decay: 0.9}
  test_step: 4
  train_data_loader: {class: distributed_parts.Shares}
  val_data_loader: {class: distributed_parts.Shares, batches: 2}
  optimizer: {class: AdamW, lr: 0.05}
  callbacks:
  - {class: distributed_parts.Witness}
  - {class: distributed_parts.Trip, at: 6, ranks: [1]}
  - {class: ModelCheckpoint, every: 4ba, keep_last: 9}
"""


def write(folder: Path, config: str = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(config)
    return folder


def train(folder: Path, code: int = 0, processes: int = 2) -> str:
    return said_by(sonosco(folder, "train", "--config", "config.yaml", "--run-dir", "run", processes=processes), code)


def differences(one: Path, other: Path) -> list[str]:
    found = [str(each) for each in diff(one / "run" / "final", other / "run" / "final")]
    return [each for each in found if "seconds" not in each]


def seen(folder: Path, rank: int) -> dict:
    return json.loads((folder / f"epoch-1-rank-{rank}.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An unbroken run of two processes, with batch normalisation, dropout and averaged weights."""
    folder = write(tmp_path_factory.mktemp("whole"))
    train(folder)
    return folder


def test_stops_and_failures_at_any_event_of_one_process_are_those_of_all(tmp_path):
    said_by(start(tmp_path, str(HERE / "distributed_stops.py"), "0", "1"))


def test_a_failed_batch_of_one_process_leaves_the_last_good_one_and_goes_on_bit_exact(whole, tmp_path):
    broken = write(tmp_path / "broken")
    (broken / "trip").touch()
    said = train(broken, code=1)
    assert "The run failed at step 6: Process 1 failed: Trip failed at forward_end: ValueError: the dog barks" in said
    assert (broken / "run" / "checkpoints" / "step-00000006").is_dir()
    (broken / "trip").unlink()
    assert "resumed from step 6" in said_by(sonosco(broken, "resume", "run"))
    assert differences(whole, broken) == []
    for rank in (0, 1):
        assert seen(whole, rank) == seen(broken, rank)
    assert "val_ema_loss" in seen(whole, 0)["measures"]
    assert seen(whole, 0)["measures"] == seen(whole, 1)["measures"]


def test_a_signal_to_one_process_interrupts_all(whole, tmp_path):
    folder = write(tmp_path / "broken", CONFIG.replace("at: 6", "at: 6, how: interrupt"))
    (folder / "trip").touch()
    said = train(folder, code=1)  # torchrun's own word for processes that end with 143
    assert "interrupted by SIGTERM" in said
    assert (folder / "run" / "checkpoints" / "step-00000007").is_dir()
    assert not (folder / "run" / "final").exists()
    (folder / "trip").unlink()
    said_by(sonosco(folder, "resume", "run"))
    assert [each for each in differences(whole, folder) if "how" not in each] == []


def test_a_shipped_callback_that_stops_in_the_first_process_ends_all_well(tmp_path):
    stopping = "  - {class: BenchmarkLog, monitor: val_loss, target: 1000.0, stop: true}\n"
    folder = write(tmp_path, CONFIG + stopping)
    said = train(folder)
    assert "done: run" in said
    assert load(folder / "run" / "final").global_step == 4


def test_a_time_limit_that_one_process_reaches_ends_all_at_the_same_batch(tmp_path):
    config = CONFIG.replace("  epochs: 2\n", "  epochs: 2\n  max_duration: 90min\n").replace("at: 6,", "at: 99,")
    folder = write(tmp_path, config + "  - {class: distributed_parts.ClockAhead, at: 3, ranks: [1]}\n")
    said = train(folder)
    assert "max_duration 90min is reached" in said
    assert load(folder / "run" / "final").global_step == 3


def test_parameters_that_only_some_batches_of_some_processes_use_learn_as_in_one_process(tmp_path):
    config = CONFIG.replace("tiny.Net", "distributed_parts.Heads").replace("Shares", "Tasks")
    freeze = '  - {class: FreezeParameters, patterns: ["heads.2.*"], until: 4ba}\n'
    folder = write(tmp_path, config.replace("AdamW, lr: 0.05", "SGD, lr: 0.05") + freeze)
    train(folder)
    expected = _heads_of_one_process()
    for rank in (0, 1):
        assert torch.allclose(torch.tensor(seen(folder, rank)["weights"]), expected, atol=1e-6)


def _heads_of_one_process() -> torch.Tensor:
    """What one process learns of the two batches of two processes and two steps taken as one."""
    seed_everything(7)
    model = Heads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    done = 0
    for epoch in range(2):
        for first in (0, 2, 4):
            positions = [position for position in (first, first + 1) if position < 5]
            batches = []
            for position in positions:
                model.heads[2].requires_grad_(done >= 4)
                batches += [(*task_of(epoch, 2 * position + rank), done >= 4) for rank in (0, 1)]
                done += 1
            total = sum(len(inputs) for inputs, _, _ in batches)
            for inputs, targets, thawed in batches:
                model.heads[2].requires_grad_(thawed)
                (squared_error(model(inputs), targets) * len(inputs) / total).backward()
            optimizer.step()
            optimizer.zero_grad()
    return torch.cat([each.detach().flatten() for each in model.parameters()])


@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2)])
def test_another_number_of_processes_says_so_in_the_log_of_the_run(tmp_path, first, second):
    folder = write(tmp_path)
    (folder / "trip").touch()
    config = (folder / "config.yaml").read_text().replace("ranks: [1]", "ranks: [0, 1]")
    (folder / "config.yaml").write_text(config)
    train(folder, code=1, processes=first)
    (folder / "trip").unlink()
    said_by(sonosco(folder, "resume", "run", processes=second))
    logs = "".join(path.read_text() for path in sorted((folder / "run" / "logs").iterdir()))
    assert f"This was saved by {first} processes and is continued by {second}" in logs
