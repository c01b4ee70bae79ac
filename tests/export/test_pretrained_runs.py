"""The way of pretrained weights through a run, for every variant: loaded, trained, resumed, transcribed, exported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_weights import save_foreign, save_vocabulary, wav2vec2, whisper, with_old_names
from safetensors.torch import load_file
from tone_speech import ALPHABET, write_corpus

from sonosco_like.callbacks import FreezeParameters, ModelCheckpoint
from sonosco_like.cli import run
from sonosco_like.data import AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.pretrained_features import Waveform, WhisperLogMel
from sonosco_like.decoding import AttentionBeamDecoder, GreedyCTCDecoder
from sonosco_like.losses import CTCLoss, JointLoss
from sonosco_like.models import Encoder, KeyValueDecoder, Recogniser
from sonosco_like.models.pretrained import read_weights
from sonosco_like.optim import AdamW
from sonosco_like.training import Experiment, ModelTrainer, seed_everything
from sonosco_like.training.initialisation import initialise

TENSORS = "tensors.safetensors"
LAYER = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
VARIANTS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {  # the reference, and how it is saved
    "wav2vec2": (lambda: wav2vec2("Wav2Vec2ForCTC"), {}),
    "xls-r": (lambda: wav2vec2("Wav2Vec2ForPreTraining", **LAYER), {"max_shard_size": "20KB"}),
    "mms": (lambda: wav2vec2("Wav2Vec2ForCTC", **LAYER).bfloat16(), {}),
    "hubert": (lambda: wav2vec2("HubertModel").half(), {}),
    "whisper": (
        lambda: whisper("WhisperForConditionalGeneration", max_source_positions=400).half(),
        {"max_shard_size": "20KB"},
    ),
    "whisper-attention": (lambda: whisper(max_source_positions=400), {}),
}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("tones"), "train", 8, seed=4)


@pytest.fixture(params=VARIANTS)
def reference(request) -> Any:
    """A model of the reference implementation with the `variant` that it is, which has numbers of any size."""
    made = VARIANTS[request.param][0]()
    made.variant = request.param
    return made


@pytest.fixture
def weights(reference, tmp_path) -> Path:
    """The folder of the reference: old names, one vocabulary for each language, shards, small numbers."""
    folder = save_foreign(reference, tmp_path / "weights", **VARIANTS[reference.variant][1])
    if reference.variant == "wav2vec2":
        save_vocabulary(with_old_names(folder), {"<pad>": 0, "<unk>": 3, "a": 4, "b": 5, "|": 6})
    if reference.variant == "mms":
        (folder / "vocab.json").write_text(json.dumps({"eng": {"<pad>": 0, "a": 4}, "fra": {"<pad>": 0, "a": 4}}))
    return folder


def loader(manifest: Path, features: Any) -> AudioDataLoader:
    dataset = AudioDataset(manifest=manifest, features=features, normalization=None, tokenizer=ALPHABET)
    return AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=2))


def experiment_of(weights: Path, manifest: Path, attention: bool) -> Experiment:
    """Four batches, of which the first trains all but the encoder."""
    seed_everything(1)
    encoder = read_weights(weights).encoder
    features = WhisperLogMel() if read_weights(weights).family == "whisper" else Waveform()
    model = Recogniser(
        vocabulary_size=ALPHABET.size,
        features=features.size,
        encoder=encoder,
        ctc=True,
        attention_decoder=KeyValueDecoder(size=8) if attention else None,
    )
    torch.nn.init.normal_(model.ctc_output.weight)  # so that it writes more than blanks
    trainer = ModelTrainer(
        model=model,
        loss=JointLoss(ctc=CTCLoss(too_long="skip")) if attention else CTCLoss(too_long="skip"),
        epochs=1,
        train_data_loader=loader(manifest, features),
        val_data_loader=loader(manifest, features),
        decoder=AttentionBeamDecoder(beam_size=2, ctc_weight=0.9) if attention else GreedyCTCDecoder(),
        optimizer=AdamW(lr=0.003, layer_decay=0.9),
        callbacks=[FreezeParameters(until="1ba"), ModelCheckpoint(every="2ba")],
    )
    return Experiment(name="tuned", trainer=trainer, seed=1, init_from=weights)


@torch.no_grad()
def outputs(reference: Any, encoder: Encoder) -> tuple[torch.Tensor, torch.Tensor]:
    """What the reference and our encoder make of the same input, which has the length that the reference demands."""
    encoder.eval()
    variant, whole = reference.variant, reference.float()
    reference = getattr(whole, "model", getattr(whole, "wav2vec2", whole))
    if variant.startswith("whisper"):
        features_BTF = torch.randn(1, 800, 80)
        return reference.encoder(features_BTF.mT).last_hidden_state, encoder(features_BTF, torch.tensor([800]))[0]
    samples_BN = torch.randn(1, 3000)
    return reference(samples_BN).last_hidden_state, encoder(samples_BN[:, :, None], torch.tensor([3000]))[0]


def test_a_variant_is_loaded_trained_resumed_transcribed_and_exported(reference, weights, manifest, tmp_path, capsys):
    folder = tmp_path / "run"
    attention = reference.variant == "whisper-attention"
    untouched, experiment = (experiment_of(weights, manifest, attention) for _ in range(2))
    untouched = untouched.trainer
    initialise(untouched.model, weights, ALPHABET)
    expected_BSD, got_BSD = outputs(reference, untouched.model.encoder)
    torch.testing.assert_close(got_BSD, expected_BSD, atol=1e-5, rtol=0)

    trainer = experiment.trainer
    assert experiment.start(folder) == 0
    batch = next(iter(untouched.train_data_loader))
    losses = [each.loss(each.model.eval()(batch), batch).item() for each in (untouched, trainer)]
    assert losses[1] < 0.9 * losses[0]
    parts = dict(untouched.model.encoder.named_parameters())
    assert all(not torch.equal(each, parts[name]) for name, each in trainer.model.encoder.named_parameters())

    checkpoint = folder / "checkpoints" / "step-00000002"
    assert sorted(each.name for each in checkpoint.iterdir()) == ["state.yaml", TENSORS, "trainer.yaml"]
    weights.rename(tmp_path / "gone")  # a run needs the folder at its first start alone
    cut = Path(shutil.copytree(folder, tmp_path / "cut"))
    for later in (cut / "final", cut / "checkpoints" / "step-00000004"):
        shutil.rmtree(later)
    assert run(["resume", str(cut)]) == 0
    assert load_file(cut / "final" / TENSORS).keys() >= {"model.ctc_output.weight"}
    assert (cut / "final" / TENSORS).read_bytes() == (folder / "final" / TENSORS).read_bytes()

    audio = [str(manifest.parent / json.loads(line)["audio_filepath"]) for line in manifest.read_text().splitlines()]
    capsys.readouterr()
    assert run(["transcribe", str(folder / "final"), *audio]) == 0
    together = capsys.readouterr().out.splitlines()
    assert len(set(together)) > 4
    assert run(["transcribe", str(folder / "final"), audio[2]]) == 0
    assert together[2].endswith(capsys.readouterr().out.strip())
    exported = ["export", str(folder / "final"), "--output", str(tmp_path / "onnx"), "--verify", str(manifest)]
    assert run(exported) == 0
    assert "8 of 8 texts are the same" in capsys.readouterr().out
