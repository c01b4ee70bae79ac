"""Optimizer and schedule records say what torch's own classes take, and build them."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
import torch
from torch.optim import lr_scheduler as schedules

from sonosco_like import dumps, loads, optim, serializable
from sonosco_like.errors import ConfigError
from sonosco_like.optim import AdamW, LinearLR, Optimizer, Schedule, Scheduler, SequentialLR, StepLR
from sonosco_like.serialization import REGISTRY

IMPLEMENTATION = {"params", "foreach", "capturable", "differentiable"}
RUN_TIME = {"optimizer", "last_epoch", "verbose"}
OPTIMIZERS = [entry.target for entry in REGISTRY.subclasses(Optimizer) if entry.target is not Optimizer]
SCHEDULERS = [
    entry.target
    for entry in REGISTRY.subclasses(Scheduler)
    if entry.target is not Scheduler and not issubclass(entry.target, Schedule)
]


@serializable
def halved(step: int) -> float:
    return 0.5**step


EXAMPLES = {
    "StepLR": {"step_size": 3},
    "MultiStepLR": {"milestones": [2, 4]},
    "ExponentialLR": {"gamma": 0.9},
    "ConstantLR": {"total_iters": 7},
    "CosineAnnealingLR": {"T_max": 10},
    "CosineAnnealingWarmRestarts": {"T_0": 4},
    "CyclicLR": {"base_lr": 1e-4, "max_lr": 1e-2, "step_size_up": 6, "mode": "triangular2"},
    "OneCycleLR": {"max_lr": 1e-2, "total_steps": 20},
    "LambdaLR": {"lr_lambda": halved},
    "MultiplicativeLR": {"lr_lambda": halved},
    "SequentialLR": {"schedulers": [LinearLR(), LinearLR()], "milestones": [5]},
    "ChainedScheduler": {"schedulers": [LinearLR(), StepLR(step_size=3)]},
}
TORCH_SCHEDULERS = {
    "SequentialLR": lambda optimizer: [schedules.LinearLR(optimizer), schedules.LinearLR(optimizer)],
    "ChainedScheduler": lambda optimizer: [schedules.LinearLR(optimizer), schedules.StepLR(optimizer, 3)],
}


def _torch_arguments(cls: type, without: set[str]) -> dict:
    parameters = inspect.signature(cls).parameters
    return {name: p.default for name, p in parameters.items() if name not in without}


def _record_arguments(cls: type) -> dict:
    empty, missing = inspect.Parameter.empty, dataclasses.MISSING
    fields = [field for field in dataclasses.fields(cls) if field.name not in ("groups", "layer_decay")]
    return {field.name: empty if field.default is missing else field.default for field in fields}


@pytest.mark.parametrize("record", OPTIMIZERS, ids=lambda cls: cls.__name__)
def test_an_optimizer_record_has_the_arguments_and_defaults_of_torch(record):
    assert _record_arguments(record) == _torch_arguments(getattr(torch.optim, record.__name__), IMPLEMENTATION)


@pytest.mark.parametrize("record", SCHEDULERS, ids=lambda cls: cls.__name__)
def test_a_scheduler_record_has_the_arguments_and_defaults_of_torch(record):
    theirs = _torch_arguments(getattr(torch.optim.lr_scheduler, record.__name__), RUN_TIME)
    assert _record_arguments(record) == theirs


@pytest.mark.parametrize("record", OPTIMIZERS, ids=lambda cls: cls.__name__)
def test_an_optimizer_from_yaml_takes_a_step(record):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = loads(dumps(record(lr=0.1)), Optimizer).build([weight])
    assert type(optimizer) is getattr(torch.optim, record.__name__)
    weight.sum().backward()
    optimizer.step()
    assert not torch.equal(weight, torch.ones(3))


@pytest.mark.parametrize("record", SCHEDULERS, ids=lambda cls: cls.__name__)
def test_a_schedule_from_yaml_is_the_one_torch_makes(record):
    name, ours, theirs = record.__name__, _sgd(), _sgd()
    settings = dict(EXAMPLES.get(name, {}))
    built = loads(dumps(record(**settings)), Scheduler).build(ours)
    if name in TORCH_SCHEDULERS:
        settings["schedulers"] = TORCH_SCHEDULERS[name](theirs)
    expected = getattr(schedules, name)(optimizer=theirs, **settings)
    assert type(built) is type(expected)
    rates = _rates(ours, built, 20)
    assert rates == _rates(theirs, expected, 20)
    assert len(set(rates)) > 1


def _sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)


def _rates(optimizer: torch.optim.Optimizer, scheduler: schedules.LRScheduler, steps: int) -> list[float]:
    rates = [optimizer.param_groups[0]["lr"]]
    while len(rates) < steps:
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def test_parameter_groups_are_passed_on():
    groups = [
        {"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.5},
        {"params": [torch.nn.Parameter(torch.ones(1))]},
    ]
    assert [group["lr"] for group in AdamW(lr=0.1).build(groups).param_groups] == [0.5, 0.1]


def test_a_misspelt_setting_is_named_with_a_suggestion():
    with pytest.raises(ConfigError, match="AdamW has no field 'weight_dekay'; did you mean 'weight_decay'"):
        loads("class: AdamW\nweight_dekay: 0.1")


def test_milestones_must_fit_the_schedulers():
    with pytest.raises(ValueError, match="1 for 2 schedulers, got 0"):
        SequentialLR(schedulers=[LinearLR(), LinearLR()], milestones=[])


def test_every_optimizer_of_torch_that_trains_dense_networks_is_there():
    classes = [cls for cls in vars(torch.optim).values() if isinstance(cls, type)]
    theirs = {cls.__name__ for cls in classes if issubclass(cls, torch.optim.Optimizer)}
    # ASGD and LBFGS need another loop, SparseAdam sparse gradients; Adafactor and Muon are not in every torch.
    left_out = {"ASGD", "LBFGS", "SparseAdam", "Adafactor", "Muon", "Optimizer"}
    assert {cls.__name__ for cls in OPTIMIZERS} == theirs - left_out
    assert set(optim.__all__) >= {cls.__name__ for cls in OPTIMIZERS + SCHEDULERS}
