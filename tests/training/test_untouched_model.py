"""Fine-tuning is held against the model it began with: measured before step 1, logged, remembered, warned of."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import Diary
from tiny_speech import speech_trainer

from sonosco_like import diff, save
from sonosco_like.callbacks import LogMeasures, MetricsFile, TensorBoardCallback
from sonosco_like.metrics import DecodedBatch, Sums, metric, word_error_rate
from sonosco_like.optim import AdamW
from sonosco_like.training import Experiment, ModelTrainer, open_run
from sonosco_like.training.initialisation import InitialWeights


@metric(lower_is_better=True, over="batches")
def careless(judged: DecodedBatch) -> Sums:
    """A measure that draws random numbers from all generators, as no metric should."""
    return Sums(float(torch.rand(()) + random.random() + np.random.rand()), 1.0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A trained recogniser of the same kind."""
    trainer = speech_trainer(max_duration="6ba", optimizer=AdamW(lr=0.01))
    trainer.start_training()
    save(trainer, tmp_path / "source")
    return tmp_path / "source"


def fine_tune(source: Path, run: Path, *callbacks: Any, validate: bool = True, leave_out=(), **fields) -> ModelTrainer:
    trainer = speech_trainer(LogMeasures(), MetricsFile(), *callbacks, **{"metrics": [word_error_rate], **fields})
    init_from = InitialWeights(run=source, validate=validate, leave_out=list(leave_out))
    Experiment(name="tuned", trainer=trainer, init_from=init_from).start(run)
    return trainer


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_clock(run: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows(run)]


def said(caplog, level: int = logging.INFO) -> list[str]:
    caplog.set_level(logging.INFO)
    records = (each for each in caplog.records if each.name.endswith(".observations") and each.levelno == level)
    return [record.getMessage() for record in records]


@pytest.fixture(autouse=True)
def everything_logged(caplog):
    caplog.set_level(logging.INFO)


def test_the_model_is_validated_before_the_first_step_and_this_is_step_0_of_the_history(source, tmp_path, caplog):
    trainer = fine_tune(source, tmp_path / "run", TensorBoardCallback(), epochs=1)
    untouched = trainer.observations.untouched.measures
    assert set(untouched) == {"val_loss", "val_word_error_rate"}
    first, *others = rows(tmp_path / "run")
    assert {name: first[name] for name in ("step", "epoch", *untouched)} == {"step": 0, "epoch": 0, **untouched}
    assert min(row["step"] for row in others) > 0
    line = next(each for each in said(caplog) if each.startswith("before training:"))
    assert line == (
        f"before training: val WER {100 * untouched['val_word_error_rate']:.1f} %, "
        f"val loss {untouched['val_loss']:.4g}"
    )  # fmt: skip
    assert trainer.observations.points()[0].step == 0
    records = b"".join(file.read_bytes() for file in (tmp_path / "run" / "tensorboard").iterdir())
    assert records.count(b"wer/val") >= 2 + 2  # at step 0, and the description of hyperparameters beside the others


def test_it_is_the_measure_that_an_evaluation_of_the_source_gives(source, tmp_path):
    tuned = fine_tune(source, tmp_path / "run", epochs=1)
    plain = speech_trainer(metrics=[word_error_rate])
    from sonosco_like.training.initialisation import initialise

    initialise(plain.model, source)
    plain.parts.build()
    assert plain.evaluate(plain.val_data_loader) == {
        name.removeprefix("val_"): value for name, value in tuned.observations.untouched.measures.items()
    }


def test_training_is_the_same_to_the_bit_with_and_without_it(source, tmp_path):
    a, b = (
        fine_tune(source, tmp_path / f"{validate}", Diary(), validate=validate, metrics=[word_error_rate, careless])
        for validate in (True, False)
    )
    assert a.observations.untouched.measures
    assert not b.observations.untouched.measures
    others = ("seconds", "untouched_model", "callbacks[2].state.heard")
    assert [each.path for each in diff(a, b) if not any(part in each.path for part in others)] == []
    assert [heard for heard in a.callbacks[2].heard if heard != "log"] == [
        heard for heard in b.callbacks[2].heard if heard != "log"
    ]
    assert without_clock(tmp_path / "True")[1:] == without_clock(tmp_path / "False")


def test_a_resumed_run_remembers_it_and_does_not_measure_again(source, tmp_path, caplog):
    fine_tune(source, tmp_path / "run", max_duration="3ba")
    (tmp_path / "run" / "metrics.jsonl").unlink()  # the checkpoint alone is enough
    before = [each for each in said(caplog) if each.startswith("before training")]
    caplog.clear()
    experiment, step = open_run(tmp_path / "run", ["trainer.max_duration=null"])
    assert step == 3
    untouched = experiment.trainer.observations.untouched.measures
    assert untouched
    experiment.resume()
    assert before
    assert not [each for each in said(caplog) if each.startswith("before training")]
    assert experiment.trainer.observations.untouched.measures == untouched
    assert min(row["step"] for row in rows(tmp_path / "run")) > 0


def test_a_later_validation_that_is_worse_is_warned_of_less_and_less_often(source, tmp_path, caplog):
    trainer = fine_tune(source, tmp_path / "run", optimizer=AdamW(lr=3.0), metrics=[], epochs=4)  # the loss explodes
    warned = said(caplog, logging.WARNING)
    assert trainer.performance_measures["val_loss"] > trainer.observations.untouched.measures["val_loss"]
    assert [line.partition(":")[0].rpartition(" ")[2] for line in warned] == ["2", "4", "8", "16"]
    before = f"{trainer.observations.untouched.measures['val_loss']:.4g}"
    assert f"worse than the {before} of the model before training. What helps: a lower learning rate" in warned[0]
    assert warned[1].endswith("of the model before training.")


def test_a_training_that_makes_it_better_is_not_warned_of(source, tmp_path, caplog):
    trainer = fine_tune(source, tmp_path / "run", optimizer=AdamW(lr=0.003), metrics=[], epochs=2)
    assert trainer.performance_measures["val_loss"] < trainer.observations.untouched.measures["val_loss"]
    assert said(caplog, logging.WARNING) == []


def test_a_new_output_layer_is_not_validated(source, tmp_path, caplog):
    trainer = fine_tune(source, tmp_path / "run", leave_out=["ctc_output.*", "decoder.*"], epochs=1)
    assert trainer.observations.untouched.measures == {}
    assert not [each for each in said(caplog) if "before training" in each]
    assert rows(tmp_path / "run")[0]["step"] > 0


def test_a_run_without_init_from_is_not_validated_first(tmp_path):
    trainer = speech_trainer(LogMeasures(), MetricsFile(), epochs=1)
    Experiment(name="new", trainer=trainer).start(tmp_path / "run")
    assert rows(tmp_path / "run")[0]["step"] > 0
