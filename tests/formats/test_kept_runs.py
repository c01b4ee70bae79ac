"""A run folder of every format there ever was is kept here, opened and trained to its end for ever."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import make_run
import pytest
import torch

from sonosco_like import load
from sonosco_like.callbacks import EarlyStopping
from sonosco_like.cli import run
from sonosco_like.training import open_run

HERE = Path(__file__).parent
RUNS = sorted(path.name for path in HERE.glob("run-*"))


@pytest.fixture(params=RUNS)
def kept(request, tmp_path, monkeypatch):
    """A copy of the kept folder, which may be changed; the paths in its config are relative to it."""
    folder = tmp_path / request.param
    shutil.copytree(HERE / request.param, folder)
    monkeypatch.chdir(folder)
    return folder


def machine_of(saved: Path) -> str:
    """Which torch, threads and processor a folder was computed with: the same ones compute the same bits."""
    found = re.search(r"  computed_with:\n((?:    .+\n)+)", (saved / "state.yaml").read_text())
    return found[1] if found else ""


def test_a_kept_run_is_opened_at_its_last_checkpoint(kept):
    experiment, step = open_run(kept / "run")
    assert (experiment.name, step) == ("kept", 4)
    assert [each.patience for each in experiment.trainer.callbacks if isinstance(each, EarlyStopping)] == [50]
    assert len(experiment.trainer.optimizer.state_dict()["state"]) > 0


def test_a_kept_run_is_trained_to_the_end_it_had(kept):
    experiment, _ = open_run(kept / "run")
    assert experiment.resume() == 0
    ended = load(kept / "run" / "final")
    expected = load(kept / "expected")
    assert ended.global_step == expected.global_step == 9
    is_same_machine = machine_of(kept / "run" / "final") == machine_of(kept / "expected") != ""
    tolerance = {"rtol": 0, "atol": 0} if is_same_machine else {"rtol": 1e-3, "atol": 1e-4}
    for name, value in expected.model.state_dict().items():
        torch.testing.assert_close(ended.model.state_dict()[name], value, **tolerance)


def test_settings_of_a_kept_run_can_be_changed(kept):
    """Its classes have newer versions now, which is no change of a setting."""
    experiment, step = open_run(kept / "run", ["trainer.clip_grads=4.5"])
    assert (step, experiment.trainer.clip_grads) == (4, 4.5)


@pytest.mark.parametrize("form", ["as it was written", "as it would be written now"])
def test_a_kept_run_is_continued_by_the_command_that_started_it(kept, form, caplog):
    """`train --resume auto` with the user's own config, of which each run folder has the resolved form only."""
    config = make_run.CONFIGS[kept.name.removeprefix("run-")]
    if form != "as it was written":
        config = re.sub(r"    (vocabulary_size|features): \d+\n", "", config)
        config = re.sub(r"\n    decoder:", "\n    attention_decoder:", config)
        config = config.replace("keep_last: 9", "keep_last: 9, monitor: val_loss")
    Path("kept.yaml").write_text(config)
    caplog.set_level("INFO")
    assert run(["train", "--config", "kept.yaml", "--run-dir", "run", "--resume", "auto"]) == 0
    assert load(kept / "run" / "final").global_step == 9
    changed = [message for message in caplog.messages if message.startswith("changed from step")]
    assert len(changed) == (form != "as it was written"), changed


def test_the_rows_of_a_kept_run_go_on_where_they_ended(kept):
    experiment, _ = open_run(kept / "run")
    experiment.resume()
    rows, expected = (
        [json.loads(line) for line in (kept / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("run", "expected")
    )
    assert [row["step"] for row in rows] == [row["step"] for row in expected]
    for row, other in zip(rows, expected, strict=True):
        assert set(row) == set(other)
        assert row.get("loss") == (other.get("loss") and pytest.approx(other["loss"], rel=1e-3))


def test_nothing_kept_tells_of_the_machine_it_was_made_on():
    assert RUNS
    for path in HERE.glob("run-*/**/*"):
        if path.suffix in (".yaml", ".jsonl"):
            assert str(Path.home()) not in path.read_text()
            assert ": /" not in path.read_text()
