"""The trainer: what it does to weights and measures, when it stops, and what it refuses."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from tiny import Diary, Sums, make_trainer, squared_error
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sonosco_like import dumps, loads
from sonosco_like.errors import UsageError
from sonosco_like.events import CallbackError, Stop
from sonosco_like.metrics import Sums as RunningSums
from sonosco_like.metrics import metric
from sonosco_like.optim import SGD, AdamW
from sonosco_like.training import ModelTrainer, seed_everything


def start(trainer: ModelTrainer) -> ModelTrainer:
    """Train with the random numbers that follow from one seed."""
    seed_everything(4)
    trainer.start_training()
    return trainer


def bare_loop(model: nn.Module, epochs: int, accumulate: int = 1, clip: float | None = None) -> nn.Module:
    """What the trainer should do, in plain PyTorch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = Sums()
    for epoch in range(epochs):
        data.set_epoch(epoch)
        pending = examples = 0
        for inputs, targets in data:
            loss = squared_error(model(inputs), targets)
            before, examples, pending = examples, examples + len(inputs), pending + 1
            if before:
                torch._foreach_mul_([each.grad for each in model.parameters()], before / examples)
                loss = loss * (len(inputs) / examples)
            loss.backward()
            if pending == accumulate:
                _step(model, optimizer, clip)
                pending = examples = 0
        if pending:
            _step(model, optimizer, clip)
    return model


def _step(model, optimizer, clip):
    if clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize(("accumulate", "clip"), [(1, None), (1, 0.5), (2, None), (3, 0.5)])
def test_training_is_the_bare_loop_bit_for_bit(accumulate, clip):
    trainer = make_trainer(scheduler=None, accumulate_gradients=accumulate, clip_grads=clip)
    model = copy.deepcopy(trainer.model)
    seed_everything(4)
    expected = bare_loop(model, 4, accumulate, clip)
    start(trainer)
    for name, parameter in trainer.model.state_dict().items():
        assert torch.equal(parameter, expected.state_dict()[name]), name


def test_any_module_and_any_iterable_of_pairs_will_do():
    inputs = torch.randn(16, 4)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=4)
    trainer = ModelTrainer(
        model=nn.Linear(4, 1), loss=nn.functional.mse_loss, epochs=30, train_data_loader=loader, optimizer=SGD(lr=0.1)
    )
    trainer.start_training()
    assert trainer.performance_measures["loss"] < 0.05
    assert trainer.global_step == 120


def test_the_running_loss_is_the_mean_over_all_examples_so_far():
    seen = []
    batches = []

    class Spy(Diary):
        def on_loss_end(self, moment):
            seen.append((moment.result.item(), len(moment.args["batch"][1])))

        def __call__(self, epoch, step, performance_measures, context):
            batches.append((epoch, step, performance_measures["loss"]))

    make_trainer(callbacks=[Spy()], epochs=1).start_training()
    total = weight = 0.0
    for (loss, count), (_, _, running) in zip(seen, batches, strict=True):
        total, weight = total + loss * count, weight + count
        assert running == pytest.approx(total / weight, rel=1e-12)
    assert [step for _, step, _ in batches] == [0, 1, 2, 3, 4]
    assert seen[-1][1] == 3


def test_validation_happens_every_test_step_and_at_each_epochs_end_but_never_twice():
    diary = Diary()
    trainer = make_trainer(callbacks=[diary], test_step=5, epochs=2)
    trainer.start_training()
    assert diary.heard.count("validation_end") == 2
    diary = Diary()
    make_trainer(callbacks=[diary], test_step=2, epochs=2).start_training()
    assert diary.heard.count("validation_end") == 6  # after 2, 4, 5 (end), 6, 8, 10 (end)


def test_validation_changes_nothing_in_training():
    with_validation, without = start(make_trainer()), start(make_trainer(val_data_loader=None))
    assert with_validation.callbacks[0].losses == without.callbacks[0].losses


def test_evaluating_on_the_training_data_in_mid_epoch_keeps_the_place():
    class Evaluating(Diary):
        def on_batch_end(self, moment):
            moment.context.evaluate(moment.context.train_data_loader)

    trainer, plain = start(make_trainer(callbacks=[Evaluating()])), start(make_trainer())
    assert trainer.callbacks[0].losses == plain.callbacks[0].losses


class Stopping(Diary):
    """Raises a Stop at one event."""

    def __init__(self, event, scope="training", at=7):
        super().__init__()
        self.event, self.scope, self.at = event, scope, at

    def on_event(self, moment):
        super().on_event(moment)
        if moment.event == self.event and moment.context.global_step >= self.at:
            self.at = 10**9
            raise Stop("enough", self.scope)


