"""The curves of a run: one store for all callbacks that need them, once in a checkpoint."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from safetensors import safe_open
from tiny import SaveAt
from tiny_speech import speech_trainer, whole_and_resumed

from sonosco_like import load
from sonosco_like.callbacks import HistoryRecorder, history
from sonosco_like.callbacks.history import Curve, CurveCallback, CurveStore
from sonosco_like.callbacks.monitors import LogMeasures
from sonosco_like.callbacks.plots import HistoryPlots
from sonosco_like.callbacks.report import RunReport

KEPT_RUN = Path(__file__).parents[1] / "formats" / "run-2"


def three_callbacks(folder):
    return [HistoryPlots(folder=folder), HistoryRecorder(every="5ba"), RunReport(folder=folder)]


def sharing(trainer):
    return [each for each in trainer.callbacks if isinstance(each, CurveCallback)]


def tensor_names(folder):
    with safe_open(folder / "tensors.safetensors", framework="pt") as file:
        return list(file.keys())


def test_a_checkpoint_holds_each_curve_once(tmp_path):
    saving = SaveAt(at=10, path=tmp_path / "saved")
    trainer = speech_trainer(LogMeasures(every="2ba"), *three_callbacks(tmp_path), saving)
    trainer.start_training()
    names = [name for name in tensor_names(tmp_path / "saved") if name.endswith(".values")]
    measures = [name.removesuffix(".values").rpartition(".")[2] for name in names]
    assert sorted(measures) == sorted(set(measures))
    assert {"loss", "val_loss", "val_word_error_rate"} <= set(measures)


@pytest.mark.parametrize("at", [1, 7, 10])
def test_history_plots_and_report_of_a_resumed_run_are_those_of_the_unbroken_run(at, tmp_path):
    whole, resumed = whole_and_resumed(at, tmp_path, LogMeasures(every="2ba"), *three_callbacks(tmp_path))
    assert len({id(each.curves) for each in sharing(resumed)}) == 1
    assert sharing(resumed)[0].curves == sharing(whole)[0].curves
    assert len(sharing(whole)[0].curves) > 3


def test_loaded_callbacks_have_their_curves_before_they_are_attached(tmp_path):
    saving = SaveAt(at=10, path=tmp_path / "saved")
    speech_trainer(LogMeasures(every="2ba"), *three_callbacks(tmp_path), saving).start_training()
    plots, recorder, report = sharing(load(tmp_path / "saved"))
    assert plots.curves is recorder.curves is report.curves
    assert recorder["loss"].steps == [2, 4, 5, 6, 8, 10]


def test_pictures_show_what_was_logged_and_the_history_has_everything(tmp_path):
    trainer = speech_trainer(LogMeasures(every="4ba"), *three_callbacks(tmp_path))
    trainer.start_training()
    plots, recorder, _ = sharing(trainer)
    assert recorder["loss"].steps == [2, 4, 5, 6, 8, 10, 12]  # validations are logged too
    assert plots.curves.logged_curves()["loss"].steps == [2, 4, 6, 8, 10, 12]


def test_points_are_dropped_only_if_no_callback_needs_them_all(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST_POINTS", 4)
    for extra, kept in ([], 4), ([HistoryRecorder()], 12):
        trainer = speech_trainer(LogMeasures(every="1ba"), plots := HistoryPlots(folder=tmp_path), *extra)
        trainer.start_training()
        assert len(plots.curves["loss"]) <= kept
        assert (len(plots.curves["loss"]) == 12) is bool(extra)
        assert len(plots.curves.logged_curves()["loss"]) <= 5
        assert plots.curves.logged_curves()["loss"].steps[-1] == 12


def test_checkpoints_in_which_each_callback_has_its_own_curves_are_read(tmp_path):
    old = KEPT_RUN / "expected"
    assert sum(name.endswith("state_dict.loss.values") or ".loss.values" in name for name in tensor_names(old)) == 3
    plots, recorder, report = sorted(sharing(load(old)), key=lambda each: type(each).__name__)
    assert plots.curves.logged_curves() == report.curves.logged_curves()
    recorder.curves.merge(plots.curves)
    merged = recorder.curves["val_loss"]
    assert merged.steps == sorted(set(merged.steps))
    assert recorder.curves.logged_curves().keys() == plots.curves.logged_curves().keys()
    assert recorder.curves.logged_curves()["val_loss"] == plots.curves.logged_curves()["val_loss"]


def test_merged_curves_have_the_points_of_both_and_prefer_logged_ones():
    recorded, logged = Curve(), Curve()
    for step in (1, 2, 3):
        recorded.add(0, step, float(step), logged=False)
    for step in (2, 4):
        logged.add(0, step, 10.0 * step)
    for merged in (recorded.merge(logged), logged.merge(recorded)):
        assert (merged.steps, merged.values) == ([1, 2, 3, 4], [1.0, 20.0, 3.0, 40.0])
        assert merged.logged == [False, True, False, True]
        assert merged.lowest == (20.0, 2)


def test_a_recorded_value_does_not_replace_a_logged_one_of_the_same_step():
    curve = Curve()
    curve.add(0, 1, 5.0)
    curve.add(0, 1, 6.0, logged=False)
    assert (curve.steps, curve.values, curve.logged) == ([1], [5.0], [True])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("most", [4, 100])
def test_whoever_remembers_the_shared_curves_they_go_back_to_the_earliest_moment(order, most, monkeypatch):
    monkeypatch.setattr(history, "MOST_POINTS", most)

    def filled(last):
        store = CurveStore()
        for step in range(last):
            store.add("loss", 0, step, 1.0 / (step + 1))
        return store

    for length in range(1, 12):
        store = filled(length)
        restore = [store.remember_state()]
        store.add("loss", 0, length, -1.0)
        restore.append(store.remember_state())
        for step in range(length, length + 7):
            store.add("loss", 0, step, -2.0)
            store.add("other", 0, step, math.nan)
        for place in order:
            restore[place]()
        assert store == filled(length)


def test_a_callback_that_is_added_in_mid_run_shares_the_curves(tmp_path):
    late = HistoryRecorder(every="1ba")

    def add(epoch, step, performance_measures, context):
        if context.global_step == 6:
            context.add_callback(late)

    trainer = speech_trainer(LogMeasures(every="3ba"), plots := HistoryPlots(folder=tmp_path), add)
    trainer.start_training()
    assert late.curves is plots.curves
    assert late["loss"].steps == [2, 3, 4, 6, 7, 8, 9, 10, 11, 12]
