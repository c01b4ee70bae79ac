"""What a training says about its own curves: when it says it, and that a resumed run knows the curves from before."""

from __future__ import annotations

import logging

import pytest
from tiny_speech import make_model, speech_trainer, whole_and_resumed

from sonosco_like.callbacks import AllPredictionsSame, LogMeasures, MetricsFile
from sonosco_like.events import Moment, Stop
from sonosco_like.losses import CTCLoss, JointLoss
from sonosco_like.metrics import word_error_rate
from sonosco_like.optim import AdamW
from sonosco_like.serialization import serializable
from sonosco_like.training import Experiment, open_run

pytestmark = pytest.mark.usefixtures("everything_logged")


@pytest.fixture
def everything_logged(caplog):
    caplog.set_level(logging.INFO)


@serializable
def interrupt(moment: Moment) -> None:
    """What a signal does."""
    moment.context.experiment.interrupted = True
    raise Stop("interrupted")


def explanations(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.endswith(".observations")]


def test_a_training_without_a_rate_says_so_while_it_trains_and_at_its_end(caplog):
    speech_trainer(optimizer=AdamW(lr=0.0, weight_decay=0.0), metrics=[word_error_rate]).start_training()
    said = explanations(caplog)
    assert sum("The numbers suggest" in line for line in said) == 2  # after four validations of six, and at the end
    assert "1. The learning rate was 0 all the time" in said[1]


def test_labels_too_long_for_the_frames_are_counted_at_the_end(caplog):
    loss = JointLoss(ctc=CTCLoss(too_long="skip"))
    loss.ctc.skipped = 30
    trainer = speech_trainer(loss=loss)
    trainer.train_data_loader.dataset.durations = [1.0] * 8
    trainer.start_training()
    assert any("CTC left out 100.0 % of the utterances" in line for line in explanations(caplog))


def test_a_model_that_writes_only_blanks_is_explained_when_it_is_stopped_for_that(caplog):
    model = make_model(attention_decoder=None)
    model.ctc_output.bias.data[0] = 100.0
    callback = AllPredictionsSame(patience=1)
    speech_trainer(callback, model=model, loss=CTCLoss(), metrics=[word_error_rate]).start_training()
    said = explanations(caplog)
    assert "100.0 % ('" in said[0]
    assert "' is recognised as ''). The numbers suggest:" in said[0]
    assert "1. The model writes only blanks so far: that is normal in the first" in said[1]


def test_without_an_error_rate_there_is_nothing_to_explain(caplog):
    speech_trainer(optimizer=AdamW(lr=0.0), metrics=[]).start_training()
    assert explanations(caplog) == []


def test_a_training_that_is_interrupted_is_not_explained(caplog, tmp_path):
    trainer = speech_trainer(("batch_end", interrupt), optimizer=AdamW(lr=0.0))
    Experiment(name="speech", trainer=trainer).start(tmp_path / "run")
    assert explanations(caplog) == []


def test_a_resumed_run_knows_the_curve_from_before(tmp_path):
    trainer = speech_trainer(LogMeasures(), MetricsFile(), max_duration="7ba")
    Experiment(name="speech", trainer=trainer).start(tmp_path / "run")
    assert [point.step for point in trainer.observations.points()] == [2, 4, 6]
    experiment, step = open_run(tmp_path / "run", ["trainer.max_duration=null"])
    assert step == 7
    experiment.resume()
    points = experiment.trainer.observations.points()
    assert [point.step for point in points] == [2, 4, 6, 8, 10, 12]
    assert all({"loss", "val_loss", "val_word_error_rate"} <= point.measures.keys() for point in points)


def test_remembering_changes_nothing_of_the_run(tmp_path):
    whole, resumed = whole_and_resumed(5, tmp_path)
    assert dict(whole.performance_measures) == dict(resumed.performance_measures)
