"""A trainer in the midst of its work: what may change, what ends an epoch, and what its averages are taken over."""

from __future__ import annotations

import logging
from collections import Counter
from inspect import signature

import pytest
import torch
from tiny import Diary, Sums, make_trainer, squared_error
from torch import Tensor, nn

from sonosco_like import serializable, state
from sonosco_like.callbacks import LimitBatches
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Stop
from sonosco_like.metrics import Sums as RunningSums
from sonosco_like.metrics import metric
from sonosco_like.training import ModelTrainer
from sonosco_like.training.batches import weighing_of


@metric(lower_is_better=True, over="examples")
def gap(judged):
    """The mean distance from the target."""
    return RunningSums((judged.output - judged.batch[1]).abs().sum(), judged.output.numel())


@serializable
class Guest(AbstractCallback):
    """Counts what it hears and how often it was closed."""

    heard: list[str] = state([])
    closed: int = state(0)

    def on_event(self, moment):
        self.heard.append(moment.event)

    def close(self):
        self.closed += 1


def at_step(step, act):
    """A pair that does something with the trainer once, at the end of a batch."""
    done = []

    def look(moment):
        if moment.context.global_step == step and not done:
            done.append(step)
            act(moment.context)

    return ("batch_end", look)


# What averages are taken over


def y(count: int) -> Tensor:
    return torch.zeros(count, 3)


@pytest.mark.parametrize(
    ("batch", "examples"),
    [
        ((y(20), y(20)), 20),
        ((y(20), (y(20), torch.ones(20))), 20),
        ([y(20), [y(20), torch.ones(20)]], 20),  # what torch's DataLoader makes of it
        (({"x": y(20)}, {"y": y(20), "lengths": torch.ones(20)}), 20),
        ({"names": ["a"], "x": y(20), "y": y(20)}, 20),
        ((y(3), [y(7), y(5), y(6)]), 3),  # a target for each example, each of its own length
        ((y(3), ["a", "b", "c"]), 3),
        ((torch.zeros(3), torch.tensor(1.0)), 1),
        ((y(3), 1.0), 1),
    ],
)
def test_a_batch_weighs_as_much_as_it_has_examples(batch, examples):
    assert weighing_of(squared_error)(batch) == examples


def test_the_running_loss_of_batches_with_lengths_is_the_mean_over_examples():
    def loss(output, targets):
        return (output - targets[0]).square().mean()

    data = [(torch.full((n, 1), v), (torch.zeros(n, 1), torch.ones(n))) for n, v in ((2, 3.0), (20, 1.0))]
    trainer = ModelTrainer(Same(), loss, 1, data, data)
    trainer.start_training()
    assert trainer.performance_measures["val_loss"] == pytest.approx((2 * 9 + 20 * 1) / 22, rel=0.05)


