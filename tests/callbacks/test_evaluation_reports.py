"""Printed reports: evaluated anew, on the sets that were asked for, without disturbing the run."""

from __future__ import annotations

import pytest
from tiny_speech import Utterances, differences, logged, speech_trainer, whole_and_resumed

from sonosco_like.callbacks import EarlyStopping, EvaluationReport
from sonosco_like.errors import UsageError
from sonosco_like.events import CallbackError


def test_a_report_has_every_measure_of_every_set(capsys):
    report = EvaluationReport(sets=["train", "val", "test"], every="2ep")
    trainer = speech_trainer(report, test_data_loader=Utterances(batches=1, seed=50))
    log = logged(trainer)
    trainer.start_training()
    assert [step for step, _ in log] == [8, 12]
    values = log[1][1]
    assert values["report/val/loss"] == trainer.performance_measures["val_loss"]
    assert values["report/test/word_error_rate"] == trainer.evaluate(trainer.test_data_loader)["word_error_rate"]
    printed = capsys.readouterr().out
    assert printed.count("After 8 batches") == printed.count("After 12 batches") == 1
    for word in ("train", "val", "test", "word_error_rate", "token_accuracy", "loss"):
        assert word in printed


def test_several_validation_sets_are_reported_one_by_one(capsys):
    sets = {"near": Utterances(batches=1, seed=7), "far": Utterances(batches=1, seed=50)}
    trainer = speech_trainer(EvaluationReport(every=None, examples=1), val_data_loader=sets)
    log = logged(trainer)
    trainer.start_training()
    values = log[-1][1]
    for name in sets:
        assert values[f"report/val_{name}/loss"] == trainer.performance_measures[f"val_{name}_loss"]
    printed = capsys.readouterr().out
    assert "val_near u7-0\n" in printed
    assert "val_far u50-0\n" in printed


def test_examples_show_reference_and_hypothesis(capsys):
    trainer = speech_trainer(EvaluationReport(every=None, examples=3))
    trainer.start_training()
    printed = capsys.readouterr().out
    for prediction in trainer.predict(trainer.val_data_loader)[:3]:
        expected = f"val {prediction.id}\n  reference:  {prediction.reference}\n  hypothesis: {prediction.hypothesis}"
        assert expected.rstrip() in printed
    assert printed.count("reference:") == 3


def test_a_run_with_reports_learns_what_a_run_without_learns(capsys):
    plain = speech_trainer(EarlyStopping(patience=50))
    plain.start_training()
    reporting = speech_trainer(EarlyStopping(patience=50), EvaluationReport(sets=["train", "val"], examples=1))
    reporting.start_training()
    reporting.set_callbacks(reporting.callbacks[:1])
    assert differences(plain, reporting) == []


def test_the_end_is_not_reported_twice(capsys):
    speech_trainer(EvaluationReport()).start_training()
    assert capsys.readouterr().out.count("After 12 batches") == 1


def test_a_resumed_run_reports_like_the_whole_one(tmp_path, capsys):
    whole, resumed = whole_and_resumed(5, tmp_path, EvaluationReport())
    assert whole.callbacks[0].reported_at == resumed.callbacks[0].reported_at == 12
    assert differences(whole, resumed) == []


def test_a_set_that_is_not_there_is_refused_at_the_start():
    with pytest.raises(CallbackError, match="has no `test_data_loader`"):
        speech_trainer(EvaluationReport(sets=["test"])).start_training()


def test_examples_need_a_decoder():
    trainer = speech_trainer(EvaluationReport(examples=1), decoder=None, metrics=[])
    with pytest.raises(CallbackError, match="give the trainer a `decoder`"):
        trainer.start_training()


@pytest.mark.parametrize("fields", [{"every": "100ba"}, {"sets": []}, {"examples": -1}])
def test_impossible_settings_are_refused(fields):
    with pytest.raises(UsageError, match="EvaluationReport"):
        EvaluationReport(**fields)
