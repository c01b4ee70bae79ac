"""The moving average of the weights: what it is, how it is judged, and that it survives a resume."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny import Diary, Net, Sums, make_trainer

from sonosco_like import diff, load, serializable
from sonosco_like.callbacks import EarlyStopping
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback
from sonosco_like.training import WeightAverage


@serializable
class Weights(AbstractCallback):
    """Remembers the weights after every optimizer step."""

    def __post_init__(self) -> None:
        self.seen = []

    def on_optimizer_step_end(self, moment) -> None:
        self.seen.append(copy.deepcopy(moment.context.model.state_dict()))


def test_the_average_is_the_one_of_the_definition():
    trainer = make_trainer(callbacks=[weights := Weights()], averaging=WeightAverage(decay=0.8), epochs=2)
    trainer.start_training()
    expected = weights.seen[0]["layers.0.weight"].double()
    for number, seen in enumerate(weights.seen, start=1):
        share = min(0.8, (1 + number) / (10 + number))
        expected = share * expected + (1 - share) * seen["layers.0.weight"].double()
    assert trainer.averaging.steps == 10
    assert torch.allclose(trainer.averaging.weights["layers.0.weight"].double(), expected, atol=1e-6)
    assert trainer.averaging.weights["layers.1.num_batches_tracked"] == 10


def test_validations_judge_it_beside_the_weights_and_leave_these_alone():
    callbacks = [EarlyStopping(monitor="val_ema_loss", patience=99)]
    trainer = make_trainer(averaging=WeightAverage(decay=0.9), callbacks=callbacks)
    trainer.start_training()
    plain = make_trainer()
    plain.start_training()
    for name, weight in plain.model.state_dict().items():
        assert torch.equal(weight, trainer.model.state_dict()[name]), name
    assert trainer.performance_measures["val_loss"] == plain.performance_measures["val_loss"]
    other = make_trainer(model=Net())
    other.model.load_state_dict(trainer.averaging.weights)
    assert trainer.performance_measures["val_ema_loss"] == other.evaluate(Sums(batches=2))["loss"]


@pytest.mark.parametrize("decay", [0.0, 1.0, -1.0])
def test_a_decay_that_averages_nothing_is_refused(decay):
    with pytest.raises(UsageError, match="`decay` must lie between 0 and 1"):
        WeightAverage(decay=decay)


def test_it_survives_a_resume_bit_for_bit(tmp_path):
    whole = make_trainer(averaging=WeightAverage(decay=0.9))
    whole.start_training()
    broken = make_trainer(averaging=WeightAverage(decay=0.9), max_duration="7ba", callbacks=[Diary()])
    broken.start_training()
    broken.saver.save(broken, tmp_path / "c")
    broken.saver.close()
    resumed = load(tmp_path / "c")
    resumed.max_duration = None
    resumed.continue_training()
    found = [str(each) for each in diff(whole, resumed)]
    assert [each for each in found if not any(word in each for word in ("seconds", "heard", "max_duration"))] == []
