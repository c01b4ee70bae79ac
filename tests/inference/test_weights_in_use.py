"""What is best by a measure of some weights is used with these weights, by everybody who uses a run."""

from __future__ import annotations

import json
import logging

import pytest
import soundfile
import torch

from sonosco_like import dumps, load, save
from sonosco_like.callbacks import CheckpointAverage, ExportForInference, ModelCheckpoint
from sonosco_like.cli import run as sonosco
from sonosco_like.data import Alphabet, AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.features import LogMel
from sonosco_like.data.normalization import GlobalNormalization
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.inference import load_recogniser
from sonosco_like.losses import CTCLoss
from sonosco_like.metrics import word_error_rate
from sonosco_like.models import Recogniser, TDSEncoder, TDSGroup
from sonosco_like.optim import AdamW
from sonosco_like.training import Experiment, ModelTrainer, WeightAverage, open_run, seed_everything
from sonosco_like.training.initialisation import weights_of

TEXTS = ["ab a", "b", "a b ab", "ba", "a", "b ab"]


@pytest.fixture
def audio_loader(tmp_path):
    """Real recordings of noise."""
    generator, rows = torch.Generator().manual_seed(0), []
    for number, text in enumerate(TEXTS):
        soundfile.write(tmp_path / f"{number}.wav", 0.1 * torch.randn(8000, generator=generator).numpy(), 16000)
        rows.append({"audio_filepath": f"{number}.wav", "duration": 0.5, "text": text})
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = AudioDataset(
        manifest=tmp_path / "data.jsonl",
        features=LogMel(mels=8),
        normalization=GlobalNormalization(),
        tokenizer=Alphabet(characters="ab "),
    )
    return AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=2))


def train(folder, loader, *callbacks, averaging=True, epochs=4):
    """Plain and averaged weights differ much: the average follows slowly, and the steps are long."""
    seed_everything(1)
    encoder = TDSEncoder(groups=[TDSGroup(channels=1, blocks=1, kernel=3, stride=2)], norm_over="frame")
    trainer = ModelTrainer(
        model=Recogniser(vocabulary_size=len(loader.dataset.tokenizer.symbols), features=8, encoder=encoder, ctc=True),
        loss=CTCLoss(),
        epochs=epochs,
        train_data_loader=loader,
        val_data_loader=loader,
        decoder=GreedyCTCDecoder(),
        metrics=[word_error_rate],
        optimizer=AdamW(lr=0.05),
        averaging=WeightAverage(decay=0.999) if averaging else None,
        callbacks=list(callbacks),
        test_step=2,
    )
    experiment = Experiment(name="used", trainer=trainer)
    experiment.start(folder)
    return experiment


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def loss_on(model, loader) -> float:
    total, weight = 0.0, 0.0
    with torch.no_grad():
        for batch in loader:
            size = float(CTCLoss().weight(batch))
            total, weight = total + CTCLoss()(model(batch), batch).item() * size, weight + size
    return total / weight


@pytest.mark.parametrize(
    ("monitor", "used"),
    [("val_loss", "last"), ("val_word_error_rate", "last"), ("val_ema_loss", "averaged"), (None, "averaged")],
)
def test_ranking_evaluation_transcription_and_export_are_of_the_same_weights(audio_loader, tmp_path, monitor, used):
    run = tmp_path / "run"
    policy = ModelCheckpoint(every="3ba", keep_last=9, monitor=monitor)
    experiment = train(run, audio_loader, policy, ExportForInference())
    heard = load_recogniser(run, device="cpu")
    saved = load(heard.source)
    plain, averaged = saved.model.state_dict(), saved.averaging.weights
    assert not same(plain, averaged)
    assert heard.weights == used
    assert same(heard.model.state_dict(), plain if used == "last" else averaged)
    if monitor is not None:
        best = next(iter(policy.best))
        assert heard.source == experiment.checkpoints.path_of(best)
        if monitor.endswith("loss"):
            assert loss_on(heard.model, audio_loader) == pytest.approx(policy.best[best], rel=1e-5)
    exported = load_recogniser(run / "inference", device="cpu")
    assert same(exported.model.state_dict(), heard.model.state_dict())
    assert exported.weights == heard.weights
    for part in ("decoder", "features", "tokenizer", "normalization", "cleaner", "max_duration"):
        assert dumps(getattr(exported, part), state=False) == dumps(getattr(heard, part), state=False), part
    assert torch.equal(exported.normalization.mean_F, heard.normalization.mean_F)
    assert same(weights_of(heard.source), heard.model.state_dict()), "what init_from takes"