def test_a_stop_takes_effect_after_everybody_heard_the_event():
    stopping, after = Stopping("batch_end"), Diary()
    trainer = make_trainer(callbacks=[stopping, after])
    trainer.start_training()
    assert trainer.global_step == 7
    assert after.heard[-3:] == ["batch_end", "epoch_end", "training_end"]
    assert stopping.heard == after.heard


@pytest.mark.parametrize("event", ["forward_start", "loss_end", "backward_end", "optimizer_step_end", "fetch_end"])
def test_a_stop_anywhere_in_a_batch_ends_the_training(event):
    trainer = make_trainer(callbacks=[Stopping(event)])
    trainer.start_training()
    assert trainer.epoch == 1
    assert trainer.global_step in (7, 8)


def test_a_stop_for_the_epoch_goes_on_with_the_next_one():
    trainer = make_trainer(callbacks=[Stopping("batch_end", "epoch")])
    trainer.start_training()
    assert (trainer.epoch, trainer.global_step) == (4, 7 + 10)


def test_a_stop_for_the_batch_leaves_out_only_that_batch():
    trainer = make_trainer(callbacks=[Stopping("forward_end", "batch"), Diary()])
    trainer.start_training()
    assert trainer.global_step == 20


@pytest.mark.parametrize("event", ["epoch_end", "validation_end"])
def test_a_stop_at_an_epochs_end_leaves_the_epoch_done(event):
    trainer = make_trainer(callbacks=[Stopping(event, at=5)], test_step=None)
    trainer.start_training()
    assert (trainer.epoch, trainer.batches_done) == (1, 0)
    trainer.set_callbacks([])
    trainer.continue_training()
    assert trainer.global_step == 20


@pytest.mark.parametrize("event", ["attach", "training_start", "training_end"])
def test_a_stop_outside_the_epochs_is_no_error(event):
    diary = Diary()
    make_trainer(callbacks=[Stopping(event, at=0), diary]).start_training()
    assert "error" not in diary.heard


def test_stop_training_ends_after_the_batch_under_way():
    class Asking(Diary):
        def on_forward_start(self, moment):
            if moment.context.global_step == 6:
                moment.context.stop_training()

    trainer = make_trainer(callbacks=[Asking()])
    trainer.start_training()
    assert trainer.global_step == 7


@pytest.mark.parametrize("clip", [None, 0.5])
def test_the_norm_of_the_gradients_is_measured_before_they_are_limited(clip):
    def norm(**changes):
        trainer = start(make_trainer(epochs=1, max_duration="1ba", **changes))
        return trainer.performance_measures["gradient_norm"]

    assert norm(clip_values=1e-4, clip_grads=clip) == norm() > 1


def test_an_exception_names_callback_and_event_closes_all_and_tells_the_others():
    closed = []

    class Failing(Diary):
        def on_backward_end(self, moment):
            raise RuntimeError("no more")

        def close(self):
            closed.append("failing")

    class Closing(Diary):
        def close(self):
            closed.append("closing")
            raise RuntimeError("close fails too")

    diary = Closing()
    with pytest.raises(CallbackError, match="Failing failed at backward_end: RuntimeError: no more"):
        make_trainer(callbacks=[Failing(), diary]).start_training()
    assert diary.heard[-1] == "error"
    assert sorted(closed) == ["closing", "failing"]


def test_a_callback_that_reads_what_nobody_computes_is_refused_at_the_start():
    class Reading(Diary):
        def measures_needed(self):
            return ["val_los"]

    with pytest.raises(UsageError, match=r"Reading reads 'val_los', which is not computed; did you mean 'val_loss'\?"):
        make_trainer(callbacks=[Reading()]).start_training()


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"epochs": 0}, "epochs"), ({"accumulate_gradients": 0}, "accumulate"), ({"test_step": 0}, "test_step")],
)
def test_impossible_settings_are_refused(changes, said):
    with pytest.raises(UsageError, match=said):
        make_trainer(**changes)


def test_a_trainer_that_has_begun_is_continued_not_started():
    trainer = make_trainer(max_duration="1ep")
    trainer.start_training()
    with pytest.raises(UsageError, match="continue_training"):
        trainer.start_training()


def test_learning_rates_follow_the_schedule_and_are_seen_on_the_optimizer():
    rates = []

    class Rates(Diary):
        def on_batch_end(self, moment):
            rates.append(moment.context.optimizer.param_groups[0]["lr"])

    make_trainer(callbacks=[Rates()], epochs=2).start_training()
    assert rates[:3] == pytest.approx([0.01 * (1 / 3 + 2 / 3 * step / 10) for step in (1, 2, 3)])
    assert rates[-1] == pytest.approx(0.01)


