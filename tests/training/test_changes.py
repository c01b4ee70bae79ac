"""`--set` on resume: what may change takes effect exactly once and is written down; the rest is refused."""

from __future__ import annotations

import pytest
import yaml
from tiny import make_trainer

from sonosco_like import diff, save, serializable, state
from sonosco_like.errors import ConfigError
from sonosco_like.events import AbstractCallback
from sonosco_like.optim import (
    SGD,
    AdamW,
    CosineAnnealingLR,
    LinearLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
    WarmupHoldDecay,
)
from sonosco_like.serialization import Document, field_types
from sonosco_like.training import Experiment
from sonosco_like.training.changes import CHANGES, Changes

OUTER = {name: kind for name, kind in field_types(Experiment).items() if name != "trainer"}
HALF = "trainer.optimizer.lr=0.005"
ON = "trainer.max_duration=null"

SCHEDULES = {
    "none": None,
    "linear": LinearLR(total_iters=12),
    "steps": StepLR(step_size=4, gamma=0.5),
    "cosine": CosineAnnealingLR(T_max=30),
    "formula": WarmupHoldDecay(total=18, warmup=3, hold=6),
    "sequence": SequentialLR(schedulers=[LinearLR(total_iters=5), StepLR(step_size=3)], milestones=[5]),
}


@serializable
class RateDiary(AbstractCallback):
    """Remembers the learning rate of each batch."""

    patience: int = 1
    rates: list[float] = state([])

    def on_forward_end(self, moment):
        self.rates.append(float(moment.context.optimizer.param_groups[0]["lr"]))


def saved(tmp_path, steps=7, **fields):
    """A run folder whose trainer was saved after so many batches."""
    trainer = make_trainer(callbacks=[RateDiary()], max_duration=f"{steps}ba", **fields)
    trainer.start_training()
    checkpoint = tmp_path / "checkpoints" / f"step-{steps:08d}"
    save(trainer, checkpoint)
    (tmp_path / "config.yaml").write_text("class: Experiment\nname: tiny\nseed: 1234\ninit_from: null\n")
    return checkpoint


def rates_of(trainer):
    trainer.continue_training()
    return trainer.callbacks[0].rates


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_new_learning_rate_takes_effect_on_the_restored_optimizer_and_its_schedule(schedule, tmp_path):
    checkpoint = saved(tmp_path, scheduler=SCHEDULES[schedule])
    before = rates_of(Changes(tmp_path, checkpoint, [ON]).load())
    after = rates_of(Changes(tmp_path, checkpoint, [ON, HALF]).load())
    assert after[:7] == before[:7]
    assert len(after) == 20
    assert after[7:] == pytest.approx([rate / 2 for rate in before[7:]])


def test_a_change_takes_effect_once_however_often_the_run_is_killed(tmp_path):
    checkpoint = saved(tmp_path)
    changes = Changes(tmp_path, checkpoint, [HALF, "trainer.max_duration=9ba"])
    trainer = changes.load()
    changes.record()
    rate = trainer.optimizer.param_groups[0]["lr"]
    again = Changes(tmp_path, checkpoint).load()  # as after a kill before the next checkpoint
    assert again.optimizer.param_groups[0]["lr"] == rate
    assert again.max_duration == "9ba"
    trainer.continue_training()
    later = tmp_path / "checkpoints" / "step-00000009"
    save(trainer, later)
    resumed = Changes(tmp_path, later).load()
    assert diff(resumed, trainer) == []
    again = Changes(tmp_path, checkpoint).load()
    again.continue_training()
    assert [d for d in diff(again, trainer) if "seconds" not in d.path] == []


def test_a_change_that_is_taken_back_leaves_the_rate_as_it_was(tmp_path):
    checkpoint = saved(tmp_path)
    first = Changes(tmp_path, checkpoint, [HALF])
    first.load()
    first.record()
    back = Changes(tmp_path, checkpoint, ["trainer.optimizer.lr=0.01"]).load()
    assert diff(back, Changes(tmp_path / "elsewhere", checkpoint).load()) == []


def test_a_longer_schedule_by_formula_is_followed_from_the_next_batch_on(tmp_path):
    checkpoint = saved(tmp_path, scheduler=WarmupHoldDecay(total=10, warmup=3))
    short = rates_of(Changes(tmp_path, checkpoint, [ON]).load())
    long = rates_of(Changes(tmp_path, checkpoint, [ON, "trainer.scheduler.total=40"]).load())
    formula = WarmupHoldDecay(total=40, warmup=3)
    assert long[7:] == pytest.approx([0.01 * formula.factor(step) for step in range(7, 20)])
    assert short[7:] != long[7:]


def test_other_settings_reach_their_owners(tmp_path):
    checkpoint = saved(tmp_path, optimizer=SGD(lr=0.01, momentum=0.9))
    wanted = [
        "trainer.epochs=9", "trainer.optimizer.momentum=0.5", "trainer.callbacks[0].patience=7", "trainer.test_step=4",
        "trainer.clip_grads=0.5",
    ]  # fmt: skip
    trainer = Changes(tmp_path, checkpoint, wanted).load()
    assert trainer.optimizer.param_groups[0]["momentum"] == 0.5
    assert (trainer.epochs, trainer.test_step, trainer.clip_grads) == (9, 4, 0.5)
    assert trainer.callbacks[0].patience == 7
    assert len(trainer.callbacks[0].rates) == 7


