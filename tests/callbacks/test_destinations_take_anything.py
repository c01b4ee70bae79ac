"""Every destination takes the settings of every config we ship, and whatever names and numbers a run logs."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tracking_services import mlflow_client, mlflow_points, wandb_points
from tiny_speech import speech_trainer

import sonosco_like.catalog  # noqa: F401  (the classes that configs name)
from sonosco_like import dumps, serializable
from sonosco_like.callbacks import CsvFile, MetricsFile, MlflowDestination, TensorBoardCallback, WandbDestination
from sonosco_like.callbacks.console import ConsoleLog
from sonosco_like.callbacks.monitors import LogMeasures
from sonosco_like.callbacks.tracking_services import Names, name_of_parameter
from sonosco_like.events import AbstractCallback
from sonosco_like.training import read_experiment

FOLDER = Path(__file__).parents[2] / "configs"
CONFIGS = sorted(path for path in FOLDER.rglob("*.yaml") if path.stem != "common")  # a base is no config by itself
VALUES = {"nan": math.nan, "infinite": math.inf, "minus": -math.inf, "huge": 10**400, "tiny": 5e-324, "truth": True}
NAMES = [
    "a/b", "a", "a/b/c", "it’s", "it`s", "ü", "per cent %", "x(1)", "k=v", "[0]", "..", "../up", "/root", "//", "a//b",
    "trailing/", "", ".", "with\nline", "tab\t", "quote\"'", "long" * 100, "ü" * 200, "comma, semi;", "step_", "a:b",
]  # fmt: skip


@serializable
class Hostile(AbstractCallback):
    """Logs what nobody expects."""

    def __call__(self, epoch, step, performance_measures, context):
        context.log({name: float(place) for place, name in enumerate(NAMES)})
        context.log({**VALUES, "text": "line\nlone \ud800 surrogate"})
        context.log({f"layer/{number}": 0.0 for number in range(2500)})  # MLflow takes 1000 in one request


@pytest.fixture(autouse=True)
def _services(monkeypatch):
    """As in the tests of these services."""
    pytest.importorskip("wandb")
    pytest.importorskip("mlflow")
    monkeypatch.setenv("WANDB_X_SERVICE_WAIT", "300")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


def run(folder: Path, *callbacks, config: str | None = None, name: str = "any"):
    """A real run of two batches with every destination; its config is the one given."""
    folder.mkdir(exist_ok=True)
    if config is not None:
        (folder / "config.yaml").write_text(config, encoding="utf-8")
    mlflow = MlflowDestination()
    destinations = [MetricsFile(), CsvFile(), ConsoleLog(), TensorBoardCallback(), WandbDestination(), mlflow]
    trainer = speech_trainer(LogMeasures(every="1ba"), *callbacks, *destinations, epochs=1, max_duration="2ba")
    trainer.experiment = SimpleNamespace(name=name, folder=folder, checkpoints=None)
    trainer.start_training()
    return mlflow


@pytest.mark.parametrize("config", CONFIGS, ids=[str(path.relative_to(path.parents[2])) for path in CONFIGS])
def test_every_destination_takes_the_settings_of_every_shipped_config(config, tmp_path):
    not_learned_yet = ["trainer.model.vocabulary_size=500"] if config.parent.name == "librispeech" else []
    text = dumps(read_experiment(config, not_learned_yet), state=False)
    mlflow = run(tmp_path / "run", config=text, name=config.stem)
    points, client = mlflow_points(tmp_path / "run", mlflow.run_id)
    found = client.get_run(mlflow.run_id).data.params
    assert len(points["loss/train"]) == 2
    assert found["trainer.model.class"] in text
    assert len(found) > 100
    assert len(wandb_points(tmp_path / "run" / "wandb")["loss/train"]) == 2
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2


def test_every_destination_takes_settings_that_are_huge_whole_numbers(tmp_path):
    mlflow = run(tmp_path / "run", config=f"class: Experiment\nseed: {10**20}\nless: {-(10**20)}\n")
    points, client = mlflow_points(tmp_path / "run", mlflow.run_id)
    assert client.get_run(mlflow.run_id).data.params["seed"] == str(10**20)
    assert len(points["loss/train"]) == 2


def test_every_destination_takes_any_name_and_any_number(tmp_path, capsys):
    mlflow = run(tmp_path / "run", Hostile(), name="a name " * 40)
    client = mlflow_client(tmp_path / "run")
    sent = client.get_run(mlflow.run_id).data.metrics
    history = client.get_metric_history(mlflow.run_id, "itu2019s")  # of one alone: each lists the files of all
    assert [point.value for point in history] == [float(NAMES.index("it’s"))] * 2
    assert sum(name.startswith("layer/") for name in sent) == 2500
    assert math.isnan(sent["nan"])
    assert set(map(float, range(len(NAMES)))) <= set(sent.values()), "no two names became one"
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row[name] for row in rows for name in NAMES] == [float(place) for place in range(len(NAMES))] * 2
    assert rows[0]["huge"] == 10**400
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        assert [row["it’s"] for row in csv.DictReader(file)] == [str(float(NAMES.index("it’s")))] * 2
    written = wandb_points(tmp_path / "run" / "wandb")
    assert [value for _, value in written["a/b"]] == [0.0, 0.0]
    assert "per cent %" in capsys.readouterr().out


@given(st.lists(st.text(max_size=300), max_size=20, unique=True), st.integers(0, 20))
def test_names_of_mlflow_are_valid_different_and_the_same_after_a_resume(names, at):
    validation = pytest.importorskip("mlflow.utils.validation")
    made = Names()
    first = [made.of_metric(name) for name in names]
    for name in [*first, *map(name_of_parameter, names)]:
        validation._validate_metric_name(name)
    assert len(set(map(name_of_parameter, names))) == len(names)
    assert not {f"{name}/" for name in first} & {name[: len(other) + 1] for name in first for other in first}
    again = Names(first[:at])
    assert [again.of_metric(name) for name in names[:at]] == first[:at]
