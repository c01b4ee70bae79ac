"""A run that failed at any event of a batch, a validation or an epoch goes on as if it had not."""

from __future__ import annotations

import json
from dataclasses import field

import pytest
from event_records import records
from tiny import Sums, make_trainer

from sonosco_like import diff, serializable, state
from sonosco_like.callbacks import (
    EarlyStopping,
    GradMonitor,
    HistoryRecorder,
    LayerwiseGradientNorm,
    LogMeasures,
    MetricsFile,
    ModelCheckpoint,
    ReduceLROnPlateau,
    StepwiseLearningRateReduction,
    TensorBoardCallback,
)
from sonosco_like.events import AbstractCallback, Event
from sonosco_like.training import Experiment, ModelTrainer, open_run
from sonosco_like.training.experiment import RunFailedError

STAGES = [
    "fetch", "batch", "forward", "loss", "backward", "optimizer_step", "clip_gradients", "validation",
    "validation_batch", "prediction", "epoch",
]  # fmt: skip
EVENTS = [f"{stage}_{end}" for stage in STAGES for end in ("start", "end")] + ["log"]
CURED: list[bool] = []


@serializable
class Fails(AbstractCallback):
    """Raises at one event of one step, until it is mended."""

    event: str = "forward_end"
    at: int = 8

    def on_event(self, moment) -> None:
        if moment.event == self.event and moment.context.global_step == self.at and not CURED:
            raise RuntimeError("the disk of the cluster is on fire")


@serializable
class Part:
    """Something with a state of its own that a callback is made from."""

    count: int = state(0)


@serializable
class Counts(AbstractCallback):
    """Counts what it hears, here and there, and logs in the midst of a batch."""

    part: Part = field(default_factory=Part)
    counts: dict[str, int] = state({})
    nested: dict[str, list[int]] = state({"steps": []})

    def on_event(self, moment) -> None:
        if moment.event in EVENTS and moment.event not in ("epoch_start", "log"):
            self.counts[moment.event] = self.counts.get(moment.event, 0) + 1
            self.part.count += 1
        if moment.event == "backward_end":
            self.nested["steps"].append(moment.context.global_step)
            moment.context.log({"backwards": self.counts["backward_end"]})
        if moment.event == "validation_end":
            moment.context.update_metric("validations", self.counts["validation_end"])
        if moment.event == "loss_end":
            moment.context.update_metric("losses", self.counts["loss_end"])


@serializable
class CountingTrainer(ModelTrainer):
    """Has a state of its own, which its hooks and stages change."""

    seen: int = state(0)

    def on_loss_start(self, moment) -> None:
        self.seen += 1


@serializable
class CountingLoss:
    """A loss that counts."""

    calls: int = state(0)

    def __call__(self, output, target):
        self.calls += 1
        return (output - target).square().mean()


def trainer_of(event, at, **changes):
    callbacks = [
        Fails(event=event, at=at),
        Counts(part=Part()),
        GradMonitor(every=1),
        LayerwiseGradientNorm(),
        EarlyStopping(monitor="val_a_loss", patience=99),
        ReduceLROnPlateau(monitor="val_b_loss", patience=1, min_delta=1e9),
        StepwiseLearningRateReduction(epoch_steps=1, reduction_factor=0.9),
        LogMeasures(every="1ba"),
        HistoryRecorder(every="1ba"),
        MetricsFile(),
        TensorBoardCallback(),
        ModelCheckpoint(every="4ba", keep_last=99),
    ]
    plain = make_trainer()
    fields = {"loss": CountingLoss(), "val_data_loader": {"a": Sums(batches=2), "b": Sums(batches=1)}, "test_step": 3}
    fields |= {"scheduler": None, "clip_grads": 0.5}
    return CountingTrainer(
        model=plain.model, epochs=3, train_data_loader=Sums(), optimizer=plain.optimizer, callbacks=callbacks,
        **{**fields, **changes},
    )  # fmt: skip


def rows(folder):
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in found]


def differences(a, b):
    ignored = ("state.position.seconds", ".sizes", ".row.seconds", "callbacks[0]")
    return [str(found) for found in diff(a, b) if not any(word in found.path for word in ignored)]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Runs that never failed, by their settings."""
    made = {}

    def run(**changes):
        key = str(changes)
        if key not in made:
            CURED.append(True)
            folder = tmp_path_factory.mktemp("whole") / "run"
            experiment = Experiment(name="whole", trainer=trainer_of("", 0, **changes))
            experiment.start(folder)
            made[key] = experiment.trainer, folder
        return made[key]

    return run


@pytest.mark.parametrize(("at", "changes"), [(9, {}), (10, {}), (9, {"accumulate_gradients": 2})], ids=str)
@pytest.mark.parametrize("event", EVENTS)
def test_a_failure_at_any_event_counts_nothing_twice(event, at, changes, unbroken, tmp_path):
    whole, folder = unbroken(**changes)
    CURED.clear()
    try:
        Experiment(name="whole", trainer=trainer_of(event, at, **changes)).start(tmp_path / "run")
    except RunFailedError:
        CURED.append(True)
        experiment, _ = open_run(tmp_path / "run")
        experiment.resume()
        assert differences(whole, experiment.trainer) == []
    assert rows(tmp_path / "run") == rows(folder)
    assert records(tmp_path / "run" / "tensorboard") == records(folder / "tensorboard")


def test_every_event_of_a_batch_a_validation_and_an_epoch_is_tried():
    others = ("init", "attach", "build", "load_data", "process_data", "split_data", "create_loader")
    others += ("training", "checkpoint", "error")
    assert {event.value for event in Event if not event.value.startswith(others)} == set(EVENTS)
