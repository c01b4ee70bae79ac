"""TensorBoardCallback, read back with TensorBoard's own reader."""

from __future__ import annotations

from types import SimpleNamespace

import matplotlib.figure
import numpy as np
import pytest
import torch
from event_records import records
from killing import resume_until_killed, run_until_killed
from tiny import SaveAt
from tiny_speech import Utterances, speech_trainer

from sonosco_like.callbacks.destination import Audio, Image, hyperparameters
from sonosco_like.callbacks.monitors import LogMeasures, LRMonitor
from sonosco_like.callbacks.tensorboard import TensorBoardCallback
from sonosco_like.serialization import load

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
hparams = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")


def read(folder):
    """What TensorBoard shows of a folder."""
    everything = dict.fromkeys(accumulators.DEFAULT_SIZE_GUIDANCE, 0)
    return accumulators.EventAccumulator(str(folder), size_guidance=everything).Reload()


def points(folder):
    """Every curve as (step, value) pairs."""
    seen = read(folder)
    return {tag: [(point.step, point.value) for point in seen.Scalars(tag)] for tag in seen.Tags()["scalars"]}


def run(*callbacks, **fields):
    trainer = speech_trainer(*callbacks, **fields)
    trainer.start_training()
    return trainer


def test_measures_are_grouped_curves_over_the_global_step(tmp_path):
    trainer = run(LogMeasures(every="1ba"), LRMonitor(every="4ba"), TensorBoardCallback(folder=tmp_path))
    curves = points(tmp_path / "tensorboard")
    assert [step for step, _ in curves["loss/train"]] == list(range(1, 13))
    assert [step for step, _ in curves["loss/val"]] == [2, 4, 6, 8, 10, 12]
    assert [step for step, _ in curves["learning_rate"]] == [4, 8, 12]
    assert set(curves) == {
        "loss/train", "loss/val", "gradient_norm/train", "token_accuracy/train", "token_accuracy/val", "wer/val",
        "learning_rate",
    }  # fmt: skip
    assert curves["wer/val"][-1][1] == pytest.approx(trainer.performance_measures["val_word_error_rate"])


@pytest.mark.parametrize("at", [4, 5, 12])
def test_after_a_resume_no_point_is_there_twice_and_none_is_missing(at, tmp_path):
    tensorboard = TensorBoardCallback(folder=tmp_path)
    run(LogMeasures(every="1ba"), tensorboard, SaveAt(at=at, path=tmp_path / "checkpoint"))
    unbroken, in_files = points(tmp_path / "tensorboard"), records(tmp_path / "tensorboard")
    for _ in range(2):
        load(tmp_path / "checkpoint").continue_training()
        assert points(tmp_path / "tensorboard") == unbroken
        assert records(tmp_path / "tensorboard") == in_files


def test_a_run_that_was_killed_goes_on_without_a_seam(tmp_path):
    callbacks = 'LogMeasures(every="1ba"), TensorBoardCallback(folder=folder)'
    checkpoint = run_until_killed(tmp_path, callbacks, saved_at=6, killed_at=9)
    assert [step for step, _ in points(tmp_path / "tensorboard")["loss/train"]] == list(range(1, 10))
    load(checkpoint).continue_training()
    run(LogMeasures(every="1ba"), TensorBoardCallback(folder=tmp_path / "whole"))
    assert points(tmp_path / "tensorboard") == points(tmp_path / "whole" / "tensorboard")


def test_a_tensorboard_that_watches_forgets_what_was_lost(tmp_path):
    run(LogMeasures(every="1ba"), TensorBoardCallback(folder=tmp_path), SaveAt(at=6, path=tmp_path / "checkpoint"))
    watching = read(tmp_path / "tensorboard")
    before = [point.step for point in watching.Scalars("loss/train")]
    load(tmp_path / "checkpoint").continue_training()
    watching.Reload()
    assert [point.step for point in watching.Scalars("loss/train")] == before == list(range(1, 13))


def test_a_clock_that_goes_back_loses_no_point(tmp_path):
    """Another machine, a container or NTP: three starts, each of which believes it is a day before the last one."""
    run(LogMeasures(every="1ba"), TensorBoardCallback(folder=tmp_path / "whole"))
    expected = points(tmp_path / "whole" / "tensorboard")
    ahead = (0, -86_400, -2 * 86_400)
    callbacks = 'LogMeasures(every="1ba"), TensorBoardCallback(folder=folder)'
    run_until_killed(tmp_path, callbacks, saved_at=6, killed_at=9, clock=ahead[0])
    watching = read(tmp_path / "tensorboard")
    resume_until_killed(tmp_path, saved_at=9, killed_at=11, clock=ahead[1])
    watching.Reload()
    assert [point.step for point in watching.Scalars("loss/train")] == list(range(1, 12))
    resume_until_killed(tmp_path, saved_at=99, killed_at=99, clock=ahead[2])
    watching.Reload()
    for seen in (watching, read(tmp_path / "tensorboard")):
        found = {tag: [(point.step, point.value) for point in seen.Scalars(tag)] for tag in seen.Tags()["scalars"]}
        assert found == expected
        times = [point.wall_time for point in seen.Scalars("loss/train")]
        assert times == sorted(times)
        assert times[-1] - times[0] < 86_400


