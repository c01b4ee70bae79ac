"""Callbacks that end a training, an epoch or a validation early, in real runs."""

from __future__ import annotations

import dataclasses
import logging
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_speech import Utterances, constant_error, constant_score, differences, speech_trainer, whole_and_resumed

from sonosco_like.callbacks import (
    AllPredictionsSame,
    EarlyStopping,
    LimitBatches,
    ModelCheckpoint,
    ProgressBar,
    TerminateOnNaN,
    ThresholdStopper,
)
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.errors import UsageError
from sonosco_like.events import CallbackError, Stop, batches_of, epoch_batches
from sonosco_like.records import Hypothesis
from sonosco_like.serialization import load, serializable
from sonosco_like.training import Experiment, open_run

METRICS = SimpleNamespace(metrics=[constant_error, constant_score], callbacks=[], global_step=0)


def evaluations_until_stop(stopper, values):
    """How many of the values are evaluated until the stopper has enough; None if it never has."""
    for count, value in enumerate(values, 1):
        try:
            stopper.update(value, METRICS)
        except Stop:
            return count
    return None


# EarlyStopping


@pytest.mark.parametrize("monitor", ["val_constant_error", "val_constant_score"])
def test_a_constant_metric_stops_the_training(monitor):
    trainer = speech_trainer(EarlyStopping(monitor=monitor, patience=3), metrics=[constant_error, constant_score])
    trainer.start_training()
    assert trainer.global_step == 8  # validations after 2, 4, 6, 8 batches: the first is the best, three do not improve


def test_a_measure_of_the_training_is_evaluated_once_an_epoch():
    trainer = speech_trainer(EarlyStopping(monitor="constant_error", patience=1), metrics=[constant_error], epochs=9)
    trainer.start_training()
    assert (trainer.epoch, trainer.global_step) == (2, 8)


@given(
    values=st.lists(st.integers(0, 20).map(float), max_size=20),
    patience=st.integers(1, 4),
    min_delta=st.sampled_from([0.0, 1.0, 3.5]),
)
def test_it_stops_after_patience_evaluations_without_an_improvement(values, patience, min_delta):
    expected, best, waited = None, math.inf, 0
    for count, value in enumerate(values, 1):
        waited = 0 if best - value > min_delta else waited + 1
        best = value if waited == 0 else best
        if waited == patience:
            expected = count
            break
    lower = EarlyStopping(monitor="val_constant_error", patience=patience, min_delta=min_delta)
    higher = EarlyStopping(monitor="val_constant_score", patience=patience, min_delta=min_delta)
    assert evaluations_until_stop(lower, values) == expected
    assert evaluations_until_stop(higher, [-value for value in values]) == expected


def test_nan_is_no_improvement():
    stopper = EarlyStopping(monitor="val_constant_error", patience=2)
    assert evaluations_until_stop(stopper, [math.nan, math.nan]) == 2
    assert stopper.best is None


def test_two_stoppers_keep_their_own_counts_over_a_resume(tmp_path):
    stoppers = [EarlyStopping(monitor="val_constant_error", patience=5), EarlyStopping(monitor="loss", patience=9)]
    whole, resumed = whole_and_resumed(5, tmp_path, *stoppers, metrics=[constant_error])
    assert whole.global_step == resumed.global_step == 12
    assert differences(whole, resumed) == []
    middle = load(tmp_path / "at-5")
    assert [stopper.waited for stopper in middle.callbacks[:2]] == [1, 0]


def test_the_reason_names_the_measure_and_the_best_step(caplog):
    trainer = speech_trainer(EarlyStopping(monitor="val_constant_error", patience=1), metrics=[constant_error])
    with caplog.at_level(logging.INFO):
        trainer.start_training()
    assert "val_constant_error was best at step 2: 1, and has not improved in 1 evaluations since" in caplog.text


def test_a_measure_that_nobody_computes_is_refused_at_the_start():
    trainer = speech_trainer(EarlyStopping(monitor="val_word_eror_rate"))
    with pytest.raises(UsageError, match="did you mean 'val_word_error_rate'"):
        trainer.start_training()
    assert trainer.global_step == 0


@pytest.mark.parametrize("fields", [{"patience": 0}, {"min_delta": -1.0}])
def test_impossible_settings_of_early_stopping_are_refused(fields):
    with pytest.raises(UsageError, match="must be at least 1 evaluation"):
        EarlyStopping(**fields)


