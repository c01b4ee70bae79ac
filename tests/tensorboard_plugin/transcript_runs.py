"""Runs for the Transcripts dashboard: a real training on tones, and event files with texts of our choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from sonosco_like.callbacks import TensorBoardCallback, TranscriptDashboard
from sonosco_like.callbacks.tensorboard import EventFile, make_summary
from sonosco_like.callbacks.text_comparison.dashboard import ValidationTexts, hypotheses_record, utterances_record
from sonosco_like.data import AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.features import LogMel
from sonosco_like.data.manifest import write_manifest
from sonosco_like.data.text import Alphabet
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.losses import JointLoss
from sonosco_like.metrics import word_error_rate
from sonosco_like.models import KeyValueDecoder, Recogniser, TDSEncoder, TDSGroup
from sonosco_like.optim import AdamW
from sonosco_like.records import Utterance
from sonosco_like.serialization import serializable, state
from sonosco_like.training import ModelTrainer, seed_everything

RATE = 16000
TONES = {"a": 300.0, "b": 900.0}
TEXTS = ["a b", "b a", "a a b", "b", "a b b a", "b b"]
SAMPLED = ["tone-1", "tone-4"]


@serializable
class Witness(AbstractCallback):
    """Writes down what was decoded: by step, then by way of decoding, then by id."""

    heard: dict[int, dict[str, dict[str, str]]] = state({})

    def on_prediction_end(self, moment: Moment) -> None:
        judged, step = moment.result, moment.context.global_step
        there = self.heard.setdefault(step, {"free": {}, "teacher_forced": {}})
        there["free"].update(zip(judged.batch.ids, judged.hypotheses, strict=True))
        there["teacher_forced"].update(zip(judged.batch.ids, judged.teacher_forced, strict=True))


def write_tones(folder: Path) -> Path:
    """A recording for each text, a tone for each letter."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, text in enumerate(TEXTS):
        pieces = [_piece(character) for character in text]
        path = folder / f"{number}.wav"
        soundfile.write(path, np.concatenate(pieces), RATE)
        rows.append(Utterance(f"tone-{number}", str(path), sum(map(len, pieces)) / RATE, text))
    return write_manifest(folder / "tones.jsonl", rows)


def _piece(character: str) -> np.ndarray[Any, Any]:
    times = np.arange(int(0.12 * RATE)) / RATE
    noise = np.random.default_rng(ord(character)).normal(size=len(times))
    return 0.3 * np.sin(2 * np.pi * TONES.get(character, 0.0) * times) + 0.01 * noise


def tone_trainer(folder: Path, manifest: Path, seed: int, epochs: int = 3) -> ModelTrainer:
    """A small recogniser with CTC and attention, that is validated after every epoch."""
    seed_everything(seed)
    tokenizer = Alphabet(characters="ab ")
    dataset = AudioDataset(manifest=manifest, features=LogMel(mels=20), tokenizer=tokenizer)
    encoder = TDSEncoder(groups=[TDSGroup(channels=2, blocks=1, kernel=3, stride=2)], dropout=0.0, norm_over="frame")
    return ModelTrainer(
        model=Recogniser(
            vocabulary_size=tokenizer.size,
            features=20,
            encoder=encoder,
            attention_decoder=KeyValueDecoder(size=8),
            ctc=True,
        ),
        loss=JointLoss(),
        epochs=epochs,
        train_data_loader=AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=3)),
        val_data_loader=AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=4, shuffle=False)),
        decoder=GreedyCTCDecoder(),
        optimizer=AdamW(lr=0.02),
        metrics=[word_error_rate],
        callbacks=[TranscriptDashboard(ids=SAMPLED), TensorBoardCallback(folder=folder), Witness()],
        test_step=None,
    )


def write_transcripts(
    folder: Path, references: dict[str, str], steps: dict[int, dict[str, str]], after: int | None = None
) -> Path:
    """An event file as a run writes it, with these hypotheses at these steps, or as one that goes on after a step."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.iterdir()))
    file = EventFile(folder / f"events.out.tfevents.{1_700_000_000 + number}.sonosco")
    file.forget_from(0 if after is None else after + 1)
    for step, texts in steps.items():
        hypotheses = {"free": list(texts.values())}
        validated = ValidationTexts(
            list(references), list(references.values()), [1.5] * len(references), hypotheses
        ).sorted()
        key, utterances = utterances_record(validated, "val")
        if step == min(steps):
            file.add(make_summary(f"transcripts/val/utterances/{key}", utterances), step)
        record = hypotheses_record(validated, "val", key, step, after)
        file.add(make_summary(f"transcripts/val/heard/{step:08d}", record), step)
        after = step
    file.close()
    return folder
