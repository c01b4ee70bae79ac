"""Schedules given by a formula: their corners, and that torch follows them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like import dumps, loads
from sonosco_like.errors import UsageError
from sonosco_like.optim import Noam, WarmupHoldDecay


@pytest.mark.parametrize("shape", ["linear", "cosine", "exponential"])
def test_warmup_hold_decay_has_its_corners(shape):
    schedule = WarmupHoldDecay(total=100, warmup=10, hold=40, final=0.1, shape=shape)
    assert schedule.factor(0) == pytest.approx(0.1)
    assert schedule.factor(9) == schedule.factor(25) == schedule.factor(40) == 1.0
    assert 0.1 < schedule.factor(70) < 1.0
    assert schedule.factor(100) == schedule.factor(10_000) == pytest.approx(0.1)


@given(
    st.integers(0, 50), st.integers(0, 100), st.integers(1, 100), st.sampled_from(["linear", "cosine", "exponential"])
)
def test_it_rises_once_and_falls_once(warmup, hold, rest, shape):
    total = max(warmup, hold) + rest
    schedule = WarmupHoldDecay(total=total, warmup=warmup, hold=hold, shape=shape)
    factors = [schedule.factor(step) for step in range(total + 5)]
    assert all(0 < factor <= 1 for factor in factors)
    peak = factors.index(max(factors))
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)


def test_noam_peaks_at_the_end_of_the_warmup():
    schedule = Noam(warmup=100)
    assert schedule.factor(99) == 1.0
    assert schedule.factor(49) == pytest.approx(0.5)
    assert schedule.factor(399) == pytest.approx(0.5)


def test_torch_follows_the_schedule_and_resumes_in_it():
    def built():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=2.0)
        return optimizer, loads(dumps(WarmupHoldDecay(total=20, warmup=5))).build(optimizer)

    optimizer, scheduler = built()
    rates = []
    for step in range(20):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
        if step == 7:
            saved = optimizer.state_dict(), scheduler.state_dict()
    assert rates[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
    optimizer, scheduler = built()
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    assert optimizer.param_groups[0]["lr"] == rates[8]


@pytest.mark.parametrize("settings", [{"total": 5, "warmup": 10}, {"total": 10, "warmup": 1, "final": 0.0}])
def test_impossible_schedules_are_refused(settings):
    with pytest.raises(UsageError):
        WarmupHoldDecay(**settings)
