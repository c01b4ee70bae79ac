"""Batches, models, losses and metrics of any form: each part of a batch is used, or a sentence says why not."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from tiny import make_trainer, squared_error
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sonosco_like import ModelTrainer, load, save
from sonosco_like.callbacks import AllPredictionsSame
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.metrics import DecodedBatch, metric
from sonosco_like.metrics import Sums as RunningSums
from sonosco_like.optim import SGD

X, Y, Z = torch.randn(6, 3), torch.randn(6, 1), torch.ones(6, 1)


class One(nn.Module):
    """A model with one input."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x)


class Two(One):
    """A model with two inputs."""

    def forward(self, x, scale):
        return self.layer(x) * scale


class Optional(One):
    """A model with one input and one that may be left out."""

    def forward(self, x, scale=None):
        return self.layer(x) if scale is None else self.layer(x) * scale


class Whole(One):
    """A model that takes a batch as it is."""

    def forward(self, batch):
        return self.layer(batch["x"])


def train(model, batches, loss=squared_error, **fields):
    trainer = ModelTrainer(model, loss, 1, batches, optimizer=SGD(lr=0.1), **fields)
    trainer.start_training()
    return trainer


def loss_by_key(output, target):
    return (output - target).square().mean()


def loss_of_batch(output, batch):
    return (output - batch["target"]).square().mean()


Named = namedtuple("Named", "x target")


@pytest.mark.parametrize(
    ("model", "batch", "loss"),
    [
        (Two(), (X, Z, Y), squared_error),
        (Two(), [X, Z, Y], squared_error),
        (Two(), ((X, Z), Y), squared_error),
        (Two(), ({"x": X, "scale": Z}, Y), squared_error),
        (Two(), {"x": X, "scale": Z, "target": Y}, loss_by_key),
        (Two(), {"x": X, "scale": Z, "target": Y}, loss_of_batch),
        (One(), {"x": X, "target": Y}, nn.MSELoss()),
        (Optional(), ((X, Z), Y), squared_error),
        (Optional(), {"x": X, "target": Y}, loss_by_key),
        (Whole(), {"x": X, "target": Y}, loss_of_batch),
        (One(), (X, (Y, Z)), lambda output, targets: ((output - targets[0]).square() * targets[1]).mean()),
        (One(), Named(X, Y), squared_error),
    ],
)
def test_every_part_of_a_batch_reaches_the_model_or_the_loss(model, batch, loss):
    before = model.layer.weight.clone()
    trainer = train(model, [batch], loss, val_data_loader=[batch])
    assert not torch.equal(model.layer.weight, before)
    assert trainer.performance_measures["val_loss"] < trainer.performance_measures["loss"]


@pytest.mark.parametrize("model", [One(), Optional()])
def test_a_part_that_would_be_lost_is_refused_with_the_ways_out(model):
    with pytest.raises(UsageError, match=r"A batch has 3 parts.*Give pairs.*override `forward\(batch\)`"):
        train(model, [(X, Y, Z)])


class OwnTrainer(ModelTrainer):
    """Knows what its batches are."""

    def forward(self, batch):
        return self.model(batch[0])

    def compute_loss(self, output, batch):
        return ((output - batch[1]).square() * batch[2]).mean()

    def predict_batch(self, output, batch, needs):
        return output > 0


def test_overridden_stages_are_those_of_validation_and_prediction_too():
    batches = [(X, Y, 3 * Z)]
    trainer = OwnTrainer(One(), squared_error, 1, batches, batches, optimizer=SGD(lr=0.0))
    trainer.start_training()
    assert trainer.performance_measures["val_loss"] == pytest.approx(trainer.performance_measures["loss"])
    assert trainer.evaluate(batches)["loss"] == pytest.approx(trainer.performance_measures["loss"])
    assert [each.hypothesis.dtype for each in trainer.predict(batches)] == [torch.bool] * 6


def test_keys_that_nobody_takes_are_said(caplog):
    train(One(), [{"x": X, "target": Y, "extra_weight": Z}], loss_by_key)
    assert "Neither the model nor the loss takes extra_weight of the batches." in caplog.text


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda output, targets: {"loss": output.mean()}, "got a dict"),
        (lambda output, targets: (output.mean(), 1), "got a tuple"),
        (lambda output, targets: output - targets, "got a tensor of 6 x 1"),
        (lambda output, targets: None, "got a NoneType"),
        (lambda output, targets: 1.5, "got a float"),
        (lambda output, targets: output.detach().mean(), "does not depend on any parameter"),
    ],
)
def test_a_loss_that_is_not_one_number_is_refused(loss, said):
    with pytest.raises(UsageError, match=said):
        train(One(), [(X, Y)], loss)


class Forgetful(One):
    """A model that lacks a return."""

    def forward(self, x):
        self.layer(x)


