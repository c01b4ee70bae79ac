"""A file of every format there ever was is kept here, and read for ever."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import format_classes  # noqa: E402

from sonosco_like import load, save  # noqa: E402


def test_format_1_is_read_with_its_old_classes_upgraded():
    trainer = load(HERE / "format-1", format_classes.WitnessTrainer)
    assert trainer.rates == (1e-7, 0.30000000000000004)
    assert trainer.note == "日本 <b> 1e-3"
    assert [stopper.steps for stopper in trainer.stoppers] == [50, 30, 50]
    assert trainer.stoppers[0] is trainer.stoppers[2]
    assert [stopper.waited_steps for stopper in trainer.stoppers] == [20, 0, 20]
    assert trainer.history == {"loss": [float("inf"), 0.1]}
    assert torch.equal(trainer.moments, torch.arange(6.0).reshape(2, 3))
    assert trainer.model.seen == 7
    torch.manual_seed(0)
    assert torch.equal(trainer.model.linear.weight, format_classes.WitnessNet(size=3).linear.weight)


def test_what_was_upgraded_is_saved_as_it_is_today(tmp_path):
    save(load(HERE / "format-1"), tmp_path / "today")
    text = (tmp_path / "today" / "trainer.yaml").read_text()
    assert "format_classes.WitnessStopper@2" in text
    assert load(tmp_path / "today").stoppers[0].waited_steps == 20