def test_changes_are_written_down_with_their_step_and_values(tmp_path, caplog):
    checkpoint = saved(tmp_path)
    changes = Changes(tmp_path, checkpoint, [HALF, "trainer.epochs=4"])  # 4 it was before
    changes.load()
    with caplog.at_level("INFO"):
        changes.record()
    (entry,) = yaml.safe_load((tmp_path / CHANGES).read_text())
    assert (entry["step"], entry["set"]) == (7, [HALF])
    assert entry["changed"] == {"trainer.optimizer.lr": {"from": "0.01", "to": "0.005"}}
    assert "changed from step 7 on: trainer.optimizer.lr: 0.01 -> 0.005" in caplog.text
    second = Changes(tmp_path, checkpoint, ["trainer.epochs=8"])
    second.load()
    second.record()
    assert [entry["set"] for entry in yaml.safe_load((tmp_path / CHANGES).read_text())] == [
        [HALF],
        ["trainer.epochs=8"],
    ]


def test_what_is_set_as_it_was_is_no_change(tmp_path):
    checkpoint = saved(tmp_path)
    same = ["seed=1234", "trainer.model.size=4", "trainer.optimizer={class: AdamW, lr: 1e-2}", "name=tiny"]
    changes = Changes(tmp_path, checkpoint, same)
    assert changes.for_config() == []
    changes.load(Document.read(tmp_path / "config.yaml"), OUTER)
    changes.record()
    assert not (tmp_path / CHANGES).exists()


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("trainer.train_data_loader.size=5", "other data than its history records"),
        ("trainer.accumulate_gradients=2", "gradients and scales"),
        ("trainer.precision=bfloat16", "gradients and scales"),
        ("trainer.optimizer={class: SGD, lr: 0.1}", "the former class"),
        ("trainer.optimizer.amsgrad=true", "moments of the optimizer"),
        ("trainer.scheduler.total_iters=3", "keeps its settings in its state"),
        ("trainer.callbacks=[]", "callbacks are restored by their index"),
        ("trainer.metrics=[token_accuracy]", "computed with the former value"),
    ],
)
def test_what_may_not_change_is_refused_with_a_reason_and_a_remedy(override, reason, tmp_path):
    with pytest.raises(ConfigError) as caught:
        Changes(tmp_path, saved(tmp_path), [override]).load()
    assert "--set: trainer." in str(caught.value)
    assert reason in str(caught.value)
    assert f"--set init_from={tmp_path}" in str(caught.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("seed=5", "seed: .* all random numbers"),
        ("name=other", "name: .* change it there"),
        ("init_from=runs/x", "init_from: .* only when a run starts"),
        ("optimizer.lr=0.1", "optimizer.lr: .* settings of the trainer begin with `trainer.`"),
        ("epochs=9", "epochs: .* settings of the trainer begin with `trainer.`"),
    ],
)
def test_what_is_not_the_trainers_stays_as_it_is(override, said, tmp_path):
    changes = Changes(tmp_path, saved(tmp_path), [override])
    with pytest.raises(ConfigError, match=said):
        changes.load(Document.read(tmp_path / "config.yaml"), OUTER)


def test_a_model_of_another_shape_is_refused_and_all_is_said_at_once(tmp_path):
    wanted = ["trainer.model.size=5", "trainer.accumulate_gradients=3", "trainer.epochs=9", "seed=4"]
    changes = Changes(tmp_path, saved(tmp_path), wanted)
    with pytest.raises(ConfigError) as caught:
        changes.load(Document.read(tmp_path / "config.yaml"), OUTER)
    assert "trainer.model.size: cannot change when a run is resumed: the weights of the checkpoint" in str(caught.value)
    assert "trainer.accumulate_gradients: cannot change" in str(caught.value)
    assert "seed: cannot change" in str(caught.value)
    assert len(caught.value.problems) == 3
    assert "trainer.epochs" not in str(caught.value)


def test_a_rate_that_the_schedule_does_not_use_is_refused(tmp_path):
    checkpoint = saved(tmp_path, optimizer=AdamW(lr=0.01), scheduler=OneCycleLR(max_lr=0.02, total_steps=20))
    with pytest.raises(ConfigError, match="OneCycleLR computes learning rates from its own settings"):
        Changes(tmp_path, checkpoint, [HALF]).load()


def test_a_typing_error_is_named_as_in_a_config(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        Changes(tmp_path, saved(tmp_path), ["trainer.epoch=9"]).load()


def test_before_the_first_checkpoint_everything_may_change(tmp_path):
    changes = Changes(tmp_path, None, ["seed=5", "trainer.model.size=3"])
    assert changes.for_config() == ["seed=5", "trainer.model.size=3"]
    changes.record()
    assert Changes(tmp_path, None).for_config() == ["seed=5", "trainer.model.size=3"]
    assert Changes(tmp_path, saved(tmp_path)).earlier == []


@pytest.mark.parametrize("content", ["nonsense", "- {step: x, set: []}", "- 3", "[{"])
def test_a_torn_file_of_changes_is_named_and_kept_aside_when_there_is_a_new_one(content, tmp_path, caplog):
    checkpoint = saved(tmp_path)
    (tmp_path / CHANGES).write_text(content)
    changes = Changes(tmp_path, checkpoint, [HALF])
    assert "give later changes again with --set" in caplog.text
    changes.load()
    changes.record()
    assert (tmp_path / "changes.damaged.yaml").read_text() == content
    assert Changes(tmp_path, checkpoint).earlier == [HALF]
