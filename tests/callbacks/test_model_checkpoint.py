"""Which checkpoints a run takes and keeps, also if it is interrupted, and the mean of the last checkpoints."""

from __future__ import annotations

import logging
import math
import os
import signal

import pytest
import torch
from tiny import Diary, make_trainer

from sonosco_like import diff, load, serializable, state
from sonosco_like.callbacks import CheckpointAverage, ModelCheckpoint
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, CallbackError
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.training import Experiment, open_run


@serializable
class Scores(AbstractCallback):
    """Gives a measure that has a value of its own after every epoch, and says which way it is better."""

    values: list[float]
    lower: bool = True

    def measures_given(self):
        return {"wer": self.lower}

    def on_epoch_end(self, moment):
        moment.context.update_metric("wer", self.values[moment.context.epoch])


@serializable
class SignalAt(AbstractCallback):
    """Sends its process a signal at some steps, as whoever ends a job does; not again when the run goes on."""

    steps: list[int]
    sent: list[int] = state([])

    def on_batch_start(self, moment):
        step = moment.context.global_step + 1
        if step in self.steps and step not in self.sent:
            self.sent.append(step)
            os.kill(os.getpid(), signal.SIGTERM)


def train(folder, *callbacks, **fields) -> Checkpoints:
    """Train four epochs of five batches into a folder, resuming for as long as it is interrupted."""
    trainer = make_trainer(callbacks=[Diary(), *callbacks], **fields)
    code = Experiment(name="tiny", trainer=trainer).start(folder)
    while code:
        assert code == signal.SIGTERM
        code = open_run(folder)[0].resume()
    return Checkpoints(folder)


def steps(checkpoints: Checkpoints) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in checkpoints.all()]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"every": "3ba"}, [18, 20]),
        ({"every": "3ba", "save_at_end": False}, [15, 18]),
        ({"every": "1ep", "keep_last": 3}, [10, 15, 20]),
        ({"every": "2ep", "keep_last": 9}, [10, 20]),
        ({"every": "0.25dur", "keep_last": 9}, [5, 10, 15, 20]),
        ({"every": None}, [20]),
        ({"every": "1ba", "keep_last": 1}, [20]),
        ({"every": "7ba", "keep_last": 0}, [20]),
    ],
)
def test_checkpoints_are_taken_every_so_often_and_the_last_ones_kept(tmp_path, settings, kept):
    checkpoints = train(tmp_path / "run", ModelCheckpoint(**settings))
    assert steps(checkpoints) == kept
    assert checkpoints.pointed("latest") == checkpoints.path_of(kept[-1])
    assert checkpoints.pointed("best") is None
    assert load(checkpoints.path_of(kept[-1])).global_step == kept[-1]


def test_minutes_count_too(tmp_path):
    checkpoints = train(tmp_path / "run", ModelCheckpoint(every="0.001s", keep_last=99, save_at_end=False))
    assert set(steps(checkpoints)) <= set(range(2, 21))
    assert steps(checkpoints)


@pytest.mark.parametrize(
    ("values", "lower", "keep_best", "ranked"),
    [
        ([0.3, 0.1, 0.2, 0.4], True, 1, [10]),
        ([0.3, 0.1, 0.2, 0.4], False, 1, [20]),
        ([0.3, 0.1, 0.2, 0.4], True, 2, [10, 15]),
        ([0.3, 0.1, 0.2, 0.4], False, 3, [20, 5, 15]),
        ([0.3, 0.3, 0.3, 0.3], True, 2, [5, 10]),
        ([math.nan, 0.9, math.inf, 0.8], True, 1, [20]),
        ([math.nan, 0.9, math.inf, 0.8], False, 1, [10]),
        ([math.nan, math.nan, math.nan, math.nan], True, 1, []),
    ],
)
def test_the_best_are_kept_in_the_direction_that_the_measure_declares(tmp_path, values, lower, keep_best, ranked):
    policy = ModelCheckpoint(every=None, monitor="wer", keep_best=keep_best, keep_last=1)
    checkpoints = train(tmp_path / "run", Scores(values=values, lower=lower), policy)
    assert list(policy.best) == ranked
    assert steps(checkpoints) == sorted({*ranked, 20})
    assert checkpoints.pointed("best") == (checkpoints.path_of(ranked[0]) if ranked else None)


def test_a_checkpoint_holds_the_weights_that_were_measured(tmp_path):
    """Validations are every three batches and at the ends of epochs; no schedule asks for these steps."""
    policy = ModelCheckpoint(every=None, monitor="val_loss", keep_best=4)
    checkpoints = train(tmp_path / "run", policy, test_step=3)
    assert len(policy.best) == 4
    assert list(policy.best.values()) == sorted(policy.best.values())
    for step, value in policy.best.items():
        assert load(checkpoints.path_of(step)).performance_measures["val_loss"] == value


POLICIES = {
    "last": [{"every": "3ba", "keep_last": 2}],
    "epochs": [{"every": "1ep", "keep_last": 2, "monitor": "val_loss", "keep_best": 3}],
    "two": [{"every": "1ep", "keep_last": 9}, {"every": "2ba", "keep_last": 2, "monitor": "val_loss", "keep_best": 2}],
    "restored": [{"every": "1ep", "monitor": "val_loss", "restore_best": True}],
}