# ThresholdStopper


@pytest.mark.parametrize(
    ("monitor", "threshold", "steps"),
    [
        ("val_constant_error", 1.0, 2),
        ("val_constant_error", 0.99, 12),
        ("val_constant_score", 0.5, 2),
        ("val_constant_score", 0.51, 12),
        ("constant_score", 0.4, 4),
    ],
)
def test_it_stops_at_the_threshold_in_the_direction_of_the_metric(monitor, threshold, steps):
    metrics = [constant_error, constant_score]
    trainer = speech_trainer(ThresholdStopper(monitor=monitor, threshold=threshold), metrics=metrics)
    trainer.start_training()
    assert trainer.global_step == steps


# TerminateOnNaN


@serializable
def spoiled_loss(output, batch):
    """A loss that is not finite on the third batch of the first epoch."""
    loss = output.ctc_logits_BSV.square().mean()
    return loss * SPOIL if "u2-0" in batch.ids else loss


SPOIL = math.nan


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_ends_the_run_before_the_weights_are_touched(value, monkeypatch, caplog):
    monkeypatch.setattr(__import__(__name__), "SPOIL", value)
    trainer = speech_trainer(TerminateOnNaN(), loss=spoiled_loss, val_data_loader=None)
    steps = []
    trainer.add_callback(("optimizer_step_end", lambda moment: steps.append(moment.context.step)))
    with caplog.at_level(logging.INFO):
        trainer.start_training()
    assert steps == [0, 1]
    assert f"the loss is {value} on the utterances u2-0, u2-1" in caplog.text
    assert all(bool(torch.isfinite(parameter).all()) for parameter in trainer.model.parameters())


def test_a_finite_loss_goes_on():
    trainer = speech_trainer(TerminateOnNaN())
    trainer.start_training()
    assert trainer.global_step == 12


# AllPredictionsSame


@serializable
class Parrot(GreedyCTCDecoder):
    """Hears the same texts whatever is said."""

    says: list[str]

    def decode(self, output, vocabulary, *, model=None, frame_seconds=1.0):
        return [[Hypothesis(text, (), 0.0)] for text in self.says]


@pytest.mark.parametrize(
    ("says", "steps"),
    [(["", ""], 4), (["a b", "a b"], 4), (["a", ""], 4), (["a", "b"], 12)],
)
def test_a_model_that_hears_one_text_or_nothing_is_stopped(says, steps):
    trainer = speech_trainer(AllPredictionsSame(patience=2), decoder=Parrot(says=says))
    trainer.start_training()
    assert trainer.global_step == steps


@serializable
class SayingOneThing(Utterances):
    """Utterances that all say the same."""

    def __iter__(self):
        for batch in super().__iter__():
            yield dataclasses.replace(batch, texts=["b"] * len(batch))


@pytest.mark.parametrize(("says", "steps"), [(["b", "b"], 12), (["", ""], 4)])
def test_where_all_say_the_same_one_text_is_right_and_silence_is_not(says, steps):
    loader = SayingOneThing(batches=2)
    trainer = speech_trainer(AllPredictionsSame(patience=2), decoder=Parrot(says=says), val_data_loader=loader)
    trainer.start_training()
    assert trainer.global_step == steps


def test_it_can_warn_instead(caplog):
    trainer = speech_trainer(AllPredictionsSame(patience=5, stop=False), decoder=Parrot(says=["", ""]))
    trainer.start_training()
    assert trainer.global_step == 12
    assert [record.message for record in caplog.records if "Collapsed" in record.message] == [
        "Collapsed: the model predicts only '' in 5 validations in a row.",
        "Collapsed: the model predicts only '' in 6 validations in a row.",
    ]


def test_evaluations_on_the_side_are_not_counted():
    def evaluate(moment):
        moment.context.decoder.says = ["a", "b"]
        moment.context.evaluate(moment.context.train_data_loader)
        moment.context.decoder.says = ["", ""]

    trainer = speech_trainer(
        ("validation_end", evaluate), AllPredictionsSame(patience=2), decoder=Parrot(says=["", ""])
    )
    trainer.start_training()
    assert trainer.global_step == 4


def test_how_often_it_collapsed_survives_a_resume(tmp_path):
    watcher = AllPredictionsSame(patience=4)
    whole, resumed = whole_and_resumed(5, tmp_path, watcher, decoder=Parrot(says=["", ""]))
    assert whole.global_step == resumed.global_step == 8
    assert load(tmp_path / "at-5").callbacks[0].in_a_row == 2


