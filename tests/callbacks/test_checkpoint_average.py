"""The mean of the last checkpoints."""

from __future__ import annotations

import logging

import pytest
import torch
from training_parts import make_trainer

from sonosco_like import load
from sonosco_like.callbacks import CheckpointAverage, ModelCheckpoint
from sonosco_like.errors import UsageError
from sonosco_like.events import CallbackError
from sonosco_like.training import Experiment


def run(folder, last):
    callbacks = [ModelCheckpoint(every="5ba", keep_last=9), CheckpointAverage(last=last)]
    experiment = Experiment(name="mean", trainer=make_trainer(callbacks=callbacks))
    experiment.start(folder)
    return experiment


def test_the_final_weights_are_the_mean_of_the_last_checkpoints(tmp_path):
    experiment = run(tmp_path / "run", last=3)
    paths = [experiment.checkpoints.path_of(step) for step in (10, 15, 20)]
    weights = [load(path).model.state_dict() for path in paths]
    final = load(tmp_path / "run" / "final").model.state_dict()
    for name, weight in final.items():
        if weight.is_floating_point():
            expected = sum(each[name].double() for each in weights) / 3
            assert torch.equal(weight, expected.float()), name
        else:
            assert torch.equal(weight, weights[-1][name]), name


def test_fewer_checkpoints_than_wanted_are_averaged_and_that_is_said(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        run(tmp_path / "run", last=7)
    assert "Only 4 checkpoints are there to average, not 7" in caplog.text


def test_a_run_without_a_folder_is_refused():
    with pytest.raises(CallbackError, match="needs a run folder"):
        make_trainer(callbacks=[CheckpointAverage()]).start_training()


def test_an_average_of_one_is_refused():
    with pytest.raises(UsageError, match="at least 2"):
        CheckpointAverage(last=1)