@pytest.mark.parametrize(
    "policy", [pytest.param(name, marks=[] if name == "two" else pytest.mark.slow) for name in POLICIES]
)
def test_interruptions_make_no_difference_to_what_is_kept(tmp_path, policy):
    def run(name, *moments):
        made = [ModelCheckpoint(**settings) for settings in POLICIES[policy]]
        return train(tmp_path / name, SignalAt(steps=list(moments)), *made)

    unbroken = run("unbroken")
    for moments in [(1, 6), (10,), (20,)]:
        name = "-".join(map(str, moments))
        broken = run(name, *moments)
        assert steps(broken) == steps(unbroken), name
        for pointer in ("latest", "best"):
            assert getattr(broken.pointed(pointer), "name", None) == getattr(unbroken.pointed(pointer), "name", None)
        assert differences(unbroken.run / "final", broken.run / "final") == []
        for path in unbroken.all():
            assert differences(path, broken.path_of(int(path.name[5:]))) == []


def differences(a, b) -> list[str]:
    """Where two checkpoints differ, apart from clocks and from the interruptions themselves."""
    ignored = ("seconds", "heard", "callbacks[1]")
    return [str(each) for each in diff(a, b) if not any(word in each.path for word in ignored)]


def test_two_policies_keep_what_either_wants(tmp_path):
    by_epoch, by_batch = ModelCheckpoint(every="1ep", keep_last=2), ModelCheckpoint(every="3ba", keep_last=2)
    checkpoints = train(tmp_path / "run", by_epoch, by_batch)
    assert by_epoch.recent == [15, 20]
    assert by_batch.recent == [18, 20]
    assert steps(checkpoints) == [15, 18, 20]


def test_the_first_policy_that_ranks_says_which_is_best(tmp_path):
    values = [0.3, 0.1, 0.2, 0.4]
    policies = [ModelCheckpoint(), ModelCheckpoint(monitor="wer"), ModelCheckpoint(monitor="val_loss")]
    checkpoints = train(tmp_path / "run", Scores(values=values), *policies)
    assert checkpoints.pointed("best") == checkpoints.path_of(10)


def test_the_best_weights_come_back_at_the_end_and_the_last_ones_stay_in_the_newest_checkpoint(tmp_path):
    scores = Scores(values=[0.3, 0.1, 0.2, 0.4])
    checkpoints = train(tmp_path / "run", scores, ModelCheckpoint(every="1ep", monitor="wer", restore_best=True))
    final, best, last = (load(path).model.state_dict() for path in
                         (checkpoints.run / "final", checkpoints.path_of(10), checkpoints.path_of(20)))  # fmt: skip
    assert all(torch.equal(final[name], best[name]) for name in final)
    assert any(not torch.equal(final[name], last[name]) for name in final)


def test_a_measure_that_was_never_a_number_restores_nothing_and_says_so(tmp_path, caplog):
    scores = Scores(values=[math.nan] * 4)
    train(tmp_path / "run", scores, ModelCheckpoint(monitor="wer", restore_best=True))
    assert "No best weights are restored" in caplog.text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"keep_last": -1}, "`keep_last` must not be negative"),
        ({"keep_best": 0}, "`keep_best` be at least 1"),
        ({"restore_best": True}, "give a `monitor`"),
        ({"every": "3 apples"}, "is not a duration"),
    ],
)
def test_what_cannot_be_is_refused(settings, said):
    with pytest.raises(UsageError, match=said):
        ModelCheckpoint(**settings)


def test_a_measure_nobody_computes_is_refused_before_the_first_batch(tmp_path):
    trainer = make_trainer(callbacks=[ModelCheckpoint(monitor="val_los")])
    with pytest.raises(UsageError, match="val_los"):
        Experiment(name="tiny", trainer=trainer).start(tmp_path / "run")
    assert trainer.global_step == 0


@pytest.mark.parametrize("settings", [{}, {"every": None}, {"monitor": "val_loss", "every": None}])
def test_a_run_without_a_folder_is_refused_before_the_first_batch(settings):
    heard = []
    look = ("batch_start", lambda moment: heard.append(moment.event))
    with pytest.raises(CallbackError, match="ModelCheckpoint needs a run folder to save checkpoints into"):
        make_trainer(callbacks=[ModelCheckpoint(**settings), look]).start_training()
    assert heard == []


def run(folder, last):
    callbacks = [ModelCheckpoint(every="5ba", keep_last=9), CheckpointAverage(last=last)]
    experiment = Experiment(name="mean", trainer=make_trainer(callbacks=callbacks))
    experiment.start(folder)
    return experiment


def test_the_final_weights_are_the_mean_of_the_last_checkpoints(tmp_path):
    experiment = run(tmp_path / "run", last=3)
    paths = [experiment.checkpoints.path_of(step) for step in (10, 15, 20)]
    weights = [load(path).model.state_dict() for path in paths]
    final = load(tmp_path / "run" / "final").model.state_dict()
    for name, weight in final.items():
        if weight.is_floating_point():
            expected = sum(each[name].double() for each in weights) / 3
            assert torch.equal(weight, expected.float()), name
        else:
            assert torch.equal(weight, weights[-1][name]), name


def test_fewer_checkpoints_than_wanted_are_averaged_and_that_is_said(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        run(tmp_path / "run", last=7)
    assert "There are only 4 checkpoints to average, not 7" in caplog.text


def test_a_run_without_a_folder_is_refused():
    with pytest.raises(CallbackError, match="needs a run folder"):
        make_trainer(callbacks=[CheckpointAverage()]).start_training()


def test_an_average_of_one_is_refused():
    with pytest.raises(UsageError, match="at least 2"):
        CheckpointAverage(last=1)