@pytest.mark.parametrize(
    "there", ["1700000000.x", "9999999999.x", "zebra", "4000000000.sonosco", "4000000000_9.sonosco"]
)
def test_a_new_file_is_named_after_all_that_are_there(there, tmp_path):
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    (folder / f"events.out.tfevents.{there}").write_bytes(b"")
    for _ in range(12):
        before = max(file.name for file in folder.iterdir())
        tensorboard = TensorBoardCallback(folder=tmp_path)
        run(tensorboard, epochs=1)
        assert max(tensorboard.sizes) > before
        assert sorted(file.name for file in folder.iterdir())[-1] == max(tensorboard.sizes)


def test_foreign_files_in_the_folder_are_left_alone(tmp_path):
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    foreign = folder / "events.out.tfevents.1700000000.somebody"
    foreign.write_bytes(b"")
    for _ in range(2):
        run(LogMeasures(), TensorBoardCallback(folder=tmp_path))
    assert foreign.exists()
    assert len(list(folder.iterdir())) == 2


def test_two_instances_write_to_two_folders(tmp_path):
    run(LogMeasures(), TensorBoardCallback(folder=tmp_path), TensorBoardCallback(folder=tmp_path))
    assert points(tmp_path / "tensorboard") == points(tmp_path / "tensorboard-2")


def test_texts_pictures_sounds_and_tensors_are_shown_as_what_they_are(tmp_path):
    figure = matplotlib.figure.Figure()
    figure.subplots().plot([1, 2])
    values = {
        "transcript": "a b c",
        "attention": figure,
        "spectrogram": Image(torch.rand(4, 5, 3)),
        "recording": Audio(torch.linspace(-2, 2, 800), 8000),
        "weights": torch.tensor([1.0, 2.0, float("nan")]),
        "array": np.arange(5),
        "nothing": object(),
        "empty": torch.zeros(0),
        "one": torch.tensor(3.0),
    }

    def log(epoch, step, performance_measures, context):
        context.log(values)

    run(log, TensorBoardCallback(folder=tmp_path), epochs=1)
    seen = read(tmp_path / "tensorboard")
    tags = seen.Tags()
    assert tags["scalars"] == ["one"]
    assert set(tags["images"]) == {"attention", "spectrogram"}
    assert tags["audio"] == ["recording"]
    assert set(tags["histograms"]) == {"weights", "array"}
    assert seen.Tensors("transcript/text_summary")[0].tensor_proto.string_val == [b"a b c"]
    picture = seen.Images("spectrogram")[0]
    assert (picture.height, picture.width) == (4, 5)
    assert seen.Histograms("weights")[0].histogram_value.num == 2


def test_the_config_is_there_as_text_and_as_hyperparameters(tmp_path):
    run(LogMeasures(), TensorBoardCallback(folder=tmp_path))
    seen = read(tmp_path / "tensorboard")
    text = seen.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "    class: ModelTrainer" in text
    content = seen.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    found = hparams.HParamsPluginData.FromString(content).session_start_info.hparams
    assert found["optimizer.lr"].number_value == 0.01
    assert found["epochs"].number_value == 3
    assert found["model.encoder.class"].string_value == "TDSEncoder"
    content = seen.SummaryMetadata("_hparams_/experiment").plugin_data.content
    metrics = {info.name.tag for info in hparams.HParamsPluginData.FromString(content).experiment.metric_infos}
    assert {"loss/train", "loss/val", "wer/val"} <= metrics


def test_measures_of_several_validation_sets_are_curves_of_their_own(tmp_path):
    loaders = {"clean": Utterances(batches=1, seed=7), "noisy": Utterances(batches=1, seed=8)}
    run(LogMeasures(every="1ba"), TensorBoardCallback(folder=tmp_path), val_data_loader=loaders, epochs=1)
    curves = points(tmp_path / "tensorboard")
    assert {"loss/val_clean", "loss/val_noisy", "wer/val_clean", "wer/val_noisy"} <= set(curves)
    content = read(tmp_path / "tensorboard").SummaryMetadata("_hparams_/experiment").plugin_data.content
    metrics = {info.name.tag for info in hparams.HParamsPluginData.FromString(content).experiment.metric_infos}
    assert {"loss/train", "loss/val_clean", "wer/val_noisy"} <= metrics


def test_a_run_with_parts_that_have_no_yaml_is_shown_without_config(tmp_path):
    run(LogMeasures(), TensorBoardCallback(folder=tmp_path), model=Foreign(), loss=foreign_loss, metrics=[])
    assert "config/text_summary" not in read(tmp_path / "tensorboard").Tags()["tensors"]
    assert "loss/train" in points(tmp_path / "tensorboard")


class Foreign(torch.nn.Linear):
    """A model that nobody registered."""

    def __init__(self):
        super().__init__(1, 1)

    def forward(self, batch):
        return self.weight.sum()


def foreign_loss(output, batch):
    return output * len(batch)


def test_hyperparameters_are_flat_and_typed(tmp_path):
    text = "class: A\nlr: 1e-3\nlayers: 3\nbias: true\nnone: null\nname: '3'\nsizes: [1, 2]\ncallbacks: [{every: 1ba}]"
    (tmp_path / "config.yaml").write_text(text)
    run = SimpleNamespace(experiment=SimpleNamespace(folder=tmp_path))
    assert hyperparameters(run) == {
        "class": "A", "lr": 0.001, "layers": 3, "bias": True, "name": "3", "sizes.0": 1, "sizes.1": 2,
    }  # fmt: skip
