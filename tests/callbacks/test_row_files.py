"""MetricsFile and CsvFile: one row per step, and after a resume the file of a run that was never stopped."""

from __future__ import annotations

import csv
import io
import json
from types import SimpleNamespace

import pytest
import torch
from killing import run_until_killed
from tiny import SaveAt
from tiny_speech import speech_trainer

from sonosco_like.callbacks import CsvFile, MetricsFile
from sonosco_like.callbacks.monitors import LogMeasures
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback
from sonosco_like.serialization import load, serializable

CLOCK = "seconds"


@serializable
class LogOnce(AbstractCallback):
    """Logs one more value at one step: a column that comes late."""

    at: int = 5
    name: str = "extra"

    def on_batch_end(self, moment):
        if moment.context.global_step == self.at:
            moment.context.log({self.name: torch.tensor(0.5)})


def run(*callbacks, **fields):
    trainer = speech_trainer(*callbacks, **fields)
    trainer.start_training()
    return trainer


def json_rows(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != CLOCK} for row in rows]


def csv_rows(path):
    delimiter = "\t" if path.suffix == ".tsv" else ","
    lines = list(csv.reader(io.StringIO(path.read_text()), delimiter=delimiter))
    clock = lines[0].index(CLOCK)
    return [line[:clock] + line[clock + 1 :] for line in lines]


def test_metrics_file_has_one_row_per_logged_step_with_everything_logged_at_it(tmp_path):
    trainer = run(LogMeasures(every="3ba"), MetricsFile(folder=tmp_path))
    rows = json_rows(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [2, 3, 4, 6, 8, 9, 10, 12]
    assert [row["epoch"] for row in rows] == [0, 0, 0, 1, 1, 2, 2, 2]
    measures = dict(trainer.performance_measures)
    assert {name: rows[-1][name] for name in measures} == measures
    assert "val_loss" not in rows[1]


def test_a_row_can_be_read_as_soon_as_it_is_logged(tmp_path):
    seen = []

    def look(epoch, step, performance_measures, context):
        seen.append(len(json_rows(tmp_path / "metrics.jsonl")))

    run(LogMeasures(every="1ba"), MetricsFile(folder=tmp_path), look)
    assert seen == list(range(1, 13))


@pytest.mark.parametrize("at", [1, 3, 4, 5, 8, 12])
def test_after_a_resume_the_files_are_those_of_the_unbroken_run(at, tmp_path):
    destinations = [MetricsFile(folder=tmp_path)]
    destinations += [CsvFile(folder=tmp_path, path=path) for path in ("metrics.csv", "metrics.tsv")]

    def files():
        return json_rows(tmp_path / "metrics.jsonl"), *(csv_rows(tmp_path / f"metrics.{end}") for end in ("csv", "tsv"))

    saving = SaveAt(at=at, path=tmp_path / "checkpoint")
    run(LogMeasures(every="3ba"), LogOnce(), *destinations, saving)
    unbroken = files()
    load(tmp_path / "checkpoint").continue_training()
    assert files() == unbroken


def test_a_file_survives_a_kill_and_a_torn_row(tmp_path):
    callbacks = 'LogMeasures(every="1ba"), MetricsFile(folder=folder), CsvFile(folder=folder)'
    checkpoint = run_until_killed(tmp_path, callbacks, saved_at=6, killed_at=9)
    jsonl, table = tmp_path / "metrics.jsonl", tmp_path / "metrics.csv"
    assert [row["step"] for row in json_rows(jsonl)] == list(range(1, 10))
    for path in (jsonl, table):
        path.write_bytes(path.read_bytes()[:-7])
    load(checkpoint).continue_training()
    whole = tmp_path / "whole"
    run(LogMeasures(every="1ba"), MetricsFile(folder=whole), CsvFile(folder=whole))
    assert json_rows(jsonl) == json_rows(whole / "metrics.jsonl")
    assert csv_rows(table) == csv_rows(whole / "metrics.csv")


def test_a_fresh_run_begins_a_fresh_file(tmp_path):
    for _ in range(2):
        run(LogMeasures(), MetricsFile(folder=tmp_path), CsvFile(folder=tmp_path))
    assert [row["step"] for row in json_rows(tmp_path / "metrics.jsonl")] == [2, 4, 6, 8, 10, 12]
    assert [row[0] for row in csv_rows(tmp_path / "metrics.csv")] == ["step", "2", "4", "6", "8", "10", "12"]


def test_numbers_json_does_not_know_are_texts(tmp_path):
    def log(epoch, step, performance_measures, context):
        context.log({"a": float("nan"), "b": float("inf"), "c": -float("inf"), "d": "text ü", "e": torch.ones(3)})

    run(log, MetricsFile(folder=tmp_path), epochs=1)
    row = json_rows(tmp_path / "metrics.jsonl")[0]
    assert row == {"step": 1, "epoch": 0, "a": "NaN", "b": "Infinity", "c": "-Infinity", "d": "text ü"}


def test_a_logged_value_cannot_pass_for_the_place_of_a_row(tmp_path):
    def log(epoch, step, performance_measures, context):
        context.log({"step": 99, "epoch": 99, "a": 1.0})

    run(log, MetricsFile(folder=tmp_path), CsvFile(folder=tmp_path), epochs=1)
    assert [(row["step"], row["epoch"]) for row in json_rows(tmp_path / "metrics.jsonl")] == [
        (n, 0) for n in (1, 2, 3, 4)
    ]
    assert csv_rows(tmp_path / "metrics.csv")[1] == ["1", "0", "1.0"]


def test_a_late_column_of_a_table_is_empty_before(tmp_path):
    run(LogMeasures(every="1ba"), LogOnce(at=5), CsvFile(folder=tmp_path), val_data_loader=None)
    header, *lines = csv_rows(tmp_path / "metrics.csv")
    extra = header.index("extra")
    assert [line[extra] for line in lines] == ["", "", "", "", "0.5", *[""] * 7]
    assert [len(line) for line in lines] == [len(header)] * 12


def test_a_column_that_only_a_lost_run_had_is_gone(tmp_path):
    saving = SaveAt(at=3, path=tmp_path / "checkpoint")
    run(LogMeasures(every="1ba"), LogOnce(at=5), CsvFile(folder=tmp_path), saving)
    assert "extra" in csv_rows(tmp_path / "metrics.csv")[0]
    resumed = load(tmp_path / "checkpoint")
    resumed.callbacks[1].at = 99
    resumed.continue_training()
    assert "extra" not in csv_rows(tmp_path / "metrics.csv")[0]


def test_two_instances_write_two_files_with_the_same_content(tmp_path):
    run(LogMeasures(), MetricsFile(folder=tmp_path), MetricsFile(folder=tmp_path))
    assert json_rows(tmp_path / "metrics.jsonl") == json_rows(tmp_path / "metrics-2.jsonl") != []


def test_files_go_to_the_folder_of_the_experiment(tmp_path):
    trainer = speech_trainer(LogMeasures(), MetricsFile(folder=tmp_path / "unused"))
    trainer.experiment = SimpleNamespace(name="tiny", folder=tmp_path / "run")
    trainer.start_training()
    assert (tmp_path / "run" / "metrics.jsonl").exists()
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize("path", ["../metrics.jsonl", "/etc/metrics.jsonl", "", "a/../../b"])
def test_a_path_out_of_the_run_folder_is_refused(path):
    with pytest.raises(UsageError, match="inside the folder of the run"):
        MetricsFile(path=path)
