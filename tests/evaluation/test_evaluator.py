"""A trained recogniser on a manifest, inside and outside of a training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from trained_runs import loader

from sonosco_like import AbstractCallback, ModelEvaluator, ModelTrainer, load, load_transcriber, serializable
from sonosco_like.errors import DataError, UsageError
from sonosco_like.events import Moment
from sonosco_like.inference import Transcriber


@pytest.fixture(scope="module")
def transcriber(digits) -> Transcriber:
    return load_transcriber(digits.run)


def write_manifest(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_trained_recogniser_is_far_better_than_a_guess(digits, transcriber):
    evaluation = ModelEvaluator(bootstraps=100).evaluate(transcriber, digits.train)
    assert evaluation.wer < 0.5
    interval = evaluation.intervals["wer"]
    assert interval.low <= evaluation.wer <= interval.high
    assert [result.id for result in evaluation.results] == [row["id"] for row in digits.rows()]
    assert evaluation.results[0].speaker == digits.rows()[0]["speaker"]
    assert evaluation.real_time_factor > 0


def test_it_hears_what_transcribing_hears(digits, transcriber):
    evaluation = ModelEvaluator(bootstraps=0).evaluate(transcriber, digits.test)
    texts = [transcriber(digits.audio(row)).text for row in digits.rows("test.jsonl")]
    assert [" ".join(result.hypothesis.split()) for result in evaluation.results] == texts


def test_a_trainer_and_its_checkpoint_are_evaluated_alike(digits, transcriber):
    trainer = load(digits.run / "final")
    evaluator = ModelEvaluator(bootstraps=20)
    outside = evaluator.evaluate(transcriber, digits.train)
    inside = evaluator.evaluate(trainer, digits.train)
    assert inside.results == outside.results
    assert inside.intervals == outside.intervals
    by_loader = evaluator.evaluate(trainer, trainer.train_data_loader)
    assert by_loader.words == outside.words
    assert trainer.model.training


def test_batches_and_workers_change_nothing(digits, transcriber):
    texts = [
        [result.hypothesis for result in ModelEvaluator(0, batch_seconds=seconds, workers=workers).evaluate(
            transcriber, digits.test).results]
        for seconds, workers in ((120.0, 0), (1.0, 0), (30.0, 1))
    ]  # fmt: skip
    assert texts[0] == texts[1] == texts[2]


def test_no_row_is_lost(digits, transcriber, tmp_path):
    good = digits.rows()[0]
    soundfile.write(tmp_path / "silence.wav", np.zeros(16000), 16000)
    (tmp_path / "text.wav").write_text("no audio\n" * 100)
    good["audio_filepath"] = str(digits.audio(good))
    rows = [
        good,
        {"audio_filepath": "silence.wav", "duration": 1.0, "text": "one"},
        {**good, "id": "odd", "text": "Zwölf, 7 & ñ!"},
        {"audio_filepath": "text.wav", "duration": 1.0, "text": "two"},
        {"audio_filepath": "missing.wav", "duration": 1.0, "text": "three"},
        {**good, "id": "nothing said", "text": ""},
    ]
    evaluation = ModelEvaluator(bootstraps=0).evaluate(transcriber, write_manifest(tmp_path / "m.jsonl", rows))
    assert [result.id for result in evaluation.results] == [good["id"], "silence", "odd", "nothing said"]
    assert evaluation.results[2].reference == "zwölf 7 ñ"
    assert set(evaluation.unusable) == {"text", "missing"}
    assert "row 5" in evaluation.unusable["missing"]
    assert evaluation.results[3].words.insertions == len(evaluation.results[3].hypothesis.split())


def test_progress_is_told(digits, transcriber):
    from contextlib import contextmanager

    told = []

    @contextmanager
    def progress(name, total, unit):
        told.append((name, total, unit))
        yield lambda amount: told.append(amount)

    ModelEvaluator(bootstraps=0).evaluate(transcriber, digits.test, progress)
    count = len(digits.rows("test.jsonl"))
    assert told == [("evaluating", count, "utterances"), *[1] * count]


def test_what_cannot_be_evaluated_is_refused(digits, transcriber, tmp_path):
    with pytest.raises(DataError, match=r"no\.jsonl"):
        ModelEvaluator().evaluate(transcriber, tmp_path / "no.jsonl")
    with pytest.raises(UsageError, match=r"A list cannot be evaluated"):
        ModelEvaluator().evaluate([], [])
    bad = write_manifest(tmp_path / "bad.jsonl", [{"audio_filepath": "no.wav", "duration": 1.0, "text": "a"}])
    with pytest.raises(UsageError, match="none of 1 utterances is usable"):
        ModelEvaluator().evaluate(transcriber, bad)


@serializable
class Intervals(AbstractCallback):
    """The callback that docs/evaluate.md shows."""

    def on_epoch_end(self, moment: Moment) -> None:
        evaluation = ModelEvaluator(bootstraps=20).evaluate(moment.context, moment.context.val_data_loader)
        moment.context.log({f"interval/{name}": value for name, value in evaluation.measures().items()})


@serializable
class Logged(AbstractCallback):
    """Keeps what is logged."""

    def __post_init__(self) -> None:
        self.values: dict = {}

    def on_log(self, moment: Moment) -> None:
        self.values |= moment.args["values"]


def test_a_callback_of_a_training_can_evaluate(digits):
    trained = load(digits.run / "final")
    logged = Logged()
    data = loader(digits.test, shuffle=False)
    trainer = ModelTrainer(
        model=trained.model,
        loss=trained.loss,
        epochs=1,
        train_data_loader=data,
        val_data_loader=data,
        decoder=trained.decoder,
        callbacks=[Intervals(), logged],
        test_step=None,
    )
    trainer.start_training()
    values = logged.values
    assert 0 <= values["interval/wer_low"] <= values["interval/wer"] <= values["interval/wer_high"]
