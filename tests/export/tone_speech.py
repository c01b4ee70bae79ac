"""Speech of tones: each letter is a tone of its own. A small recogniser of any kind learns it in seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from sonosco_like.data import Alphabet, AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.features import LogMel
from sonosco_like.data.workers import one_thread
from sonosco_like.decoding import AttentionBeamDecoder, GreedyCTCDecoder
from sonosco_like.decoding.decoder import Decoder
from sonosco_like.losses import CTCLoss, JointLoss
from sonosco_like.models import (
    LAS,
    TDS,
    Attention,
    Conformer,
    ConformerEncoder,
    DeepSpeech2,
    DeepSpeech2Encoder,
    Listener,
    Recogniser,
    SpectrogramConvolution,
    Speller,
    TDSEncoder,
    TDSGroup,
)
from sonosco_like.optim import AdamW
from sonosco_like.training import Experiment, ModelTrainer, seed_everything

RATE, MELS = 16000, 24
LETTERS = {"a": 300.0, "b": 700.0, "c": 1500.0, "d": 3000.0}
ALPHABET = Alphabet(characters="abcd ")
COMMON = {"vocabulary_size": len(ALPHABET.symbols), "features": MELS}


def speak(text: str, random: np.random.Generator) -> np.ndarray:
    """The text as tones with short pauses, a pause for a blank, and some noise."""
    parts = []
    for letter in text:
        seconds = random.uniform(0.07, 0.12)
        times = np.arange(int(seconds * RATE)) / RATE
        tone = np.sin(2 * np.pi * LETTERS[letter] * times) if letter in LETTERS else 0 * times
        parts += [0.3 * tone * random.uniform(0.5, 1.0), np.zeros(int(random.uniform(0.03, 0.06) * RATE))]
    return (np.concatenate(parts) + random.normal(0.0, 0.003, sum(map(len, parts)))).astype(np.float32)


def write_corpus(folder: Path, name: str, utterances: int, seed: int) -> Path:
    """A manifest of utterances of one to four words, as WAV."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(utterances):
        words = ["".join(random.choice(list(LETTERS), random.integers(1, 4))) for _ in range(random.integers(1, 5))]
        samples = speak(" ".join(words), random)
        path = folder / f"{name}-{number:03d}.wav"
        soundfile.write(path, samples, RATE, subtype="PCM_16")
        rows.append({"audio_filepath": path.name, "duration": len(samples) / RATE, "text": " ".join(words)})
    manifest = folder / f"{name}.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return manifest


def _convolutions() -> list[SpectrogramConvolution]:
    return [
        SpectrogramConvolution(channels=4, time_kernel=5, frequency_kernel=5, time_stride=2),
        SpectrogramConvolution(channels=4, time_kernel=5, frequency_kernel=5, time_stride=2),
    ]


def _deepspeech2() -> Recogniser:
    encoder = DeepSpeech2Encoder(convolutions=_convolutions(), cell="lstm", hidden_size=32, layers=2)
    return DeepSpeech2(**COMMON, encoder=encoder)


def _tds() -> Recogniser:
    groups = [TDSGroup(channels=2, blocks=1, kernel=5), TDSGroup(channels=3, blocks=1, kernel=5)]
    return TDS(
        **COMMON, encoder=TDSEncoder(groups=groups, dropout=0.0, norm_over="frame"), attention_decoder=None, ctc=True
    )


def _conformer() -> Recogniser:
    return Conformer(**COMMON, encoder=ConformerEncoder(size=32, layers=2, heads=2, kernel=7, channels=4, dropout=0.0))


def _las() -> Recogniser:
    attention = Attention(kind="location", size=32, frames_per_label=4.0)
    speller = Speller(hidden_size=32, layers=1, embedding_size=16, attention=attention)
    listener = Listener(hidden_size=32, layers=1, stack=2, batch_norm=True)
    return LAS(**COMMON, encoder=listener, decoder=speller, ctc=True)


KINDS: dict[str, tuple[Callable[[], Recogniser], Decoder, int]] = {
    "deepspeech2": (_deepspeech2, GreedyCTCDecoder(), 12),
    "tds": (_tds, GreedyCTCDecoder(), 12),
    "conformer": (_conformer, GreedyCTCDecoder(), 12),
    "las": (_las, AttentionBeamDecoder(beam_size=3, ctc_weight=0.3), 16),
}


def loader(manifest: Path) -> AudioDataLoader:
    features = LogMel(mels=MELS, high_frequency=-400.0)
    dataset = AudioDataset(manifest=manifest, features=features, tokenizer=ALPHABET)
    return AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=8))


def train(folder: Path, kind: str) -> None:
    """Train a recogniser of this kind in a run folder of that name."""
    model, decoder, epochs = KINDS[kind]
    seed_everything(1)
    made = model()
    trainer = ModelTrainer(
        model=made,
        loss=CTCLoss() if made.decoder is None else JointLoss(ctc_weight=0.5),
        epochs=epochs,
        train_data_loader=loader(folder / "train.jsonl"),
        val_data_loader=loader(folder / "val.jsonl"),
        decoder=decoder,
        optimizer=AdamW(lr=0.01),
        clip_grads=5.0,
        test_step=None,
    )
    with one_thread():
        Experiment(name=kind, trainer=trainer).start(folder / kind)
