"""ExportForInference: a folder that hears as the trained model does, and holds nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
import soundfile
import torch
from tiny_speech import Utterances, speech_trainer, whole_and_resumed
from torch import nn

from sonosco_like.callbacks import ExportForInference
from sonosco_like.data import Alphabet, AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.features import LogMel
from sonosco_like.data.normalization import GlobalNormalization
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.events import CallbackError
from sonosco_like.inference import TrainedRecogniser, load_recogniser
from sonosco_like.losses import CTCLoss
from sonosco_like.models import Recogniser, TDSEncoder, TDSGroup
from sonosco_like.serialization import load, save, serializable

TEXTS = ["ab a", "b", "a b ab", "ba"]


@pytest.fixture
def audio_loader(tmp_path):
    """A real loader of real recordings, with statistics that only the training knows."""
    generator, rows = torch.Generator().manual_seed(0), []
    for number, text in enumerate(TEXTS):
        samples = 0.1 * torch.randn(8000, generator=generator)
        soundfile.write(tmp_path / f"{number}.wav", samples.numpy(), 16000)
        rows.append({"audio_filepath": f"{number}.wav", "duration": 0.5, "text": text})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = AudioDataset(
        manifest=tmp_path / "train.jsonl",
        features=LogMel(mels=8),
        normalization=GlobalNormalization(),
        tokenizer=Alphabet(characters="ab "),
    )
    return AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=2))


def trainer_of_recordings(loader, *callbacks, **fields):
    """A trainer of real recordings."""
    encoder = TDSEncoder(groups=[TDSGroup(channels=1, blocks=1, kernel=3, stride=2)], norm_over="frame")
    vocabulary = len(loader.dataset.tokenizer.symbols)
    given = {
        "model": Recogniser(vocabulary_size=vocabulary, features=8, encoder=encoder, ctc=True),
        "loss": CTCLoss(),
        "epochs": 2,
        "train_data_loader": loader,
        "val_data_loader": None,
        "decoder": GreedyCTCDecoder(),
        "metrics": [],
    }
    return speech_trainer(*callbacks, **{**given, **fields})


def test_the_exported_folder_hears_what_the_trained_model_hears(audio_loader, tmp_path):
    trainer = trainer_of_recordings(audio_loader, ExportForInference(folder=tmp_path))
    trainer.start_training()
    recogniser = load_recogniser(tmp_path / "inference", device="cpu")
    trainer.model.eval()
    for number in range(len(TEXTS)):
        samples, _ = soundfile.read(tmp_path / f"{number}.wav", dtype="float32")
        batch = recogniser.batch([torch.from_numpy(samples)])
        with torch.no_grad():
            expected, found = trainer.model(batch), recogniser.model(batch)
        assert torch.equal(expected.ctc_logits_BSV, found.ctc_logits_BSV)
    heard = {prediction.id: prediction.hypothesis for prediction in trainer.predict(audio_loader)}
    assert len(heard) == len(TEXTS)
    assert recogniser.normalization.frames == audio_loader.dataset.normalization.frames > 0


def test_it_holds_neither_optimizer_nor_data(audio_loader, tmp_path):
    trainer = trainer_of_recordings(audio_loader, ExportForInference(folder=tmp_path))
    trainer.start_training()
    save(trainer, tmp_path / "checkpoint")
    exported, whole = (tmp_path / name / "tensors.safetensors" for name in ("inference", "checkpoint"))
    assert exported.stat().st_size < whole.stat().st_size / 2
    text = "".join((tmp_path / "inference" / name).read_text() for name in ("trainer.yaml", "state.yaml"))
    assert "train.jsonl" not in text
    assert "AdamW" not in text


def test_a_model_that_no_file_could_bring_back_is_refused_before_the_first_batch(tmp_path):
    class Foreign(nn.Linear):
        pass

    trainer = speech_trainer(ExportForInference(folder=tmp_path), model=Foreign(6, 3))
    with pytest.raises(CallbackError, match=r"ExportForInference failed at attach(.|\n)*Foreign"):
        trainer.start_training()


def test_without_features_and_tokenizer_the_weights_are_kept_and_the_lack_is_said(tmp_path, caplog):
    trainer = speech_trainer(ExportForInference(folder=tmp_path), train_data_loader=Utterances(batches=1), epochs=1)
    trainer.start_training()
    assert "nothing can be transcribed with it" in caplog.text
    exported = load(tmp_path / "inference", nn.Module)
    expected = trainer.model.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in exported.state_dict().items())


def test_a_resumed_run_replaces_what_an_interrupted_one_exported(tmp_path):
    whole, resumed = whole_and_resumed(5, tmp_path, ExportForInference(folder=tmp_path))
    exported = load(tmp_path / "inference", nn.Module)
    for trainer in (whole, resumed):
        expected = trainer.model.state_dict()
        assert all(torch.equal(weight, expected[name]) for name, weight in exported.state_dict().items())


def test_another_format_is_written_and_verified_on_the_validation_set(audio_loader, tmp_path):
    pytest.importorskip("onnxruntime")
    callback = ExportForInference(folder=tmp_path, path="graphs", format="onnx")
    trainer = trainer_of_recordings(audio_loader, callback, val_data_loader=audio_loader)
    trainer.start_training()
    names = {path.name for path in (tmp_path / "graphs").iterdir()}
    assert names == {"model.onnx", "transcribe.py", "README.md", "verification.json"}
    assert json.loads((tmp_path / "graphs" / "verification.json").read_text())["agrees"]
    assert trainer.model.training, "The export takes a copy, and leaves the model of the training alone."


def test_a_format_without_place_for_the_model_is_refused_before_the_first_batch(audio_loader, tmp_path):
    pytest.importorskip("sherpa_onnx")
    trainer = trainer_of_recordings(audio_loader, ExportForInference(folder=tmp_path, format="sherpa"))
    with pytest.raises(CallbackError, match=r"`high_frequency` is 0 and must be -400"):
        trainer.start_training()
    assert not (tmp_path / "inference").exists()


@serializable
class HearingParts:
    """As version 0.1 exported it: see `InferenceModel`."""

    features: Any = None
    normalization: Any = None
    tokenizer: Any = None
    cleaner: Any = None
    max_duration: float | None = None


@serializable
class HearingLoader:
    """As version 0.1 exported it: see `InferenceModel`."""

    dataset: HearingParts


@serializable
class InferenceModel:
    """What version 0.1 exported: a trainer made up for those who read one."""

    model: nn.Module
    train_data_loader: HearingLoader
    decoder: Any = None
    averaging: Any = None
    weights: str = "last"


def test_what_older_versions_exported_is_read(audio_loader, tmp_path):
    trainer = trainer_of_recordings(audio_loader, ExportForInference(folder=tmp_path))
    trainer.start_training()
    dataset = audio_loader.dataset
    parts = HearingParts(features=dataset.features, normalization=dataset.normalization, tokenizer=dataset.tokenizer)
    loader = HearingLoader(dataset=parts)
    save(InferenceModel(model=trainer.model, train_data_loader=loader, weights="averaged"), tmp_path / "older")
    old, new = load_recogniser(tmp_path / "older", "cpu"), load_recogniser(tmp_path / "inference", "cpu")
    assert (old.weights, new.weights) == ("averaged", "last")
    assert torch.equal(old.normalization.mean_F, new.normalization.mean_F)
    expected = new.model.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in old.model.state_dict().items())


def test_the_export_is_one_object_that_load_brings_back(audio_loader, tmp_path):
    trainer = trainer_of_recordings(audio_loader, ExportForInference(folder=tmp_path))
    trainer.start_training()
    assert isinstance(load(tmp_path / "inference"), TrainedRecogniser)
