"""Several validation sets, compiled models, activations that are computed again, and intervals of validation."""

from __future__ import annotations

import pytest
import torch
from tiny import Sums, make_trainer

from sonosco_like import dumps, load, loads, save, serializable
from sonosco_like.callbacks import EarlyStopping
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.training import ModelTrainer


@serializable
class Validations(AbstractCallback):
    """Notes when which set was validated."""

    def __post_init__(self) -> None:
        self.noted = []

    def on_validation_end(self, moment: Moment) -> None:
        self.noted.append((moment.context.global_step, moment.args["name"], sorted(moment.result)))


def test_validation_sets_have_names_and_measures_of_their_own():
    sets = {"clean": Sums(batches=1), "noisy": Sums(batches=3)}
    noted = Validations()
    trainer = make_trainer(val_data_loader=sets, callbacks=[noted, EarlyStopping(monitor="val_noisy_loss")], epochs=1)
    trainer.start_training()
    assert noted.noted == [
        (3, "clean", ["val_clean_loss"]), (3, "noisy", ["val_noisy_loss"]),
        (5, "clean", ["val_clean_loss"]), (5, "noisy", ["val_noisy_loss"]),
    ]  # fmt: skip
    for name, loader in sets.items():
        assert trainer.performance_measures[f"val_{name}_loss"] == trainer.evaluate(loader)["loss"]


def test_named_validation_sets_round_trip(tmp_path):
    trainer = make_trainer(val_data_loader={"clean": Sums(batches=1), "noisy": Sums(batches=3)})
    again = loads(dumps(trainer, state=False), ModelTrainer)
    assert {name: each.batches for name, each in again.val_data_loader.items()} == {"clean": 1, "noisy": 3}
    trainer.start_training()
    save(trainer, tmp_path / "t")
    assert dict(load(tmp_path / "t").performance_measures) == dict(trainer.performance_measures)


def test_a_measure_of_a_set_that_is_not_there_is_refused():
    trainer = make_trainer(val_data_loader={"clean": Sums()}, callbacks=[EarlyStopping(monitor="val_loss")])
    with pytest.raises(UsageError, match="reads 'val_loss', which is not computed; did you mean 'val_clean_loss'"):
        trainer.start_training()


@pytest.mark.parametrize(
    ("every", "steps"), [(2, [2, 4, 5, 6, 8, 10]), ("4ba", [4, 5, 8, 10]), ("2ep", [10]), (None, [5, 10])]
)
def test_validation_comes_as_often_as_asked(every, steps):
    noted = Validations()
    make_trainer(callbacks=[noted], test_step=every, epochs=2).start_training()
    assert [step for step, _, _ in noted.noted] == steps


@pytest.mark.parametrize("every", ["90min", "soon", 0])
def test_other_intervals_of_validation_are_refused(every):
    with pytest.raises(UsageError):
        make_trainer(test_step=every)


def test_activations_that_are_computed_again_change_nothing_else():
    plain = make_trainer(epochs=2)
    plain.start_training()
    again = make_trainer(epochs=2, gradient_checkpointing=["layers.0", "layers.2"])
    again.start_training()
    for name, weight in plain.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name]), name


def test_a_pattern_that_matches_no_module_is_refused():
    with pytest.raises(UsageError, match=r"pattern 'layer.0' matches no part of Net; did you mean 'layers.0'\?"):
        make_trainer(gradient_checkpointing=["layer.0"]).start_training()


def test_a_compiled_model_learns_the_same_and_is_saved_as_itself(tmp_path):
    plain = make_trainer(epochs=1)
    plain.start_training()
    compiled = make_trainer(epochs=1, compile="aot_eager")
    compiled.start_training()
    for name, weight in plain.model.state_dict().items():
        assert torch.allclose(weight, compiled.model.state_dict()[name]), name
    save(compiled, tmp_path / "t")
    assert load(tmp_path / "t").compile == "aot_eager"
