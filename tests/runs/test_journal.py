"""What a run leaves about itself: a log for each start, and `status.yaml`."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import yaml
from tiny import make_trainer

from sonosco_like.runs import journal as journals
from sonosco_like.runs.journal import STATUS, journal


def status(folder):
    return yaml.safe_load((folder / STATUS).read_text())


def test_a_run_is_running_then_finished(tmp_path):
    trainer = make_trainer()
    with journal(tmp_path, trainer, {}):
        assert status(tmp_path)["state"] == "running"
        trainer.start_training()
    assert (status(tmp_path)["state"], status(tmp_path)["step"], status(tmp_path)["epoch"]) == ("finished", 20, 4)
    assert status(tmp_path)["lower_is_better"] == {"loss": True}


def test_an_interrupted_run_says_so(tmp_path):
    with journal(tmp_path, make_trainer(), {}) as entry:
        entry.interrupted_by = 15
    assert status(tmp_path)["state"] == "interrupted"


def test_a_failure_is_in_the_log_with_its_traceback_and_in_the_status(tmp_path):
    def fail():
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError), journal(tmp_path, make_trainer(), {}):
        fail()
    assert status(tmp_path)["state"] == "failed"
    assert status(tmp_path)["reason"] == "RuntimeError: no more"
    (log,) = (tmp_path / "logs").iterdir()
    assert "Traceback" in log.read_text()
    assert "in fail" in log.read_text()


def test_each_start_has_a_log_of_its_own_with_what_was_logged(tmp_path, caplog):
    trainer, before = make_trainer(), list(logging.getLogger().handlers)
    with caplog.at_level(logging.INFO):
        for number in range(3):
            with journal(tmp_path, trainer, {}):
                logging.getLogger("anything").info("said in start %d", number)
    texts = [log.read_text() for log in (tmp_path / "logs").iterdir()]
    assert [text.count("said in start") for text in texts] == [1, 1, 1]
    assert all("at step 0" in text for text in texts)
    assert logging.getLogger().handlers == before


def test_logs_sort_in_the_order_of_the_starts_also_if_the_clock_goes_back(tmp_path, monkeypatch):
    stamps = iter(["2026-01-01_00-00-00", "2025-01-01_00-00-00", *["2025-06-01_00-00-00"] * 10, "2026-02-01_00-00-00"])
    clock = SimpleNamespace(strftime=lambda form: next(stamps) if "T" not in form else "")
    monkeypatch.setattr(journals, "time", clock)
    for number in range(13):
        with journal(tmp_path, make_trainer(), {}):
            logging.getLogger("anything").warning("said in start %d.", number)
    texts = [log.read_text() for log in sorted((tmp_path / "logs").iterdir())]
    assert all(f"said in start {number}." in text for number, text in enumerate(texts))
    assert len(texts) == 13
