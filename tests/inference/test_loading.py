"""Reading of a saved trainer what hears, and nothing else."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from sonosco_like import load, save, serializable, state
from sonosco_like.data import Alphabet, AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.features import LogMel
from sonosco_like.data.normalization import GlobalNormalization
from sonosco_like.errors import ConfigError, StorageError, UsageError
from sonosco_like.events import AbstractCallback
from sonosco_like.inference import load_recogniser
from sonosco_like.losses import CTCLoss
from sonosco_like.models import DeepSpeech2, DeepSpeech2Encoder, SpectrogramConvolution
from sonosco_like.serialization import Saved
from sonosco_like.serialization.tensors import TensorReader
from sonosco_like.training import ModelTrainer
from sonosco_like.training.saver import WeightAverage


def tiny_model() -> DeepSpeech2:
    convolutions = [SpectrogramConvolution(channels=2, time_kernel=3, frequency_kernel=3, time_stride=2)]
    encoder = DeepSpeech2Encoder(cell="gru", hidden_size=4, layers=1, convolutions=convolutions)
    return DeepSpeech2(vocabulary_size=7, features=8, encoder=encoder)


def tiny_trainer(manifest: Path = Path("not/there.jsonl"), **fields) -> ModelTrainer:
    """A trainer whose data is nowhere to be found."""
    dataset = AudioDataset(
        manifest=manifest,
        features=LogMel(mels=8),
        tokenizer=Alphabet(characters="ab "),
        normalization=fields.pop("normalization", None),
        max_duration=9.0,
    )
    loader = AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=2))
    made = {
        "model": tiny_model(),
        "loss": CTCLoss(),
        "epochs": 1,
        "train_data_loader": loader,
        "val_data_loader": loader,
    }
    return ModelTrainer(**{**made, **fields})


def rewrite(folder: Path, name: str, old: str, new: str) -> None:
    """Change a file of a checkpoint as its author would have written it, hashes and all."""
    path = folder / name
    path.write_text(re.sub(old, new, path.read_text(), count=1))
    state_path = folder / "state.yaml"
    text = state_path.read_text()
    if name == "trainer.yaml":
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        text = re.sub(r"trainer\.yaml: \w+", f"trainer.yaml: {digest}", text)
    body = text[: text.rindex("sha256: ")]
    state_path.write_text(body + f"sha256: {hashlib.sha256(body.encode()).hexdigest()}\n")


def test_the_model_is_the_one_that_was_trained(digits):
    recogniser = load_recogniser(digits.run, "cpu")
    whole = load(digits.run / "final")
    expected = whole.model.state_dict()
    assert {name: torch.equal(value, expected[name]) for name, value in recogniser.model.state_dict().items()} == (
        dict.fromkeys(expected, True)
    )
    assert recogniser.features.mels == 24
    assert recogniser.source == digits.run / "final"
    assert not recogniser.model.training


def test_neither_the_data_nor_the_moments_of_the_optimizer_are_touched(digits, tmp_path, monkeypatch):
    trainer = load(digits.run / "final")
    trainer.train_data_loader.dataset.manifest = tmp_path / "moved" / "away.jsonl"
    save(trainer, tmp_path / "elsewhere")
    read = []
    original = TensorReader.read
    monkeypatch.setattr(TensorReader, "read", lambda self, name: read.append(name) or original(self, name))
    load_recogniser(tmp_path / "elsewhere")
    assert read
    heard_with = ("model.", "train_data_loader.dataset.normalization.")
    assert [name for name in read if not name.startswith(heard_with)] == []


def test_a_checkpoint_holds_where_the_parts_of_a_recogniser_are(digits):
    written = Saved(digits.run / "final").state("", "state_dict", "recogniser")
    assert written["parts"]["tokenizer"] == "train_data_loader.dataset.tokenizer"
    assert written["averaged_weights"] is None


def test_a_run_can_be_moved(digits, tmp_path):
    shutil.copytree(digits.run, tmp_path / "moved")
    assert load_recogniser(tmp_path / "moved").source == tmp_path / "moved" / "final"


def test_statistics_of_the_training_set_come_along(tmp_path):
    normalization = GlobalNormalization()
    normalization.fit([torch.randn(50, 8) * 3 + 1])
    save(tiny_trainer(normalization=normalization), tmp_path / "saved")
    loaded = load_recogniser(tmp_path / "saved")
    assert torch.equal(loaded.normalization.mean_F, normalization.mean_F)
    assert loaded.max_duration == 9.0


@serializable
class Unheard(AbstractCallback):
    """A callback that a machine without its module does not know."""

    count: int = state(0)


def test_classes_that_do_not_hear_need_not_be_known(tmp_path):
    save(tiny_trainer(callbacks=[Unheard()]), tmp_path / "saved")
    rewrite(tmp_path / "saved", "trainer.yaml", r"class: \S*Unheard", "class: elsewhere.Unheard")
    assert load_recogniser(tmp_path / "saved").tokenizer.characters == "ab "


def test_averaged_weights_are_used_if_the_trainer_kept_some(tmp_path):
    trainer = tiny_trainer(averaging=WeightAverage())
    trainer.averaging.update(trainer.model)
    averaged = {name: value.clone() for name, value in trainer.averaging.weights.items()}
    with torch.no_grad():
        trainer.model.ctc_output.bias += 1
    save(trainer, tmp_path / "saved")
    loaded = load_recogniser(tmp_path / "saved")
    assert loaded.weights == "averaged"
    assert torch.equal(loaded.model.ctc_output.bias, averaged["ctc_output.bias"])
    save(tiny_trainer(), tmp_path / "without")
    assert load_recogniser(tmp_path / "without").weights == "last"


def test_without_a_decoder_the_greedy_one_is_taken(tmp_path):
    save(tiny_trainer(), tmp_path / "saved")
    assert type(load_recogniser(tmp_path / "saved").decoder).__name__ == "GreedyCTCDecoder"


def test_a_model_of_a_newer_version_says_what_to_update(tmp_path):
    save(tiny_trainer(), tmp_path / "saved")
    rewrite(tmp_path / "saved", "trainer.yaml", r"class: DeepSpeech2@2\n", "class: DeepSpeech2@9\n")
    with pytest.raises(ConfigError, match=r"saved as version 9 of DeepSpeech2.*update the package"):
        load_recogniser(tmp_path / "saved")


def test_a_newer_format_is_refused(tmp_path):
    save(tiny_trainer(), tmp_path / "saved")
    rewrite(tmp_path / "saved", "state.yaml", r"format: 1", "format: 9")
    with pytest.raises(ConfigError, match="is of format 9"):
        load_recogniser(tmp_path / "saved")


def test_an_unknown_class_is_named_with_a_remedy(tmp_path):
    save(tiny_trainer(), tmp_path / "saved")
    rewrite(tmp_path / "saved", "trainer.yaml", r"class: DeepSpeech2@2\n", "class: qqq.Xyzzy\n")
    with pytest.raises(ConfigError, match=r"trainer\.yaml:\d+: model.*qqq\.Xyzzy.*--import"):
        load_recogniser(tmp_path / "saved")


def test_torn_weights_are_refused(tmp_path):
    save(tiny_trainer(), tmp_path / "saved")
    path = tmp_path / "saved" / "tensors.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"torn")
    with pytest.raises(StorageError, match="is torn or was changed"):
        load_recogniser(tmp_path / "saved")


@serializable
class NoRecogniser(nn.Module):
    """A network that cannot hear."""

    size: int = 3

    def __post_init__(self) -> None:
        self.layer = nn.Linear(self.size, self.size)


def test_what_is_no_recogniser_is_refused(tmp_path):
    save(tiny_trainer(model=NoRecogniser()), tmp_path / "network")
    with pytest.raises(UsageError, match="NoRecogniser cannot be used to transcribe"):
        load_recogniser(tmp_path / "network")
    save(tiny_trainer(train_data_loader=[], val_data_loader=None), tmp_path / "no data")
    with pytest.raises(UsageError, match="whose `dataset` has `features` and a `tokenizer`"):
        load_recogniser(tmp_path / "no data")
    save(tiny_model(), tmp_path / "model")
    with pytest.raises(UsageError, match="it must hold a trainer"):
        load_recogniser(tmp_path / "model")


def test_a_device_that_is_not_there_is_refused(digits):
    with pytest.raises(UsageError, match="The device 'nonsense' cannot be used here"):
        load_recogniser(digits.run, "nonsense")
