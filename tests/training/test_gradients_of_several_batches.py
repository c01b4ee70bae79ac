"""Batches that share a step, in one process or in several, give the gradients of one large batch."""

from __future__ import annotations

import logging

import pytest
import torch
from tiny import Diary, SaveAt, make_trainer, squared_error
from torch import nn

from sonosco_like import load
from sonosco_like.events import AbstractCallback, Stop
from sonosco_like.losses import CrossEntropyLoss, CTCLoss, JointLoss
from sonosco_like.models import LAS, Listener, Speller
from sonosco_like.optim import SGD
from sonosco_like.records import Batch
from sonosco_like.training import ModelTrainer, seed_everything

SIZES = [8, 3, 5, 2, 7]  # of the batches of an epoch; two, two and one share a step
SMALL = 0.02  # inputs whose gradients float16 can hold when they are scaled
LABELS = [(9, 12), (30, 38, 35), (4,), (20, 3), (1, 2, 3)]  # of the utterances of the batches of an epoch


class Gradients(Diary):
    """Keeps the gradients of each step before they are clipped."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.norms = [], []

    def on_event(self, moment) -> None:
        if moment.event == "clip_gradients_start":
            found = [each.grad for each in moment.context.model.parameters() if each.grad is not None]
            self.steps.append(torch.cat([each.flatten() for each in found]))

    def __call__(self, epoch, step, performance_measures, context) -> None:
        pass


def pairs(scale: float = 1.0) -> list:
    generator = torch.Generator().manual_seed(5)
    inputs = [torch.randn(size, 4, generator=generator) * (1 + number) * scale for number, size in enumerate(SIZES)]
    return [(each, each.sum(1, keepdim=True)) for each in inputs]


def utterances() -> list[Batch]:
    generator = torch.Generator().manual_seed(5)
    return [batch_of([(length, generator) for length in lengths]) for lengths in LABELS]


def batch_of(rows) -> Batch:
    labels = [torch.randint(4, 9, (length,), generator=generator) for length, generator in rows]
    features = [torch.randn(8 * len(each) + 8, 3, generator=rows[0][1]) for each in labels]
    return padded(features, labels)


def padded(features, labels) -> Batch:
    return Batch(
        nn.utils.rnn.pad_sequence(features, batch_first=True),
        torch.tensor([len(each) for each in features]),
        nn.utils.rnn.pad_sequence(labels, batch_first=True),
        torch.tensor([len(each) for each in labels]),
    )


def joined(batches):
    """The one large batch."""
    if isinstance(batches[0], Batch):
        features = [row[:n] for b in batches for row, n in zip(b.features_BTF, b.feature_lengths_B, strict=True)]
        return padded(features, [r[:n] for b in batches for r, n in zip(b.labels_BU, b.label_lengths_B, strict=True)])
    return tuple(torch.cat(parts) for parts in zip(*batches, strict=True))


def trained(model, loss, batches, **changes) -> tuple[ModelTrainer, Gradients]:
    seen = Gradients()
    fields = {"callbacks": [seen], "val_data_loader": None, "scheduler": None, "epochs": 1, "test_step": None}
    fields["optimizer"] = SGD(lr=0.01)
    trainer = make_trainer(model=model, loss=loss, train_data_loader=batches, **{**fields, **changes})
    trainer.start_training()
    return trainer, seen


def linear() -> nn.Module:
    seed_everything(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def las() -> LAS:
    seed_everything(1)
    return LAS(
        vocabulary_size=9,
        features=3,
        encoder=Listener(hidden_size=4, layers=2, dropout=0.0),
        attention_decoder=Speller(hidden_size=4, dropout=0.0),
        ctc=True,
    )


CASES = {
    "plain": (linear, squared_error, pairs),
    "ctc": (las, CTCLoss(), utterances),
    "ctc of utterances": (las, CTCLoss(weighted_by="utterances"), utterances),
    "cross entropy": (las, CrossEntropyLoss(), utterances),
    "joint": (las, JointLoss(), utterances),
    "joint of utterances": (
        las,
        JointLoss(ctc=CTCLoss(weighted_by="utterances"), attention=CrossEntropyLoss(weighted_by="utterances")),
        utterances,
    ),
}


@pytest.mark.parametrize("changes", [{}, {"clip_grads": 0.3, "clip_values": 0.01}], ids=str)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("together", [2, 3, 9])
def test_batches_that_share_a_step_are_one_large_batch(case, together, changes):
    model, loss, data = CASES[case]
    batches = data()
    groups = [joined(batches[first : first + together]) for first in range(0, len(batches), together)]
    several, seen = trained(model(), loss, batches, accumulate_gradients=together, **changes)
    large, expected = trained(model(), loss, groups, **changes)
    assert len(seen.steps) == len(groups)  # the last of which is not full
    for found, wanted in zip(seen.steps, expected.steps, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
    norms = [each.performance_measures["gradient_norm"] for each in (several, large)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)


class Tagger(nn.Module):
    """Scores of three classes, for every frame of sequences of any length."""

    def __init__(self) -> None:
        super().__init__()
        seed_everything(1)
        self.scores = nn.Linear(2, 3)

    def forward(self, frames):
        return self.scores(frames).transpose(1, 2)


def tagged(rows: int, length: int, frames: int) -> tuple:
    """Sequences with a tag for each frame, of which the last ones are padding."""
    generator = torch.Generator().manual_seed(length)
    tags = torch.randint(0, 3, (rows, frames), generator=generator)
    tags[:, length:] = -100
    return torch.randn(rows, frames, 2, generator=generator), tags


TORCH_LOSSES = [
    nn.CrossEntropyLoss(),
    nn.CrossEntropyLoss(torch.tensor([1.0, 5.0, 0.1])),
    nn.CrossEntropyLoss(label_smoothing=0.1),
    nn.functional.cross_entropy,
]


@pytest.mark.parametrize("loss", TORCH_LOSSES, ids=["plain", "weighted", "smoothed", "function"])
def test_losses_of_torch_count_for_the_targets_they_are_a_mean_over(loss):
    batches = [tagged(2, 3, 9), tagged(3, 8, 9), tagged(1, 9, 9)]
    _, seen = trained(Tagger(), loss, batches, accumulate_gradients=3)
    _, expected = trained(Tagger(), loss, [joined(batches)])
    torch.testing.assert_close(seen.steps[0], expected.steps[0])


def test_a_loss_of_torch_that_is_a_mean_over_numbers_counts_all_of_them():
    batches = [(torch.randn(2, length, 4), torch.randn(2, length, 1)) for length in (2, 9)]
    _, seen = trained(linear(), nn.MSELoss(), batches, accumulate_gradients=2)
    model = linear()
    flat = [torch.cat([part.flatten(0, 1) for part in parts]) for parts in zip(*batches, strict=True)]
    nn.functional.mse_loss(model(flat[0]), flat[1]).backward()
    torch.testing.assert_close(seen.steps[0], torch.cat([each.grad.flatten() for each in model.parameters()]))


def test_a_loss_that_is_a_sum_is_said_not_to_add_up(caplog):
    trained(linear(), nn.MSELoss(reduction="sum"), pairs(), accumulate_gradients=2)
    assert "The loss MSELoss is a sum over a batch" in caplog.text


def test_a_parameter_that_only_some_batches_use_counts_for_those():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            seed_everything(1)
            self.always, self.seldom = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, inputs):
            rows = torch.arange(len(inputs)).unsqueeze(1) if len(inputs) > 3 else torch.zeros(len(inputs), 1) - 1
            seldom = self.seldom(inputs) * (rows >= 0) if len(inputs) > 3 else 0.0
            return self.always(inputs) + seldom

    batches = pairs()[:2]  # of 8 and of 3
    _, seen = trained(Sometimes(), squared_error, batches, accumulate_gradients=2)
    model = Sometimes()
    sum((squared_error(model(x), y) * len(x) / 11 for x, y in batches), torch.zeros(())).backward()
    torch.testing.assert_close(seen.steps[0], torch.cat([each.grad.flatten() for each in model.parameters()]))


def test_gradients_of_float16_are_weighed_too():
    batches = pairs(SMALL)[:4]
    _, seen = trained(linear(), squared_error, batches, accumulate_gradients=4, precision="float16")
    _, expected = trained(linear(), squared_error, [joined(batches)])
    torch.testing.assert_close(seen.steps[0], expected.steps[0], rtol=2e-2, atol=1e-4)


def test_a_batch_that_is_left_out_has_no_weight_in_its_group(caplog):
    batches = pairs()
    batches.insert(1, (torch.full((6, 4), torch.nan), torch.zeros(6, 1)))
    with caplog.at_level(logging.ERROR):
        _, seen = trained(linear(), squared_error, batches, accumulate_gradients=2, non_finite="skip")
    _, expected = trained(linear(), squared_error, pairs(), accumulate_gradients=2)
    for found, wanted in zip(seen.steps, expected.steps, strict=True):
        torch.testing.assert_close(found, wanted)


class StopsBatch(AbstractCallback):
    """Ends one batch at one event."""

    def __init__(self, event, at) -> None:
        self.event, self.at = event, at

    def on_event(self, moment) -> None:
        if moment.event == self.event and moment.context.step == self.at:
            raise Stop("enough of this batch", "batch")


@pytest.mark.parametrize(("event", "counted"), [("loss_end", [0, 1, 3]), ("backward_end", [0, 1, 2, 3])])
def test_a_stop_in_the_midst_of_a_group_leaves_the_mean_of_what_was_learnt_from(event, counted):
    seen = Gradients()
    changes = {"accumulate_gradients": 3, "callbacks": [seen, StopsBatch(event, 2)]}
    trained(linear(), squared_error, pairs()[:4], **changes)
    _, expected = trained(linear(), squared_error, [joined([pairs()[number] for number in counted])])
    torch.testing.assert_close(seen.steps[0], expected.steps[0])


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("event", ["clip_gradients_start", "clip_gradients_end"])
def test_a_step_that_a_stop_interrupts_is_left_out(event, precision):
    seen = Gradients()
    fields = {"callbacks": [seen, StopsBatch(event, 1)], "precision": precision}
    trainer, _ = trained(linear(), squared_error, pairs(SMALL), accumulate_gradients=2, **fields)
    assert trainer.global_step == 5
    assert all(weight.isfinite().all() for weight in trainer.model.parameters())
    _, expected = trained(linear(), squared_error, pairs(SMALL)[2:], accumulate_gradients=2, precision=precision)
    for found, wanted in zip(seen.steps[1:], expected.steps, strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=1e-4)


def test_the_weights_of_a_group_are_saved_with_its_gradients(tmp_path):
    path = tmp_path / "saved"
    whole = make_trainer(accumulate_gradients=4, callbacks=[SaveAt(at=3, path=path)])
    whole.start_training()
    resumed = load(path)
    assert resumed.parts.optimization.state_dict()["weight"] == 24.0
    resumed.continue_training()
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name


def test_gradients_that_a_former_version_saved_are_taken_as_they_were_meant():
    trainer = make_trainer(accumulate_gradients=4, max_duration="3ba", val_data_loader=None)
    trainer.start_training()
    content = trainer.parts.optimization.state_dict()
    former = {name: value for name, value in content.items() if name != "weight"}
    former["gradients"] = {name: gradient * 3 / 4 for name, gradient in content["gradients"].items()}
    trainer.parts.optimization.load_state_dict(former, 4)
    for name, gradient in trainer.parts.optimization.state_dict()["gradients"].items():
        torch.testing.assert_close(gradient, content["gradients"][name])
    trainer.parts.optimization.set_weight(8.0)
    trainer.parts.optimization.backward(squared_error(trainer.model(torch.ones(8, 4)), torch.ones(8, 1)))
    assert (trainer.parts.optimization.pending, trainer.parts.optimization.weight) == (4, 32.0)
