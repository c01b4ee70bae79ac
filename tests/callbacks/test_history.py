"""The history of a run: every measure, at the right steps, once, also after a resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_speech import differences, speech_trainer, whole_and_resumed

from sonosco_like.callbacks import HistoryRecorder, LRMonitor
from sonosco_like.events import AbstractCallback
from sonosco_like.serialization import serializable


def test_training_is_recorded_every_n_steps_and_validation_as_it_ends():
    recorder = HistoryRecorder(every="3ba")
    speech_trainer(recorder).start_training()
    assert recorder["loss"].steps == [3, 4, 6, 8, 9, 12]  # every third, and the ends of the epochs
    assert recorder["loss"].epochs == [0, 0, 1, 1, 2, 2]
    assert recorder["val_loss"].steps == [2, 4, 6, 8, 10, 12]
    assert recorder.names() == list(recorder)
    assert set(recorder) == {
        "loss", "gradient_norm", "token_accuracy", "val_loss", "val_token_accuracy", "val_word_error_rate",
    }  # fmt: skip


def test_the_values_are_those_of_the_run():
    recorder = HistoryRecorder(every="1ba")
    seen = []
    trainer = speech_trainer(recorder, lambda epoch, step, measures, context: seen.append(measures["loss"]))
    trainer.start_training()
    assert recorder["loss"].values == seen
    assert recorder["val_word_error_rate"].values[-1] == trainer.performance_measures["val_word_error_rate"]


@serializable
class Confusion(AbstractCallback):
    """Extends the history at each validation, as text 001 does: with a number, and with a matrix."""

    def on_validation_end(self, moment):
        step = moment.context.global_step
        matrix = torch.full((2, 2), float(step))
        moment.context.log({"accuracy": torch.tensor(step / 100), "confusion_matrix": matrix})
        matrix.zero_()


def test_other_callbacks_extend_the_history_by_logging():
    recorder = HistoryRecorder(every="1ep")
    speech_trainer(Confusion(), LRMonitor(every="6ba"), recorder).start_training()
    assert recorder["learning_rate"].steps == [6, 12]
    assert recorder["accuracy"].values == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.10, 0.12])
    assert recorder["confusion_matrix"].values[1].tolist() == [[4.0, 4.0], [4.0, 4.0]]


@pytest.mark.parametrize("at", [1, 4, 7, 12])
def test_a_resumed_run_has_no_hole_and_no_double(at, tmp_path):
    recorders = [HistoryRecorder(every="1ba"), HistoryRecorder(every="5ba")]
    whole, resumed = whole_and_resumed(at, tmp_path, Confusion(), *recorders)
    for mine, theirs in zip(whole.callbacks[1:3], resumed.callbacks[1:3], strict=True):
        assert mine.names() == theirs.names()
        for name in mine:
            assert mine[name].steps == theirs[name].steps == sorted(set(mine[name].steps))
            assert mine[name].epochs == theirs[name].epochs
            assert torch.equal(torch.tensor(as_numbers(mine[name])), torch.tensor(as_numbers(theirs[name])))
    assert differences(whole, resumed) == []


def as_numbers(curve) -> list:
    return [value.tolist() if isinstance(value, torch.Tensor) else value for value in curve.values]


def test_a_name_that_was_not_recorded_is_explained():
    recorder = HistoryRecorder()
    recorder.update_metric("val_loss", 1.0, epoch=0, step=1)
    assert "val_loss" in recorder
    with pytest.raises(KeyError, match="did you mean 'val_loss'"):
        recorder["val_los"]


def test_texts_and_pictures_are_not_history():
    recorder = HistoryRecorder()
    for value in ("heard", object(), None):
        recorder.update_metric("thing", value, epoch=0, step=1)
    recorder.update_metric("count", 3, epoch=0, step=1)
    recorder.update_metric("share", np.float32(0.5), epoch=0, step=1)
    assert {name: recorder[name].values for name in recorder} == {"count": [3.0], "share": [0.5]}


def test_a_second_value_of_a_step_takes_the_place_of_the_first():
    recorder = HistoryRecorder()
    for value in (1.0, 2.0):
        recorder.update_metric("loss", value, epoch=0, step=7)
    assert (recorder["loss"].steps, recorder["loss"].values, len(recorder["loss"])) == ([7], [2.0], 1)
