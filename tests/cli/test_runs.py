"""`sonosco runs`: what became of each run, and its scores, best and last."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import time

import pytest
from tiny import make_trainer, tiny_config

from sonosco_like.callbacks import MetricsFile
from sonosco_like.callbacks.monitors import LogMeasures
from sonosco_like.cli import run
from sonosco_like.runs.journal import journal
from sonosco_like.runs.lock import only_process
from sonosco_like.runs.run_table import find_runs, read_run


class Place:
    """Enough of an experiment for callbacks that write into its folder."""

    def __init__(self, folder):
        self.folder = folder


def make_run(folder, name="tiny", ending="finished"):
    """A run that was really trained, and ended in one way or another."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"class: Experiment\nname: {name}\ntrainer: {{}}\n")
    trainer = make_trainer(callbacks=[LogMeasures(every="5ba"), MetricsFile()])
    trainer.experiment = Place(folder)
    (folder / "checkpoints" / "step-00000015").mkdir(parents=True)
    try:
        with only_process(folder), journal(folder, trainer, {}) as entry:
            trainer.start_training()
            entry.interrupted_by = 15 if ending == "interrupted" else 0
            if ending == "failed":
                raise RuntimeError("no more memory")
    except RuntimeError:
        pass
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three runs, one of them in a folder of its own."""
    runs = tmp_path_factory.mktemp("all")
    for age, (name, ending) in enumerate({"a": "finished", "deep/b": "interrupted", "c": "failed"}.items()):
        make_run(runs / name, f"run-{name[-1]}", ending)
        os.utime(runs / name / "config.yaml", (time.time() - age * 100,) * 2)
    (runs / "no_run").mkdir()
    return runs


def listed(capsys, *arguments):
    assert run(["runs", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_run_is_listed_with_its_state_the_newest_first(folder, capsys):
    rows = listed(capsys, folder)
    assert [(row["name"], row["state"]) for row in rows] == [
        ("run-a", "finished"), ("run-b", "interrupted"), ("run-c", "failed"),
    ]  # fmt: skip
    assert rows[2]["reason"] == "RuntimeError: no more memory"
    assert {row["step"] for row in rows} == {20}
    assert {row["epoch"] for row in rows} == {3}


def test_scores_are_the_last_and_the_best_of_the_file_of_metrics(folder, capsys):
    lines = [json.loads(line) for line in (folder / "a" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["val_loss"] for line in lines if "val_loss" in line]
    row = listed(capsys, folder / "a")[0]
    assert row["last"] == {"val_loss": losses[-1]}
    assert row["best"] == {"val_loss": min(losses)}


def test_the_best_value_follows_the_declared_direction(tmp_path):
    folder = make_run(tmp_path / "x")
    rows = [{"step": step, "epoch": 0, "val_accuracy": value} for step, value in ((1, 0.5), (2, 0.9), (3, 0.7))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "status.yaml").write_text("state: finished\nlower_is_better: {accuracy: false}\n")
    assert find_runs(tmp_path)[0].best == {"val_accuracy": 0.9}
    (folder / "status.yaml").write_text("state: finished\n")
    assert find_runs(tmp_path)[0].best == {}


def test_a_run_whose_lock_is_held_is_running_and_a_killed_one_is_not(tmp_path):
    folder = make_run(tmp_path / "x")
    (folder / "status.yaml").write_text("state: running\n")
    assert find_runs(tmp_path)[0].state == "interrupted"
    with only_process(folder):
        assert find_runs(tmp_path)[0].state == "running"
    assert find_runs(tmp_path)[0].state == "interrupted"


def test_where_the_system_tells_no_locks_the_owner_of_the_lock_is_looked_for(tmp_path):
    folder = make_run(tmp_path / "x")
    (folder / "status.yaml").write_text("state: running\n")
    (folder / "lock").write_text(f"{os.getpid()}\n")
    assert read_run(folder, None).state == "running"
    (folder / "lock").write_text("torn")
    assert read_run(folder, None).state == "interrupted"


def test_torn_and_missing_files_leave_their_columns_empty(tmp_path):
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "config.yaml").write_text("name: [")
    (folder / "status.yaml").write_text("{")
    (folder / "metrics.jsonl").write_bytes(b'{"step": 1, "epoch": 0, "val_loss": "NaN"}\n{"step": 2, "val_lo')
    (found,) = find_runs(tmp_path)
    assert (found.name, found.state, found.best) == ("x", "interrupted", {})


def test_the_table_is_plain_text_where_there_is_no_terminal(folder, capsys):
    assert run(["runs", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:5] == ["run", "name", "state", "started", "age"]
    assert "val_loss best / last" in lines[0]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["a", "run-a", "finished"], ["b", "run-b", "interrupted"], ["c", "run-c", "failed"],
    ]  # fmt: skip


def test_epochs_are_counted_as_the_progress_bar_counts_them(folder, capsys):
    assert run(["runs", str(folder)]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    place = header.index("epoch")
    assert [line[place:].split()[0] for line in lines] == ["4/4"] * 3
    assert {row["epochs"] for row in listed(capsys, folder)} == {4}


@pytest.mark.parametrize(
    ("status", "validated", "shown"),
    [
        ("{state: finished, epoch: 1, epochs: 1}", None, "1/1"),
        ("{state: finished, epoch: 2, epochs: 9}", 1, "2/9"),
        ("{state: interrupted, epoch: 2, epochs: 9}", 1, "3/9"),
        ("{state: running, epoch: 0, epochs: 9}", 4, "5/9"),
        ("{state: interrupted, epoch: 9, epochs: 9}", None, "9/9"),
        ("{state: interrupted, epoch: 2}", None, "3"),
    ],
    ids=["no-validation", "stopped-early", "further-than-validated", "killed", "at-its-end", "unknown-number"],
)
def test_the_epoch_is_the_one_under_way_or_the_last_one(tmp_path, capsys, status, validated, shown):
    (tmp_path / "config.yaml").write_text("class: Experiment\nname: x\n")
    (tmp_path / "status.yaml").write_text(f"{status}\n")
    if validated is not None:
        (tmp_path / "metrics.jsonl").write_text(json.dumps({"epoch": validated, "val_loss": 1.0}) + "\n")
    assert run(["runs", str(tmp_path)]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert line[header.index("epoch") :].split()[0] == shown


def everything_from(terminal: int) -> str:
    """What was written to a terminal until nobody had it open any more, however little fits into it at once."""
    content = b""
    with contextlib.suppress(OSError):  # Linux reports the end as an error
        while part := os.read(terminal, 4096):
            content += part
    os.close(terminal)
    return content.decode()


def test_on_a_terminal_it_is_a_table_with_colours(folder):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sonosco_like", "runs", str(folder)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    with subprocess.Popen(command, stdout=theirs, env=environment, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        shown = everything_from(ours)
        assert process.stderr.read() == b""
    assert "\x1b[33minterrupted" in shown
    assert "\x1b[31mfailed" in shown


def test_runs_can_be_sorted_by_what_they_scored(folder, capsys):
    by_name = listed(capsys, folder, "--sort", "name")
    assert [row["name"] for row in by_name] == ["run-a", "run-b", "run-c"]
    scores = [row["best"]["val_loss"] for row in listed(capsys, folder, "--sort", "val_loss")]
    assert scores == sorted(scores)
    assert run(["runs", str(folder), "--sort", "val_los"]) == 2
    assert "did you mean 'val_loss'" in capsys.readouterr().err


def test_a_folder_without_runs_and_no_folder_are_told_apart(tmp_path, capsys):
    assert run(["runs", str(tmp_path)]) == 0
    assert "There is no run in" in capsys.readouterr().out
    assert run(["runs", str(tmp_path / "nowhere")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_hundreds_of_runs_are_listed_without_torch(folder, tmp_path, run_python):
    for number in range(300):
        (tmp_path / f"run{number}").mkdir()
        for name in ("config.yaml", "status.yaml", "metrics.jsonl"):
            (tmp_path / f"run{number}" / name).write_bytes((folder / "a" / name).read_bytes())
    code = (
        "import sys\nfrom sonosco_like.cli import run\n"
        f"code = run(['runs', {str(tmp_path)!r}])\nprint(code, 'torch' in sys.modules)"
    )
    done = run_python(code)
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr
    assert len(done.stdout.splitlines()) == 302


def test_a_folder_of_a_strangers_can_at_worst_have_empty_columns(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "status.yaml").write_text("[" * 200_000)
    (folder / "environment.yaml").write_text("started: !!python/object/apply:os.getcwd []\n")
    (folder / "config.yaml").write_text(f"class: Experiment\nname: {'[' * 4000}\n")
    huge = "1" + "0" * 400
    rows = [
        "[" * 100_000 + '"val_loss"',
        '["val_loss"]',
        f'{{"epoch": {huge}, "val_loss": {huge}}}',
        '{"val_loss": 2.0}',
    ]
    (folder / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    found = read_run(folder, held=set())
    assert (found.name, found.step, found.epoch, found.best) == ("run", 15, None, {"val_loss": 2.0})


def test_a_folder_that_may_not_be_looked_into_is_passed_over(tmp_path, monkeypatch):
    make_run(tmp_path / "run")
    (tmp_path / "secret").mkdir()
    scandir = os.scandir

    def refusing(folder):
        if folder == tmp_path / "secret":  # as for anybody but root
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    assert [found.name for found in find_runs(tmp_path)] == ["tiny"]


def test_a_run_differs_from_its_config_only_in_what_was_set_for_it(tmp_path, monkeypatch, capsys, logging_restored):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(tiny_config(""))
    train = ["train", "--config", "tiny.yaml", "--run-dir", "run", "--import", "tiny"]
    assert run([*train, "--set", "trainer.epochs=1"]) == 0
    capsys.readouterr()
    assert run(["diff", "tiny.yaml", "run", "--import", "tiny"]) == 1
    assert capsys.readouterr().out == "trainer.epochs: the number 2 -> the number 1\n"
    (tmp_path / "other.yaml").write_text(tiny_config("").replace("tiny.Net", "unknown.Net"))
    assert run(["diff", "other.yaml", "run"]) == 1
    shown = capsys.readouterr()
    assert "compared as they are written" in shown.err
    assert "there is no class 'unknown.Net'" in shown.err
    assert "trainer.model.class: 'unknown.Net' -> 'tiny.Net'" in shown.out
