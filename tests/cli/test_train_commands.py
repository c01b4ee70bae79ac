"""`sonosco train` and `resume` as a user types them: changing things on the way, fine-tuning, what a folder holds."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest
import torch
import yaml
from tiny import Sums, tiny_config

from sonosco_like import load, serializable
from sonosco_like.cli import run
from sonosco_like.training.verification import compare_runs

CONFIG = tiny_config("""
  scheduler: {class: StepLR, step_size: 6, gamma: 0.5}
  callbacks:
  - {class: LogMeasures, every: 1ba}
  - {class: MetricsFile}
  - {class: ModelCheckpoint, every: 3ba, keep_last: 2}
""")
IMPORT = ["--import", "tiny"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, logging_restored):
    """A folder of its own with a config."""
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(run_dir: str, *arguments: str) -> int:
    return run(["train", "--config", "tiny.yaml", "--run-dir", run_dir, *IMPORT, *arguments])


def test_a_finished_run_goes_on_with_more_epochs_as_if_it_had_been_asked_for_them_at_once(folder, capsys):
    assert train("long", "--set", "trainer.epochs=4") == 0
    assert train("short") == 0
    assert (folder / "short" / "final").is_dir()
    assert run(["resume", "short", "--set", "trainer.epochs=4", *IMPORT]) == 0
    assert "resumed from step" in capsys.readouterr().out
    assert load(folder / "short" / "final").global_step == 20
    assert compare_runs(folder / "long", folder / "short") == []


def test_a_run_without_checkpoints_goes_on_from_its_end(folder):
    none = ["--set", "trainer.callbacks=[]"]
    assert train("long", "--set", "trainer.epochs=4", *none) == 0
    assert train("short", *none) == 0
    assert run(["resume", "short", "--set", "trainer.epochs=4", *IMPORT]) == 0
    assert compare_runs(folder / "long", folder / "short") == []


@pytest.mark.parametrize("callbacks", [[], ["--set", "trainer.callbacks=[]"]], ids=["earlier-checkpoint", "final"])
def test_a_finished_run_says_so_when_it_is_resumed_and_how_it_goes_on(folder, capsys, callbacks):
    assert train("run", *callbacks) == 0
    assert run(["resume", "run", *IMPORT]) == 0
    said = capsys.readouterr().out
    assert "resumed from step" in said
    assert "This run was finished already: 2 of 2 epochs are done." in said
    command = said.partition("To train it further: sonosco ")[2].splitlines()[0]
    assert run([*command.split(), *IMPORT]) == 0
    assert "finished already" not in capsys.readouterr().out
    assert load(folder / "run" / "final").global_step == 20


def test_a_run_at_the_end_of_its_time_says_so_when_it_is_resumed(capsys):
    assert train("run", "--set", "trainer.max_duration=7ba", "--set", "trainer.callbacks=[]") == 0
    assert run(["resume", "run", *IMPORT]) == 0
    said = capsys.readouterr().out
    assert "finished already: its `max_duration` of 7ba is reached. To train it further: sonosco resume " in said
    assert "--set trainer.max_duration=..." in said


def test_a_run_that_is_not_at_its_end_does_not_say_so(folder, capsys):
    assert train("run", "--set", "trainer.max_duration=7ba", "--set", "trainer.callbacks=[]") == 0
    assert run(["resume", "run", "--set", "trainer.max_duration=9ba", *IMPORT]) == 0
    assert "finished already" not in capsys.readouterr().out


def test_a_run_that_is_here_is_not_fetched_to_another_place(folder, capsys):
    assert train("run") == 0
    assert run(["resume", "run", "--run-dir", "elsewhere", *IMPORT]) == 2
    assert "--run-dir is only for a remote run, but run is not a URL. Leave out --run-dir." in capsys.readouterr().err
    assert not (folder / "elsewhere").exists()


def test_a_changed_rate_is_recorded_and_used(folder):
    assert train("run") == 0
    assert run(["resume", "run", "--set", "trainer.epochs=3", "--set", "trainer.optimizer.lr=0.001", *IMPORT]) == 0
    (entry,) = yaml.safe_load((folder / "run" / "changes.yaml").read_text())
    assert entry["changed"]["trainer.optimizer.lr"] == {"from": "0.01", "to": "0.001"}
    trainer = load(folder / "run" / "final")
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.001 * 0.5**2)


def test_what_may_not_change_is_refused_in_words(capsys):
    assert train("run") == 0
    assert run(["resume", "run", "--set", "trainer.model.size=5", "--set", "seed=1", *IMPORT]) == 2
    assert "cannot change when a run is resumed" in capsys.readouterr().err


def test_the_same_command_again_continues_a_run_with_resume_auto(folder, capsys):
    settings = ["--resume", "auto", "--set", "trainer.model.size=4", "--set", "seed=7"]
    assert train("run", *settings) == 0
    assert train("run", *settings) == 0
    assert "resumed from step" in capsys.readouterr().out
    assert not (folder / "run" / "changes.yaml").exists()
    assert train("run", *settings, "--set", "seed=8") == 2


def test_fine_tuning_begins_with_the_weights_of_a_run_and_only_then(folder, caplog):
    caplog.set_level(logging.INFO)
    assert train("first") == 0
    source = load(folder / "first" / "final").model.state_dict()
    still = ["--set", "trainer.optimizer.lr=0.0", "--set", "trainer.optimizer.weight_decay=0.0"]
    assert train("second", "--set", "init_from=first", "--set", "seed=99", *still) == 0
    tuned = load(folder / "second" / "final").model.state_dict()
    assert torch.equal(tuned["layers.0.weight"], source["layers.0.weight"])
    assert train("third", "--set", "init_from={run: first, leave_out: ['layers.3.*']}", *still) == 0
    log = next((folder / "third" / "logs").iterdir()).read_text()
    assert "init_from: 7 of 9 weights taken from" in log
    assert "2 left out as asked: layers.3.weight, layers.3.bias" in log
    assert run(["resume", "third", "--set", "trainer.epochs=3", "--set", "trainer.optimizer.lr=0.1", *IMPORT]) == 0
    logs = [path.read_text() for path in (folder / "third" / "logs").iterdir()]
    assert sum("init_from:" in text for text in logs) == 1


def test_a_run_folder_holds_code_logs_status_and_environment(folder):
    assert train("run") == 0
    run_dir = folder / "run"
    assert (run_dir / "code" / "tiny.py").read_text().startswith('"""A tiny model')
    assert yaml.safe_load((run_dir / "status.yaml").read_text())["state"] == "finished"
    environment = yaml.safe_load((run_dir / "environment.yaml").read_text())
    assert environment["started"]
    assert environment["machine"]["host"]
    assert len(list((run_dir / "logs").glob("*.log"))) == 1