class Same(nn.Module):
    """Returns what it gets; has a weight that does next to nothing."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, inputs):
        return inputs + self.weight


# What ends an epoch


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("placed", [True, False])
def test_a_fetch_hook_that_returns_none_ends_the_epoch(step, placed):
    diary = Diary()

    def end(moment):
        assert diary.heard.count("epoch_start") <= 2, "the epoch is entered again and again"
        if moment.context.step == step:
            moment.result = None

    data = Sums() if placed else list(Sums())
    trainer = make_trainer(epochs=2, train_data_loader=data, callbacks=[("fetch_end", end), diary])
    trainer.start_training()
    assert (trainer.epoch, trainer.batches_done, trainer.global_step) == (2, 0, 2 * step)
    assert Counter(diary.heard)["epoch_end"] == 2
    trainer.continue_training()
    assert trainer.global_step == 2 * step


def test_a_hook_may_keep_back_the_one_batch_there_is():
    trainer = make_trainer(epochs=2, train_data_loader=Sums(batches=1), callbacks=[("post-fetch", nothing)])
    trainer.start_training()
    assert (trainer.epoch, trainer.global_step) == (2, 0)


def nothing(trainer, return_value):
    """No batch."""


def test_empty_data_is_refused():
    with pytest.raises(UsageError, match=r"list, gave no batch in epoch 1\. The data is empty"):
        make_trainer(train_data_loader=[]).start_training()


def test_data_that_can_be_read_only_once_is_refused_when_it_is_over():
    trainer = make_trainer(train_data_loader=(batch for batch in list(Sums())))
    for _ in range(2):  # and again: the epoch is not taken for done
        with pytest.raises(UsageError, match=r"epoch 2\. Give something that can be iterated more than once"):
            trainer.continue_training()
        assert (trainer.epoch, trainer.position.is_read, trainer.global_step) == (1, False, 5)


def test_a_used_up_generator_is_refused_with_the_same_remedy():
    with pytest.raises(UsageError, match="iterated more than once"):
        make_trainer(train_data_loader=iter([])).start_training()


@pytest.mark.parametrize(
    "callback",
    [
        LimitBatches(train_batches=1),
        ("fetch_start", lambda moment: moment.args.update(batches=iter(()))),
        ("fetch_start", lambda moment: stop("epoch")),
        ("fetch_end", lambda moment: stop("epoch")),
        ("batch_start", lambda moment: stop("batch")),
        ("epoch_start", lambda moment: stop("epoch")),
    ],
)
def test_an_epoch_that_somebody_ended_early_is_not_taken_for_empty(callback):
    trainer = make_trainer(callbacks=[callback], epochs=2)
    trainer.start_training()
    assert trainer.epoch == 2


def stop(scope):
    raise Stop("enough", scope)


def test_an_epoch_that_was_read_to_its_end_before_a_stop_is_not_taken_for_empty():
    def end(moment):
        if moment.result is None and moment.context.epoch == 0:
            raise Stop("at the very end")

    trainer = make_trainer(train_data_loader=list(Sums()), callbacks=[("fetch_end", end)])
    trainer.start_training()
    assert (trainer.epoch, trainer.global_step) == (1, 5)
    trainer.continue_training()
    assert (trainer.epoch, trainer.global_step) == (4, 20)


# Changes in mid run


def test_a_metric_added_in_mid_run_is_computed_from_the_next_batch_on():
    seen = []
    trainer = make_trainer(epochs=1, val_data_loader=None)
    look = ("batch_end", lambda moment: seen.append("gap" in moment.context.performance_measures))
    trainer.set_callbacks([at_step(2, lambda trainer: trainer.add_metric(gap)), look])
    trainer.start_training()
    assert seen == [False, False, True, True, True]


def test_a_metric_taken_out_in_mid_run_is_computed_no_more():
    calls = []

    @metric(lower_is_better=True, over="examples")
    def counted(judged):
        """Notes that it was called."""
        calls.append(1)
        return RunningSums(0.0, 1.0)

    trainer = make_trainer(epochs=2, val_data_loader=None, metrics=[counted])
    trainer.set_callbacks([at_step(2, lambda trainer: trainer.set_metrics([]))])
    trainer.start_training()
    assert len(calls) == 2
    assert "counted" not in trainer.performance_measures


def test_only_the_callback_that_is_added_hears_attach():
    first, second = Guest(), Guest()
    trainer = make_trainer(epochs=1)
    trainer.set_callbacks([first, at_step(2, lambda trainer: trainer.add_callback(second))])
    trainer.start_training()
    assert first.heard.count("attach") == second.heard.count("attach") == 1
    assert second.heard[0] == "attach"
    assert (first.heard.count("batch_end"), second.heard.count("batch_end")) == (5, 3)
    assert (first.closed, second.closed) == (1, 1)


def test_a_callback_that_is_removed_is_closed_once_and_hears_nothing_more():
    gone, stays = Guest(), Guest()
    heard_until_closed = []

    def remove(trainer):
        trainer.remove_callback(gone)
        heard_until_closed.extend(gone.heard)
        assert (gone.closed, stays.closed) == (1, 0)

    trainer = make_trainer(callbacks=[at_step(2, remove), gone, stays])
    trainer.start_training()
    assert gone.heard == heard_until_closed
    assert (gone.closed, stays.closed) == (1, 1)
    assert stays.heard.count("attach") == 1


def test_a_callback_that_was_removed_can_come_back():
    guest = Guest()
    leave, enter = at_step(2, lambda t: t.remove_callback(guest)), at_step(4, lambda t: t.add_callback(guest))
    make_trainer(epochs=1, callbacks=[leave, enter, guest]).start_training()
    assert guest.heard.count("attach") == 2
    assert guest.heard.count("batch_end") == 2  # the first and the last
    assert guest.closed == 2


def test_a_callback_that_was_disabled_stays_so_when_others_change():
    class Failing(Guest):
        def on_forward_end(self, moment):
            raise RuntimeError("broken")

    failing = Failing(on_failure="disable")
    trainer = make_trainer(epochs=1, callbacks=[failing, at_step(2, lambda trainer: trainer.add_callback(Guest()))])
    trainer.start_training()
    assert failing.heard.count("forward_start") == 1
    assert "batch_end" not in failing.heard


def test_a_callback_that_cannot_be_heard_is_refused_and_changes_nothing():
    class Misspelt(AbstractCallback):
        def on_batch_ende(self, moment):
            """Never."""

    guest = Guest()

    def add(trainer):
        with pytest.raises(UsageError, match="would never be called"):
            trainer.set_callbacks([Misspelt()])

    trainer = make_trainer(epochs=1, callbacks=[at_step(2, add), guest])
    trainer.start_training()
    assert len(trainer.callbacks) == 2
    assert guest.heard.count("batch_end") == 5


def test_a_measure_put_in_at_validation_end_is_what_later_callbacks_see():
    seen = []
    put = ("validation_end", lambda moment: moment.context.update_metric("val_loss", 0.125))
    look = ("validation_end", lambda moment: seen.append(moment.context.performance_measures["val_loss"]))
    make_trainer(epochs=1, test_step=None, callbacks=[put, look]).start_training()
    assert seen == [0.125]


# Changes between two trainings


def test_max_duration_that_was_changed_is_honoured_when_training_goes_on():
    trainer = make_trainer(max_duration="4ba")
    trainer.start_training()
    trainer.max_duration = "8ba"
    trainer.continue_training()
    assert trainer.global_step == 8
    trainer.max_duration = None
    trainer.continue_training()
    assert trainer.global_step == 20


def test_test_step_that_was_changed_before_the_start_is_honoured():
    diary = Diary()
    trainer = make_trainer(epochs=1, test_step=None, callbacks=[diary])
    trainer.test_step = 2
    trainer.start_training()
    assert diary.heard.count("validation_end") == 3  # after 2, 4 and at the end


def test_a_duration_that_was_changed_to_nonsense_is_refused():
    trainer = make_trainer()
    trainer.max_duration = "soon"
    with pytest.raises(UsageError, match="'soon' is not a duration"):
        trainer.start_training()


# Stop


def test_a_stop_of_an_unknown_scope_is_refused():
    with pytest.raises(ValueError, match="one of batch, epoch, training, got 'trainig'"):
        Stop("x", scope="trainig")


@pytest.mark.parametrize("event", ["attach", "build_model_start", "training_start"])
@pytest.mark.parametrize("scope", ["epoch", "batch"])
def test_a_stop_of_an_epoch_or_batch_before_the_first_one_ends_the_training_and_says_so(event, scope, caplog):
    trainer = make_trainer(callbacks=[at_event(event, scope)])
    with caplog.at_level(logging.WARNING):
        trainer.start_training()
    assert trainer.global_step == 0
    assert f"A Stop with scope {scope!r} ended the training, because it was raised outside of any epoch." in caplog.text


def at_event(event, scope):
    return (event, lambda moment: stop(scope))


def test_arguments_come_in_the_order_of_the_contract():
    names = [
        name for name, each in signature(ModelTrainer).parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    assert names == [
        "model", "loss", "epochs", "train_data_loader", "val_data_loader", "test_data_loader", "decoder", "optimizer",
        "metrics", "callbacks", "device", "clip_grads", "test_step", "max_duration",
    ]  # fmt: skip
