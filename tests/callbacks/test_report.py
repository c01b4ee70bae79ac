"""RunReport: a page that is complete by itself."""

from __future__ import annotations

from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from tiny_speech import speech_trainer, whole_and_resumed

from sonosco_like.callbacks.monitors import LogMeasures
from sonosco_like.callbacks.report import MeasureRow, Page, RunReport
from sonosco_like.callbacks.stopping import ThresholdStopper
from sonosco_like.edits import count_errors, words_of
from sonosco_like.errors import UsageError
from sonosco_like.records import Prediction
from sonosco_like.serialization import dumps, loads


class Reader(HTMLParser):
    """Texts of a page, and what it would fetch or run."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.fetched, self.tags = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.fetched += [value for name, value in attributes if name in ("src", "href") and value]

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def report_of(tmp_path, **fields):
    trainer = speech_trainer(LogMeasures(), report := RunReport(folder=tmp_path, **fields))
    trainer.start_training()
    return Reader((tmp_path / "report.html").read_text()), trainer, report


def page_with(**fields):
    return Reader(Page(**{"title": "t", "facts": {}, **fields}).html())


def test_a_report_has_measures_curves_config_and_facts(tmp_path):
    page, trainer, _ = report_of(tmp_path)
    measures = trainer.performance_measures
    assert f"{measures['val_loss']:.4g}" in page.text
    assert f"{100 * measures['val_word_error_rate']:.1f} %" in page.text
    assert "class: ModelTrainer" in page.text
    assert "epochs 3 of 3" in page.text
    assert "steps 12" in page.text
    assert "LogMeasures" in page.text
    assert {"svg", "path", "pre", "table"} <= page.tags


def test_a_report_needs_nothing_else(tmp_path):
    page, _, _ = report_of(tmp_path)
    assert [place for place in page.fetched if not place.startswith("#")] == []
    assert page.tags.isdisjoint({"script", "link", "img", "iframe"})


def test_the_worst_utterances_of_the_last_validation_are_compared_word_by_word(tmp_path):
    page, trainer, report = report_of(tmp_path, worst=2)
    predictions = [(p.id, p.reference, p.hypothesis) for p in trainer.predict(trainer.val_data_loader)]
    errors = {each: count_errors(words_of(each[1]), words_of(each[2])).errors for each in predictions}
    worst = sorted((each for each in predictions if errors[each]), key=lambda each: -errors[each])[:2]
    assert report.worst_utterances == worst
    assert worst[0][0] in page.text


def test_predictions_outside_a_validation_are_not_reported(tmp_path):
    report = RunReport()
    judged = SimpleNamespace(hypothesis_texts=["x"], batch=SimpleNamespace(ids=["u"], texts=["y"]))
    report.on_prediction_end(SimpleNamespace(result=judged))
    assert report.worst_utterances == []


def test_what_differs_between_said_and_heard_is_marked():
    text = Page("t", {}, worst=[Prediction("u1", "one two three", "one too three four")]).html()
    assert "u1: 2 errors in 3 words" in text
    words = [
        '<span class="word"><span>one</span></span>',
        '<span class="word substitution" title="substitution"><span>two</span><span>too</span></span>',
        '<span class="word"><span>three</span></span>',
        '<span class="word insertion" title="insertion"><span>·</span><span>four</span></span>',
    ]
    assert "\n".join(words) in text


def test_environment_and_config_of_the_run_folder_are_shown(tmp_path):
    (tmp_path / "environment.yaml").write_text("torch: 2.13.0\n")
    (tmp_path / "config.yaml").write_text("class: Experiment\nname: tiny\n")
    trainer = speech_trainer(LogMeasures(), RunReport())
    trainer.experiment = SimpleNamespace(name="tiny <run>", folder=tmp_path)
    trainer.start_training()
    page = Reader((tmp_path / "report.html").read_text())
    assert "torch: 2.13.0" in page.text
    assert "class: Experiment name: tiny" in page.text
    assert "tiny <run>" in page.text


def test_what_a_run_says_cannot_become_markup():
    evil = "<script>alert(1)</script>"
    page = page_with(
        title=evil, facts={evil: evil}, headlines=[MeasureRow(evil, evil, evil, evil, evil)], values={evil: evil},
        measures=[MeasureRow(evil, evil, evil, evil, evil)], worst=[Prediction(evil, evil, "a")], texts={evil: evil},
        seconds_in_callbacks={evil: 1.0},
    )  # fmt: skip
    assert "script" not in page.tags
    assert page.text.count("alert(1)") >= 19


def test_a_resumed_run_has_the_same_report_but_for_the_clock(tmp_path):
    whole, resumed = whole_and_resumed(10, tmp_path, LogMeasures(), RunReport(folder=tmp_path))
    assert resumed.callbacks[1].worst_utterances == whole.callbacks[1].worst_utterances
    assert resumed.callbacks[1].curves == whole.callbacks[1].curves


def test_the_state_of_version_2_is_read():
    report = loads("class: RunReport@2\nstate: {heard: [[u1, one two, one]], curves: {class: CurveStore}}\n")
    assert report.worst_utterances == [("u1", "one two", "one")]
    assert "class: RunReport@3" in dumps(report)


def test_the_metrics_of_the_validation_are_the_headlines(tmp_path):
    page, trainer, report = report_of(tmp_path)
    best = report.curves["val_word_error_rate"].lowest
    assert f"WER on val {100 * best[0]:.1f} % best, at step {best[1]}" in page.text
    assert "token accuracy on val" in page.text
    assert f"epochs {trainer.epochs} of 3" in page.text


def test_a_run_that_was_stopped_says_why(tmp_path):
    trainer = speech_trainer(
        LogMeasures(), RunReport(folder=tmp_path), ThresholdStopper(monitor="val_loss", threshold=1e9)
    )
    trainer.start_training()
    assert "ended stopped: val_loss is" in Reader((tmp_path / "report.html").read_text()).text


def test_the_same_run_has_the_same_picture(tmp_path):
    def picture(folder):
        report_of(folder)
        return (folder / "report.html").read_text().split("<svg")[1].split("</svg>")[0]

    assert picture(tmp_path / "a") == picture(tmp_path / "b")


def test_a_negative_number_of_utterances_is_refused():
    with pytest.raises(UsageError, match="must not be negative, got -1"):
        RunReport(worst=-1)
