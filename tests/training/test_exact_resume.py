"""A run that was saved and loaded at any batch ends as the unbroken one, bit for bit."""

from __future__ import annotations

import pytest
from tiny import Diary, SaveAt, make_trainer

from sonosco_like import diff, load
from sonosco_like.optim import SGD, AdamW, CosineAnnealingWarmRestarts, OneCycleLR, StepLR

SETTINGS = {
    "plain": {},
    "accumulating": {"accumulate_gradients": 3},
    "clipped": {"clip_grads": 0.5, "clip_values": 0.1},
    "bfloat16": {"precision": "bfloat16"},
    "momentum": {"optimizer": SGD(lr=0.01, momentum=0.9), "scheduler": StepLR(step_size=4)},
    "restarts": {"optimizer": AdamW(lr=0.01, amsgrad=True), "scheduler": CosineAnnealingWarmRestarts(T_0=6)},
    "one_cycle": {"scheduler": OneCycleLR(max_lr=0.02, total_steps=20)},
    "no_schedule": {"scheduler": None, "test_step": None},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("step", [1, 4, 5, 6, 13, 20])
def test_resume_is_bit_exact(setting, step, tmp_path):
    changes = {**SETTINGS[setting], "callbacks": [Diary(), SaveAt(at=step, path=tmp_path / "c")]}
    whole = make_trainer(**changes)
    whole.start_training()
    resumed = load(tmp_path / "c")
    assert resumed.global_step == step
    resumed.continue_training()
    assert _but_for_the_clock(whole, resumed) == []


def test_several_interruptions_are_bit_exact(tmp_path):
    whole = make_trainer()
    whole.start_training()
    trainer = make_trainer(callbacks=[Diary()])
    for number, step in enumerate((2, 5, 11)):
        trainer.add_callback(SaveAt(at=step, path=str(tmp_path / str(number))))
        trainer.requests.ask_to_stop(None)
        trainer.continue_training() if trainer.global_step else trainer.start_training()
        trainer = load(tmp_path / str(number))
        trainer.callbacks = trainer.callbacks[:1]
    trainer.continue_training()
    assert trainer.callbacks[0].losses == whole.callbacks[0].losses
    assert [d for d in _but_for_the_clock(whole, trainer) if "heard" not in d] == []


def _but_for_the_clock(a, b):
    """Where two trainers differ; a resumed one has also been attached and started once more."""
    ignored = ("state.position.seconds", "heard")
    return [str(found) for found in diff(a, b) if not any(word in found.path for word in ignored)]
