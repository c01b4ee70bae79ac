"""WandbDestination in offline mode and MlflowDestination with a store of files: the real packages, read back."""

from __future__ import annotations

import json
import struct
import sys

import pytest
from killing import run_until_killed
from tiny import SaveAt
from tiny_speech import speech_trainer

from sonosco_like.callbacks import MlflowDestination, WandbDestination
from sonosco_like.callbacks.monitors import LogMeasures
from sonosco_like.errors import MissingPackageError
from sonosco_like.events import CallbackError
from sonosco_like.serialization import load

CURVES = {"loss/train", "loss/val", "gradient_norm/train", "token_accuracy/train", "token_accuracy/val", "wer/val"}


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """On a busy machine the service of Weights & Biases may take longer to start than it is given."""
    monkeypatch.setenv("WANDB_X_SERVICE_WAIT", "300")


def run(*callbacks, **fields):
    trainer = speech_trainer(*callbacks, **fields)
    trainer.start_training()
    return trainer


def wandb_points(folder):
    """Every value in the offline folders of a run, by name: (step, value) in the order in which they were sent."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    sys.modules["wandb"].teardown()  # waits until everything is written
    points: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for content in log_records(file.read_bytes()):
            record = messages.Record.FromString(content)
            for item in record.history.item:
                name = item.key or item.nested_key[0]
                if not name.startswith("_"):
                    points.setdefault(name, []).append((record.history.step.num, json.loads(item.value_json)))
    return points


def log_records(data):
    """The records of a file in LevelDB's log format, after the seven bytes W&B puts in front."""
    place, record = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield record
            record = b""


def mlflow_client(folder):
    return pytest.importorskip("mlflow.tracking").MlflowClient(tracking_uri=(folder / "mlruns").as_uri())


def mlflow_points(folder, run_id):
    client = mlflow_client(folder)
    names = client.get_run(run_id).data.metrics
    return {name: [(p.step, p.value) for p in client.get_metric_history(run_id, name)] for name in names}, client


class TestWandb:
    @pytest.fixture(autouse=True)
    def _installed(self, monkeypatch):
        pytest.importorskip("wandb")
        for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_RUN_ID"):
            monkeypatch.delenv(name, raising=False)

    def test_numbers_are_written_at_the_global_step(self, tmp_path):
        trainer = run(LogMeasures(every="1ba"), WandbDestination(folder=tmp_path))
        points = wandb_points(tmp_path / "wandb")
        assert set(points) == CURVES
        assert [step for step, _ in points["loss/train"]] == list(range(1, 13))
        assert points["wer/val"][-1] == (12, trainer.performance_measures["val_word_error_rate"])

    def test_a_resumed_run_sends_every_point_once_under_the_same_id(self, tmp_path):
        destination = WandbDestination(folder=tmp_path)
        run(LogMeasures(every="1ba"), destination, SaveAt(at=6, path=tmp_path / "checkpoint"))
        unbroken = wandb_points(tmp_path / "wandb")
        resumed = load(tmp_path / "checkpoint")
        resumed.continue_training()
        assert resumed.callbacks[1].run_id == destination.run_id
        assert wandb_points(tmp_path / "wandb") == unbroken
        assert len(list(tmp_path.glob("wandb/wandb/replaced-offline-run-*"))) == 1

    @pytest.mark.slow
    def test_a_killed_run_is_gone_on_with_without_a_hole(self, tmp_path):
        callbacks = 'LogMeasures(every="1ba"), WandbDestination(folder=folder)'
        checkpoint = run_until_killed(tmp_path, callbacks, saved_at=6, killed_at=9)
        load(checkpoint).continue_training()
        steps = [step for step, _ in wandb_points(tmp_path / "wandb")["loss/train"]]
        assert steps == list(range(1, 13))


class TestMlflow:
    @pytest.fixture(autouse=True)
    def _installed(self, monkeypatch):
        pytest.importorskip("mlflow")
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")

    def test_numbers_and_parameters_are_in_the_store(self, tmp_path):
        destination = MlflowDestination(folder=tmp_path)
        trainer = run(LogMeasures(every="1ba"), destination)
        points, client = mlflow_points(tmp_path, destination.run_id)
        assert set(points) == CURVES
        assert [step for step, _ in points["loss/train"]] == list(range(1, 13))
        assert points["wer/val"][-1] == (12, trainer.performance_measures["val_word_error_rate"])
        found = client.get_run(destination.run_id)
        assert found.data.params["optimizer.lr"] == "0.01"
        assert found.info.status == "FINISHED"

    @pytest.mark.parametrize("at", [4, 6])
    def test_a_resumed_run_sends_every_point_once_under_the_same_id(self, at, tmp_path):
        destination = MlflowDestination(folder=tmp_path)
        run(LogMeasures(every="1ba"), destination, SaveAt(at=at, path=tmp_path / "checkpoint"))
        unbroken, _ = mlflow_points(tmp_path, destination.run_id)
        resumed = load(tmp_path / "checkpoint")
        resumed.continue_training()
        assert resumed.callbacks[1].run_id == destination.run_id
        assert mlflow_points(tmp_path, destination.run_id)[0] == unbroken

    def test_a_run_that_fails_is_marked_as_failed(self, tmp_path):
        def fail(epoch, step, performance_measures, context):
            raise RuntimeError("broken")

        destination = MlflowDestination(folder=tmp_path)
        with pytest.raises(CallbackError, match="broken"):
            run(LogMeasures(), destination, fail)
        _, client = mlflow_points(tmp_path, destination.run_id)
        assert client.get_run(destination.run_id).info.status == "FAILED"


@pytest.mark.parametrize(("destination", "package"), [(WandbDestination(), "wandb"), (MlflowDestination(), "mlflow")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(destination, package, monkeypatch):
    for name in (package, "mlflow.tracking", "mlflow.entities"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Exception, match=rf"pip install 'sonosco_like\[{package}\]'") as caught:
        run(destination)
    assert isinstance(caught.value.__cause__ or caught.value, MissingPackageError)