@pytest.mark.parametrize("monitor", ["val_loss", "val_ema_loss"])
def test_a_run_and_its_export_hear_the_same(audio_loader, tmp_path, capsys, monitor):
    run = tmp_path / "run"
    train(run, audio_loader, ModelCheckpoint(monitor=monitor), ExportForInference(), epochs=6)
    said = []
    for place in (run, run / "inference"):
        recordings = [str(tmp_path / f"{number}.wav") for number in range(len(TEXTS))]
        assert sonosco(["transcribe", str(place), *recordings]) == 0
        said.append(capsys.readouterr().out)
        output = tmp_path / "result.json"
        command = ["evaluate", str(place), "--manifest", str(tmp_path / "data.jsonl"), "--json", str(output)]
        assert sonosco(command) == 0
        result = json.loads(output.read_text())
        said.append((result["wer"], result["weights"]))
        capsys.readouterr()
    assert said[:2] == said[2:]


def test_the_export_is_of_the_best_also_after_a_resume_with_another_decoder(audio_loader, tmp_path):
    run = tmp_path / "run"
    train(run, audio_loader, ModelCheckpoint(monitor="val_ema_loss", keep_last=1), ExportForInference())
    experiment, _ = open_run(run, ["trainer.epochs=5"])
    experiment.resume()
    heard, exported = load_recogniser(run, device="cpu"), load_recogniser(run / "inference", device="cpu")
    assert same(heard.model.state_dict(), exported.model.state_dict())


def test_restored_best_weights_are_used_as_they_were_ranked(audio_loader, tmp_path):
    run = tmp_path / "run"
    policy = ModelCheckpoint(every="1ep", monitor="val_loss", restore_best=True)
    experiment = train(run, audio_loader, policy, ExportForInference())
    best = load(experiment.checkpoints.path_of(next(iter(policy.best)))).model.state_dict()
    for place in (run / "final", run, run / "inference"):
        assert same(load_recogniser(place, device="cpu").model.state_dict(), best), place


def test_a_mean_of_checkpoints_is_used_with_the_mean_of_their_averages(audio_loader, tmp_path):
    run = tmp_path / "run"
    train(run, audio_loader, ModelCheckpoint(every="3ba", keep_last=4), CheckpointAverage(last=3), ExportForInference())
    final = load(run / "final")
    for place in (run, run / "inference"):
        found = load_recogniser(place, device="cpu")
        assert found.weights == "averaged"
        assert same(found.model.state_dict(), final.averaging.weights)
    steps = (6, 9, 12)
    averages = [load(run / "checkpoints" / f"step-{step:08d}").averaging.weights for step in steps]
    name = next(iter(averages[0]))
    expected = (sum(weights[name].double() for weights in averages) / 3).float()
    assert torch.equal(final.averaging.weights[name], expected)


def test_a_checkpoint_that_does_not_say_is_used_with_the_average_as_before(audio_loader, tmp_path):
    experiment = train(tmp_path / "run", audio_loader, ModelCheckpoint(every="3ba", keep_last=9, monitor="val_loss"))
    best = load(experiment.checkpoints.path_of(next(iter(experiment.trainer.callbacks[0].best))))
    best.used_weights.load_state_dict({})  # what a checkpoint of an earlier version holds
    save(best, tmp_path / "old")
    assert load_recogniser(tmp_path / "old", device="cpu").weights == "averaged"


@pytest.mark.parametrize(("monitor", "warns"), [("val_loss", True), ("val_ema_loss", False), (None, False)])
def test_a_measure_of_other_weights_than_are_averaged_is_told(audio_loader, tmp_path, caplog, monitor, warns):
    with caplog.at_level(logging.WARNING):
        train(tmp_path / "run", audio_loader, ModelCheckpoint(monitor=monitor), epochs=1)
    assert ("To use the average, monitor val_ema_loss" in caplog.text) == warns


def test_without_an_average_nothing_is_noted(audio_loader, tmp_path):
    policy = ModelCheckpoint(monitor="val_loss")
    train(tmp_path / "run", audio_loader, policy, averaging=False, epochs=1)
    assert "used_weights" not in (tmp_path / "run" / "final" / "state.yaml").read_text()
