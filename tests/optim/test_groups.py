"""Parameter groups by pattern: which parameters get which settings, and what is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny_speech import differences, whole_and_resumed
from torch import nn

from sonosco_like import dumps, loads
from sonosco_like.errors import ConfigError, UsageError
from sonosco_like.models import (
    ConformerEncoder,
    DeepSpeech2Encoder,
    Listener,
    Recogniser,
    TDSEncoder,
    Wav2Vec2Encoder,
    WhisperEncoder,
)
from sonosco_like.optim import (
    SGD,
    AdamW,
    CyclicLR,
    Noam,
    OneCycleLR,
    Optimizer,
    ParameterGroup,
    Scheduler,
    StepLR,
    WarmupHoldDecay,
)
from sonosco_like.optim.optimizers import depths_of

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


class Deep(nn.Module):
    """An encoder with two lists of modules and something before and behind them, and a head."""

    def __init__(self, layers: int = 3):
        super().__init__()
        self.encoder = nn.Module()
        self.encoder.mask = nn.Parameter(torch.zeros(2))
        self.encoder.convolutions = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
        self.encoder.blocks = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(layers))
        self.encoder.norm = nn.LayerNorm(2)
        self.head = nn.Linear(2, 2)


def rates(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {names[each]: group["lr"] for group in optimizer.param_groups for each in group["params"]}


def test_rates_by_depth_fall_towards_the_input():
    model = Deep()
    found = rates(model, AdamW(lr=1.0, layer_decay=0.5).build(model.named_parameters()))
    assert len(found) == len(list(model.parameters()))
    expected = {
        "encoder.mask": 0.0625, "encoder.convolutions.1.weight": 0.0625, "encoder.blocks.0.1.bias": 0.125,
        "encoder.blocks.1.0.weight": 0.25, "encoder.blocks.2.0.weight": 0.5, "encoder.norm.weight": 1.0,
        "head.weight": 1.0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_a_group_is_divided_by_depth_unless_it_has_a_rate_of_its_own():
    model = Deep(layers=2)
    groups = [
        ParameterGroup(pattern="encoder.convolutions.*", lr=1e-5),
        ParameterGroup(pattern="*.bias", weight_decay=0.0),
    ]
    optimizer = AdamW(lr=1.0, layer_decay=0.1, groups=groups).build(model.named_parameters())
    found = rates(model, optimizer)
    assert found["encoder.convolutions.0.bias"] == 1e-5
    assert found["encoder.blocks.0.0.bias"] == found["encoder.blocks.0.0.weight"] == pytest.approx(0.01)
    described = {group["name"]: (round(group["lr"], 9), group["weight_decay"]) for group in optimizer.param_groups}
    assert described == {
        "rest": (1.0, 0.01), "rest/depth_2": (0.1, 0.01), "rest/depth_1": (0.01, 0.01), "rest/depth_0": (0.001, 0.01),
        "encoder.convolutions": (1e-5, 0.01),
        "bias": (1.0, 0.0), "bias/depth_2": (0.1, 0.0), "bias/depth_1": (0.01, 0.0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("encoder", "layers"),
    [
        (Listener(hidden_size=4), 4),
        (TDSEncoder(), 3),
        (DeepSpeech2Encoder(hidden_size=4, layers=2), 2),
        (ConformerEncoder(size=8, heads=2, layers=3), 3),
        (
            Wav2Vec2Encoder(
                channels=[4], kernels=[10], strides=[5], size=8, layers=3, heads=2, inner_size=8, position_groups=2
            ),
            3,
        ),
        (WhisperEncoder(size=8, layers=2, heads=2, inner_size=8), 2),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_layers_of_every_encoder_are_found(encoder, layers):
    features = 1 if isinstance(encoder, Wav2Vec2Encoder) else 80
    model = Recogniser(vocabulary_size=5, features=features, encoder=encoder, ctc=True)
    found = depths_of(list(model.named_parameters()))
    assert sorted(set(found.values())) == sorted({*range(1, layers + 2), *found.values()})
    assert max(found.values()) == layers + 1 == found["ctc_output.weight"]
    first = next(name for name in found if name.startswith("encoder."))
    assert found[first] <= 1


def test_a_model_without_encoder_has_its_own_layers():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert list(depths_of(list(model.named_parameters())).values()) == [1, 1, 2, 2]


def test_a_decay_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"finds no layers: no parameter of the encoder is in a numbered module"):
        AdamW(layer_decay=0.9).build(make_model().named_parameters())
    with pytest.raises(UsageError, match=r"`layer_decay` needs the names"):
        AdamW(layer_decay=0.9).build(make_model().parameters())
    for wrong in (0.0, 1.5):
        with pytest.raises(UsageError, match="above 0 and at most 1"):
            AdamW(layer_decay=wrong)


def test_a_decay_comes_back_from_yaml():
    assert loads(dumps(SGD(layer_decay=0.8))).layer_decay == 0.8


@pytest.mark.parametrize("at", [3, 6, 9])
def test_a_training_with_rates_by_depth_resumes_exactly(at, tmp_path):
    fields = {"optimizer": AdamW(lr=0.01, layer_decay=0.5), "scheduler": WarmupHoldDecay(total="1dur", warmup=3)}
    whole, resumed = whole_and_resumed(at, tmp_path, **fields)
    assert differences(whole, resumed) == []
    assert [group["lr"] / whole.optimizer.param_groups[0]["lr"] for group in whole.optimizer.param_groups] == [1, 0.5]


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
    schedule, found = scheduler.build(optimizer), []
    for _ in range(6):
        found.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    assert len({rest for rest, _, _ in found}) > 1
    assert all(encoder == pytest.approx(rest / 10) for rest, _, encoder in found)