def test_a_run_that_fails_says_so_in_its_folder(folder, capsys):
    too_short = "trainer.scheduler={class: OneCycleLR, max_lr: 0.1, total_steps: 4}"
    assert train("run", "--set", too_short) == 1
    assert "Continue with: sonosco resume" in capsys.readouterr().err
    status = yaml.safe_load((folder / "run" / "status.yaml").read_text())
    assert status["state"] == "failed"
    assert "Tried to step" in status["reason"]
    assert "Traceback" in next((folder / "run" / "logs").iterdir()).read_text()


def test_runs_that_begin_in_one_second_have_folders_of_their_own(folder, monkeypatch):
    monkeypatch.setattr("sonosco_like.cli.train.time", SimpleNamespace(strftime=lambda form: "2026-01-31_12-00-00"))
    for _ in range(3):
        assert run(["train", "--config", "tiny.yaml", *IMPORT, "--set", "trainer.epochs=1"]) == 0
    named = "2026-01-31_12-00-00_tiny"
    assert sorted(path.name for path in (folder / "runs").iterdir()) == [named, f"{named}_2", f"{named}_3"]


@pytest.mark.parametrize("run_dir", ["tiny.yaml/run", "/proc/nowhere/run"])
def test_a_run_folder_that_cannot_be_written_is_refused_before_the_corpus_is_generated(folder, capsys, run_dir):
    corpus = "corpus: {class: SyntheticCorpus, folder: spoken, minutes: 1}"
    (folder / "tiny.yaml").write_text(f"{corpus}\n{CONFIG}")
    assert train(run_dir) == 2
    assert "config.yaml cannot be written" in capsys.readouterr().err
    assert not (folder / "spoken").exists()


@serializable
class SizedSums(Sums):
    """The same batches, and how many they are, as a schedule in shares of the training needs it."""

    def __len__(self) -> int:
        return self.batches


def rates_in(run_dir) -> list[float]:
    """After each step, the learning rate of the next one."""
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [row["learning_rate"] for row in rows if "learning_rate" in row]


def rates_after(steps: range, *, final: float, warmup: int, total: int) -> list[float]:
    """The rates of `WarmupHoldDecay` after so many steps, by its formula."""
    down = [1 - (1 - final) * min(1, (step - warmup) / (total - warmup)) for step in steps]
    return [0.01 * ((step + 1) / warmup if step < warmup else down[at]) for at, step in enumerate(steps)]


@pytest.mark.parametrize(
    ("changes", "rates", "said"),
    [
        (
            [],
            rates_after(range(11, 21), final=0.1, warmup=4, total=20),
            "The length of the training changed, so WarmupHoldDecay goes on as if it had had its new length from the "
            "beginning. Steps: warmup 0.2dur = 2 -> 4, total 1dur = 10 -> 20.",
        ),
        (
            ["final=0.5", "total=15", "warmup=3"],
            rates_after(range(11, 21), final=0.5, warmup=3, total=15),
            "changed from step 10 on: trainer.scheduler.final: 0.1 -> 0.5",
        ),
    ],
    ids=["more-epochs", "another-schedule"],
)
def test_a_run_that_is_continued_for_longer_has_the_rates_of_its_schedule(folder, caplog, changes, rates, said):
    caplog.set_level("INFO")
    schedule = "{class: WarmupHoldDecay, warmup: 0.2dur, total: 1dur, final: 0.1}"
    changed = {
        "{class: StepLR, step_size: 6, gamma: 0.5}": schedule,
        "train_data_loader: {class: tiny.Sums}": f"train_data_loader: {{class: {__name__}.SizedSums}}",
        "- {class: MetricsFile}": "- {class: MetricsFile}\n  - {class: LRMonitor, every: 1ba}",
    }
    config = CONFIG
    for old, new in changed.items():
        config = config.replace(old, new)
    (folder / "tiny.yaml").write_text(config)
    assert train("run") == 0
    settings = [part for change in changes for part in ("--set", f"trainer.scheduler.{change}")]
    assert run(["resume", "run", "--set", "trainer.epochs=4", *settings, *IMPORT]) == 0
    assert said in caplog.text
    first = rates_after(range(1, 11), final=0.1, warmup=2, total=10)
    assert rates_in(folder / "run") == pytest.approx([*first, *rates])
