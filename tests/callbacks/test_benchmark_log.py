"""BenchmarkLog: time to target, in MLPerf's form."""

from __future__ import annotations

import json

import pytest
from tiny import SaveAt
from tiny_speech import speech_trainer

from sonosco_like.callbacks.benchmark_log import BenchmarkLog
from sonosco_like.errors import UsageError
from sonosco_like.serialization import load


def entries(folder):
    lines = (folder / "benchmark.log").read_text().splitlines()
    assert all(line.startswith(":::MLLOG ") for line in lines)
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]


def course(folder):
    """The log without clocks."""
    return [
        (e["key"], e["event_type"], e["metadata"]["step"], e["metadata"]["epoch"], e["metadata"].get("status"))
        for e in entries(folder)
        if not e["key"].startswith("run_resume")
    ]


def run(folder, *callbacks, **fields):
    log = BenchmarkLog(folder=folder, **fields)
    trainer = speech_trainer(log, *callbacks, test_step=None)
    trainer.start_training()
    return trainer, log


def test_the_log_tells_the_course_of_the_run(tmp_path):
    run(tmp_path, monitor="val_loss", target=-1.0)
    told = [
        entry for entry in course(tmp_path) if entry[0] in ("run_start", "epoch_start", "eval_accuracy", "run_stop")
    ]
    assert told == [
        ("run_start", "INTERVAL_START", 0, 0, None),
        ("epoch_start", "INTERVAL_START", 0, 0, None),
        ("eval_accuracy", "POINT_IN_TIME", 4, 0, None),
        ("epoch_start", "INTERVAL_START", 4, 1, None),
        ("eval_accuracy", "POINT_IN_TIME", 8, 1, None),
        ("epoch_start", "INTERVAL_START", 8, 2, None),
        ("eval_accuracy", "POINT_IN_TIME", 12, 2, None),
        ("run_stop", "INTERVAL_END", 12, 3, "aborted"),
    ]
    parameters = {entry["key"]: entry["value"] for entry in entries(tmp_path)}
    assert parameters["optimizer.lr"] == 0.01


def test_the_time_to_the_target_is_logged_once_and_kept(tmp_path):
    trainer, log = run(tmp_path, monitor="val_loss", target=1000.0)
    reached = [entry for entry in entries(tmp_path) if entry["key"] == "seconds_to_target"]
    assert [entry["metadata"]["step"] for entry in reached] == [4] == [log.reached_at]
    assert reached[0]["value"] == log.seconds_to_target
    assert 0 < log.seconds_to_target <= trainer.seconds
    assert entries(tmp_path)[-1]["metadata"]["status"] == "success"


def test_the_run_stops_at_the_target_if_asked_to(tmp_path):
    trainer, _ = run(tmp_path, monitor="val_loss", target=1000.0, stop=True)
    assert trainer.global_step == 4
    assert entries(tmp_path)[-1]["metadata"]["status"] == "success"


@pytest.mark.parametrize(("target", "reached"), [(0.0, 4), (1.1, None)])
def test_a_measure_that_is_better_when_higher_must_rise_to_the_target(target, reached, tmp_path):
    _, log = run(tmp_path, monitor="val_token_accuracy", target=target)
    assert log.reached_at == reached


@pytest.mark.parametrize("at", [3, 4, 9])
def test_a_resumed_run_goes_on_with_the_log_of_its_checkpoint(at, tmp_path):
    run(tmp_path, SaveAt(at=at, path=tmp_path / "checkpoint"), monitor="val_loss", target=1000.0)
    unbroken = course(tmp_path)
    resumed = load(tmp_path / "checkpoint")
    resumed.continue_training()
    assert course(tmp_path) == unbroken
    assert [entry["value"] for entry in entries(tmp_path) if entry["key"] == "run_resume"] == [at]


def test_a_run_that_fails_is_logged_as_aborted(tmp_path):
    def fail(epoch, step, performance_measures, context):
        raise RuntimeError("broken")

    with pytest.raises(Exception, match="broken"):
        run(tmp_path, fail)
    assert entries(tmp_path)[-1]["key"] == "run_stop"
    assert entries(tmp_path)[-1]["metadata"]["status"] == "aborted"


def test_a_measure_nobody_computes_is_refused_at_the_start(tmp_path):
    with pytest.raises(UsageError, match="val_word_error_rates"):
        run(tmp_path, monitor="val_word_error_rates")


def test_a_target_that_cannot_be_reached_is_refused():
    with pytest.raises(UsageError, match="got nan"):
        BenchmarkLog(target=float("nan"))