def test_bfloat16_autocast_trains():
    trainer = make_trainer(precision="bfloat16")
    trainer.start_training()
    assert trainer.performance_measures["loss"] < 20


def test_a_running_trainer_is_still_written_as_its_configuration():
    trainer = make_trainer()
    fresh = dumps(trainer, state=False)
    trainer.start_training()
    assert dumps(trainer, state=False) == fresh
    assert type(loads(fresh).optimizer) is AdamW


def test_a_foreign_loader_is_passed_over_when_continued_and_this_is_said(caplog):
    class Counting:
        def __iter__(self):
            return iter(copy.deepcopy(batches))

    data = Sums()
    batches = list(data)
    trainer = make_trainer(train_data_loader=Counting(), max_duration="7ba")
    trainer.start_training()
    trainer.max_duration = None
    with caplog.at_level(logging.WARNING):
        trainer.continue_training()
    assert "Counting cannot start at a position: 2 batches are read and skipped." in caplog.text
    assert trainer.global_step == 20


@metric(lower_is_better=True, over="examples")
def distance(judged):
    """The mean distance from the target."""
    return RunningSums((judged.output - judged.batch[1]).abs().sum(), judged.output.numel())


def test_metrics_can_be_added_and_replaced_between_trainings():
    trainer = make_trainer(epochs=1, callbacks=[])
    trainer.add_metric(distance)
    trainer.start_training()
    assert {"distance", "val_distance"} <= set(trainer.performance_measures)
    trainer.set_metrics([])
    assert trainer.metrics == []


IN_A_BATCH = ["fetch", "batch", "forward", "loss", "backward", "optimizer_step", "clip_gradients", "validation"]


class Logging(Diary):
    """Logs at every start and end of a stage, and remembers at which step it was written and heard."""

    def __init__(self):
        super().__init__()
        self.written, self.batch = [], []

    def on_event(self, moment):
        context = moment.context
        if moment.event == "log":
            self.written.append((*moment.args["values"], moment.args["epoch"], moment.args["step"]))
        elif moment.event.rsplit("_", 1)[0] in IN_A_BATCH and moment.event != "fetch_start":
            if moment.event == "fetch_end" and moment.result is None:
                return
            context.log({moment.event: 1.0})
            self.batch.append((moment.event, context.epoch))
        if moment.event in ("batch_end", "epoch_end"):
            self.heard += [(*each, context.global_step) for each in self.batch]
            self.batch.clear()
        if moment.event in ("epoch_start", "epoch_end", "training_start", "training_end", "fetch_start"):
            context.log({moment.event: 1.0})
            self.heard.append((moment.event, context.epoch, context.global_step))


def test_what_is_logged_in_a_batch_carries_its_step():
    class LogsItself(ModelTrainer):
        def forward(self, batch):
            self.log({"inside": 1.0})
            return super().forward(batch)

    ear = Logging()
    make_trainer(callbacks=[ear], epochs=2, test_step=2).start_training()
    ours = {name for name, _, _ in ear.written}
    assert {"forward_start", "backward_end", "clip_gradients_end", "validation_start", "batch_end"} <= ours
    assert sorted(ear.written) == sorted(ear.heard)
    ear = Logging()
    LogsItself(nn.Linear(4, 1), squared_error, 1, list(Sums()), callbacks=[ear]).start_training()
    assert [step for name, _, step in ear.written if name == "inside"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("scope", ["batch", "epoch", "training"])
@pytest.mark.parametrize("event", ["forward_end", "batch_end"])
def test_what_is_logged_after_a_stop_carries_the_step_of_the_batch_it_ended(event, scope):
    ear = Logging()
    make_trainer(callbacks=[Stopping(event, scope, at=6), ear], val_data_loader=None).start_training()
    steps = [step for name, _, step in ear.written if name not in ("epoch_start", "fetch_start")]
    assert steps == sorted(steps)
    ends = {name: step for name, _, step in ear.written}
    assert ends["training_end"] == max(step for _, _, step in ear.written)


@pytest.mark.parametrize("event", ["forward_end", "optimizer_step_end", "validation_end", "batch_end"])
def test_the_end_of_a_batch_that_a_stop_ended_is_heard_once(event):
    stopping, ear = Stopping(event, at=6), Diary()
    trainer = make_trainer(callbacks=[stopping, ear], test_step=1)
    trainer.start_training()
    trainer.continue_training()
    assert trainer.global_step == 20
    assert ear.heard.count("batch_end") == 20
    assert ear.heard.count("validation_end") <= 20