@pytest.mark.parametrize("fields", [{"metrics": [constant_error]}, {"val_data_loader": None}])
def test_a_run_that_decodes_nothing_is_refused_at_the_start(fields):
    trainer = speech_trainer(AllPredictionsSame(), **fields)
    with pytest.raises(CallbackError, match=r"AllPredictionsSame failed at attach: UsageError: .* decodes none"):
        trainer.start_training()


@pytest.mark.parametrize(
    ("stopper", "field", "more"),
    [
        (EarlyStopping(monitor="val_loss", min_delta=1e6, patience=2), "patience", 9),
        (ThresholdStopper(monitor="val_loss", threshold=1e6), "threshold", -1.0),
    ],
    ids=["early stopping", "threshold"],
)
def test_a_run_that_was_stopped_stays_so_when_it_is_resumed(tmp_path, stopper, field, more):
    trainer = speech_trainer(stopper, ModelCheckpoint(every="1ba", keep_last=9))
    Experiment(name="stopped", trainer=trainer).start(tmp_path)
    stopped_at = trainer.global_step
    assert 0 < stopped_at < 12
    before = {path.name: path.read_bytes() for path in (tmp_path / "final").iterdir()}
    experiment, _ = open_run(tmp_path)
    experiment.resume()
    assert experiment.trainer.global_step == stopped_at
    assert {path.name: path.read_bytes() for path in (tmp_path / "final").iterdir()} == before
    experiment, _ = open_run(tmp_path, [f"trainer.callbacks[0].{field}={more}"])
    experiment.resume()
    assert experiment.trainer.global_step == 12


def test_epochs_and_validations_have_so_many_batches():
    seen, judged = [], []
    trainer = speech_trainer(
        LimitBatches(train_batches=2, validation_batches=1),
        ("batch_start", lambda moment: seen.append(moment.args["batch"].ids[0])),
        ("validation_batch_end", lambda moment: judged.append(moment.args["batch"].ids[0])),
        test_step=None,
    )
    trainer.start_training()
    assert seen == ["u0-0", "u1-0", "u1000-0", "u1001-0", "u2000-0", "u2001-0"]
    assert judged == ["u7-0"] * 3
    assert (trainer.epoch, trainer.global_step) == (3, 6)
    assert "val_loss" in trainer.performance_measures


def test_no_limit_is_no_limit():
    trainer = speech_trainer(LimitBatches(train_batches=None, validation_batches=None))
    trainer.start_training()
    assert trainer.global_step == 12


@pytest.mark.parametrize("at", [2, 3, 4])
def test_a_limited_run_is_resumed_exactly(at, tmp_path):
    whole, resumed = whole_and_resumed(at, tmp_path, LimitBatches(train_batches=2, validation_batches=1))
    assert whole.global_step == resumed.global_step == 6
    assert differences(whole, resumed) == []


def test_who_counts_batches_knows_of_the_limit(capsys):
    trainer = speech_trainer(LimitBatches(train_batches=2, validation_batches=1), ProgressBar(every="1ba"), epochs=1)
    assert epoch_batches(trainer) == 2
    trainer.start_training()
    assert "epoch 1/1, step 2/2, done" in capsys.readouterr().err


def test_a_limit_beyond_the_data_changes_nothing():
    assert epoch_batches(speech_trainer(LimitBatches(train_batches=99))) == 4


def test_a_limited_loader_is_as_long_as_it_lasts():
    lengths = []
    look = ("validation_start", lambda moment: lengths.append(batches_of(moment.args["loader"])))
    speech_trainer(LimitBatches(validation_batches=1), look, epochs=1, test_step=None).start_training()
    unknown = speech_trainer(
        LimitBatches(validation_batches=5), look, epochs=1, test_step=None, val_data_loader=Endless()
    )
    unknown.start_training()
    assert lengths == [1, None]


class Endless:
    """Batches without end, and without a length."""

    dataset = Utterances().dataset

    def __iter__(self):
        while True:
            yield from Utterances(batches=1)


@pytest.mark.parametrize("limit", [{"train_batches": 0}, {"validation_batches": -1}])
def test_less_than_a_batch_is_refused(limit):
    with pytest.raises(UsageError, match="must be at least 1 batch"):
        LimitBatches(**limit)
