"""Trainers of users: methods that other systems call are refused with those that are called here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tiny import short_trainer

from sonosco_like import serializable
from sonosco_like.errors import UsageError
from sonosco_like.events import Stop
from sonosco_like.training import ModelTrainer


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("loss", "`loss` is a setting of the trainer; override `compute_loss(output, batch)`"),
        ("step", "`step` is a setting of the trainer; override `train_batch(batch)`"),
        ("epoch", "`epoch` is a setting of the trainer; override `train_epoch(epoch)`"),
        ("decoder", "`decoder` is a setting of the trainer; give the method another name"),
        ("training_step", "no stage is called 'training_step'; override `forward(batch)` and `compute_loss"),
        ("configure_optimizers", "no stage is called 'configure_optimizers'; override `build_optimizer(parameters)`"),
        ("create_optimizer", "no stage is called 'create_optimizer'; override `build_optimizer(parameters)`"),
    ],
)
def test_a_method_that_nobody_calls_is_refused_with_the_one_that_is_called(name, said):
    own = type("Own", (ModelTrainer,), {name: lambda self, *taken: None})
    with pytest.raises(UsageError) as raised:
        short_trainer(cls=own).start_training()
    assert f"Own.{name} would never be called: {said}" in str(raised.value)


def test_a_method_of_such_a_name_that_the_class_calls_itself_is_its_own_affair():
    called = []

    class Own(ModelTrainer):
        def training_step(self, batch):
            called.append(batch)
            return super().forward(batch)

        def forward(self, batch):
            return self.training_step(batch)

    short_trainer(cls=Own).start_training()
    assert called


def test_a_function_may_be_the_default_of_a_field():
    @serializable
    class WithField(ModelTrainer):
        predict_step: Callable[..., int] = len

    short_trainer(cls=WithField).start_training()


def test_a_batch_that_is_fetched_in_a_way_of_its_own_is_spent_when_it_is_stopped():
    class Own(ModelTrainer):
        def fetch(self, batches):
            return next(batches, None)

        def on_loss_end(self, moment):
            self.log({"heard": 1})
            if self.step == 1:
                raise Stop("enough of this batch", "batch")

    steps = []
    trainer = short_trainer(("log", lambda moment: steps.append(moment.args["step"])), cls=Own)
    plain = short_trainer()
    plain.start_training()
    trainer.start_training()
    assert trainer.global_step == plain.global_step
    assert steps == list(range(1, plain.global_step + 1))
