"""Parameter groups by pattern: which parameters get which settings, and what is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from sonosco_like import dumps, loads
from sonosco_like.errors import ConfigError, UsageError
from sonosco_like.optim import SGD, AdamW, CyclicLR, Noam, OneCycleLR, Optimizer, ParameterGroup, Scheduler, StepLR

CONFIG = """
class: AdamW
lr: 1e-3
groups:
- {pattern: "*.bias", weight_decay: 0.0}
- {pattern: "encoder.*", lr: 1e-4}
"""


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"encoder": nn.Linear(2, 2), "head": nn.Linear(2, 2)})


def built(text: str = CONFIG) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = make_model()
    return model, loads(text, Optimizer).build(model.named_parameters())


def test_the_first_pattern_that_fits_decides_and_the_rest_has_the_optimizers_settings():
    model, optimizer = built()
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = {
        group["name"]: ([names[each] for each in group["params"]], group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
    }
    assert found == {
        "rest": (["head.weight"], 1e-3, 0.01),
        "bias": (["encoder.bias", "head.bias"], 1e-3, 0.0),
        "encoder": (["encoder.weight"], 1e-4, 0.01),
    }


def test_every_parameter_is_in_one_group_and_no_empty_group_is_left():
    model, optimizer = built('class: SGD\ngroups: [{pattern: "*", lr: 0.5}]')
    assert [group["lr"] for group in optimizer.param_groups] == [0.5]
    assert len(optimizer.param_groups[0]["params"]) == len(list(model.parameters()))


def test_groups_come_back_from_yaml():
    record = AdamW(groups=[ParameterGroup(pattern="*.bias", betas=(0.8, 0.9))])
    assert loads(dumps(record)).groups[0].settings() == {"betas": (0.8, 0.9)}


def test_names_without_groups_are_plain_parameters():
    model = make_model()
    groups = AdamW().build(model.named_parameters()).param_groups
    assert [list(group["params"]) for group in groups] == [list(model.parameters())]
    assert "name" not in groups[0]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("encodr.*", r"The pattern 'encodr\.\*' fits no parameter; did you mean 'encoder\.\*'\?"),
        ("*.bais", r"did you mean '\*\.bias'\?"),
        ("nonsense", r"There are encoder\.weight, encoder\.bias, head\.weight and 1 more\."),
    ],
)
def test_a_pattern_that_fits_nothing_is_refused_with_a_near_one(pattern, message):
    with pytest.raises(UsageError, match=message):
        AdamW(groups=[ParameterGroup(pattern=pattern)]).build(make_model().named_parameters())


def test_a_pattern_whose_parameters_are_all_taken_is_refused():
    groups = [ParameterGroup(pattern="*"), ParameterGroup(pattern="*.bias", lr=1.0)]
    with pytest.raises(UsageError, match=r"patterns before '\*\.bias' match all of its"):
        SGD(groups=groups).build(make_model().named_parameters())


def test_parameters_without_names_cannot_be_grouped():
    with pytest.raises(UsageError, match=r"build\(model\.named_parameters\(\)\)"):
        SGD(groups=[ParameterGroup(pattern="*")]).build(make_model().parameters())


def test_a_setting_the_optimizer_does_not_have_is_refused_when_the_config_is_read():
    with pytest.raises(ConfigError, match="sets `betas`, which SGD does not have"):
        loads('class: SGD\ngroups: [{pattern: "*", betas: [0.1, 0.2]}]')
    with pytest.raises(ConfigError, match="did you mean 'weight_decay'"):
        loads('class: SGD\ngroups: [{pattern: "*", weight_dekay: 0.1}]')


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    sum(parameter.square().sum() for parameter in model.parameters()).backward()
    optimizer.step()
    optimizer.zero_grad()


def test_the_state_of_grouped_parameters_is_restored():
    model, optimizer = built()
    step(model, optimizer)
    again, restored = built()
    again.load_state_dict(model.state_dict())
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each in ((model, optimizer), (again, restored)):
        step(*each)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert [group["name"] for group in restored.param_groups] == ["rest", "bias", "encoder"]


@pytest.mark.parametrize(
    "scheduler",
    [
        StepLR(step_size=2),
        Noam(warmup=3),
        OneCycleLR(max_lr=0.01, total_steps=9),
        CyclicLR(base_lr=1e-4, max_lr=1e-2, step_size_up=3, cycle_momentum=False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_schedule_keeps_the_proportion_of_the_groups(scheduler: Scheduler):
    _, optimizer = built()
    schedule, rates = scheduler.build(optimizer), []
    for _ in range(6):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    assert len({rest for rest, _, _ in rates}) > 1
    assert all(encoder == pytest.approx(rest / 10) for rest, _, encoder in rates)