def test_a_model_that_returns_nothing_and_a_loader_that_yields_none_are_refused():
    with pytest.raises(UsageError, match=r"Forgetful.forward returned None: does it lack a `return`"):
        train(Forgetful(), [(X, Y)])
    with pytest.raises(UsageError, match="gave None instead of a batch"):
        train(One(), [(X, Y), None])
    with pytest.raises(UsageError, match="gave None instead of a batch"):
        train(One(), [(X, Y)], val_data_loader=[None])
    with pytest.raises(UsageError, match="one part has no targets"):
        train(One(), [(X,)])


@metric(lower_is_better=True, over="examples")
def plain_error(judged):
    """The mean distance, as a number."""
    return (judged.output - judged.batch[1]).abs().mean()


@metric(lower_is_better=True, over="examples")
class ErrorAbove:
    """The share of examples that are further off than a limit."""

    limit: float = 0.5
    name: str = "error_above"

    def __call__(self, judged: DecodedBatch) -> RunningSums:
        """The share, as sums."""
        off = (judged.output - judged.batch[1]).abs() > self.limit
        return RunningSums(off.sum(), off.numel())


def test_a_metric_that_returns_a_number_is_averaged_over_the_examples():
    batches = [(X, Y), (X[:2], Y[:2])]
    trainer = train(One(), batches, metrics=[plain_error], val_data_loader=batches)
    with torch.no_grad():
        errors = [(trainer.model(x) - y).abs().squeeze(1) for x, y in batches]
    assert trainer.performance_measures["val_plain_error"] == pytest.approx(torch.cat(errors).mean().item(), rel=1e-5)


@pytest.mark.parametrize("returned", [{"a": 1}, None, "good", torch.ones(3), [1.0]])
def test_a_metric_that_returns_nonsense_is_refused_by_name(returned):
    @metric(lower_is_better=True, over="examples")
    def odd(judged):
        """Nonsense."""
        return returned

    with pytest.raises(UsageError, match=r"The metric `odd` returned .* A metric returns Sums"):
        train(One(), [(X, Y)], metrics=[odd])


def test_a_class_of_metrics_is_a_metric_and_is_saved(tmp_path):
    trainer = make_trainer(
        metrics=[ErrorAbove(limit=0.1), ErrorAbove(limit=0.9, name="far_off")], epochs=1, callbacks=[]
    )
    trainer.start_training()
    assert {"val_error_above", "val_far_off"} <= set(trainer.performance_measures)
    save(trainer, tmp_path / "saved")
    assert [each.limit for each in load(tmp_path / "saved").metrics] == [0.1, 0.9]
    with pytest.raises(UsageError, match=r"is the class of a metric; give the trainer an object: ErrorAbove\(\)"):
        train(One(), [(X, Y)], metrics=[ErrorAbove])
    with pytest.raises(UsageError, match="Two metrics are called 'error_above'"):
        train(One(), [(X, Y)], metrics=[ErrorAbove(), ErrorAbove(limit=0.9)])


class Report(AbstractCallback):
    """The callback of seed text 002: predictions of all sets at the end of an epoch."""

    def on_epoch_end(self, moment: Moment) -> None:
        """Predict."""
        context = moment.context
        loaders = (context.train_data_loader, context.val_data_loader, context.test_data_loader)
        self.found = [context.predict(loader) for loader in loaders]


def classes(count=10):
    labels = torch.arange(count) % 2
    return DataLoader(TensorDataset(torch.randn(count, 3) + labels[:, None], labels), batch_size=4)


def test_predictions_of_a_classifier_come_out_on_every_loader():
    report = Report()
    train(nn.Linear(3, 2), classes(10), nn.CrossEntropyLoss(), val_data_loader=classes(7), test_data_loader=classes(5),
          callbacks=[report])  # fmt: skip
    assert [len(each) for each in report.found] == [10, 7, 5]
    assert [each.id for each in report.found[2]] == ["0", "1", "2", "3", "4"]
    assert [int(each.reference) for each in report.found[2]] == [0, 1, 0, 1, 0]
    assert all(each.hypothesis.shape == (2,) for each in report.found[0])


def test_a_classifier_that_collapsed_is_stopped():
    class Constant(nn.Linear):
        def forward(self, x):
            return super().forward(0 * x)

    same = AllPredictionsSame(patience=2)
    trainer = ModelTrainer(Constant(3, 2), nn.CrossEntropyLoss(), 9, classes(), classes(), callbacks=[same])
    trainer.start_training()
    assert trainer.epoch < 3
    assert same.in_a_row == 2
    learning = ModelTrainer(
        nn.Linear(3, 2), nn.CrossEntropyLoss(), 3, classes(), classes(), callbacks=[AllPredictionsSame()]
    )
    learning.start_training()
    assert learning.epoch == 3


def test_predictions_that_cannot_be_told_apart_are_one_for_each_batch():
    class Pooled(One):
        def forward(self, x):
            return self.layer(x).mean()

    trainer = train(Pooled(), [(X, Y), (X, Y)], lambda output, targets: output.square())
    assert len(trainer.predict([(X, Y), (X, Y)])) == 2
