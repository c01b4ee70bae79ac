"""Runs that are killed at a chosen place: tiny recognisers of each kind, a corpus of noise, and the killer."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import soundfile

from sonosco_like import serializable
from sonosco_like.events import AbstractCallback

KILL = "KILL_AT"  # `batch_end 5`, `epoch_end 1`, `save 3 4`: the event at that step or epoch, or the 3rd file operation
#                   of the first save at step 4 or later; `copy 3 4`: the same of a remote copy
_OPERATIONS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "os.link", "os.symlink")
_PLACES = {"save": ("checkpoints", "latest", "best", "final"), "copy": ("/remote/",)}

MODELS = {
    "las": """
    class: LAS
    ctc: true
    encoder: {class: Listener, hidden_size: 6, layers: 1, dropout: 0.2}
    attention_decoder:
      {class: Speller, hidden_size: 6, layers: 1, embedding_size: 4, dropout: 0.1, attention: {size: 4}}""",
    "tds": """
    class: TDS
    ctc: true
    attention_decoder: null
    encoder: {dropout: 0.2, groups: [{channels: 3, blocks: 1, kernel: 3, stride: 2}]}""",
    "deepspeech2": """
    class: DeepSpeech2
    encoder:
      hidden_size: 6
      layers: 1
      dropout: 0.2
      convolutions: [{channels: 3, time_kernel: 3, frequency_kernel: 3, time_stride: 2}]""",
    "conformer": """
    class: Conformer
    ctc: true
    attention_decoder: null
    encoder: {size: 8, layers: 1, heads: 2, kernel: 3, channels: 4, dropout: 0.2}""",
}

CONFIG = """
class: Experiment
name: matrix
seed: 11
trainer:
  class: ModelTrainer
  epochs: 3
  test_step: 3
  clip_grads: 1.0
  accumulate_gradients: {accumulate}
  precision: {precision}
  averaging: {averaging}
  model:
    vocabulary_size: 7
    features: 6{model}
  loss: {loss}
  decoder: {decoder}
  metrics: [word_error_rate]
  optimizer: {{class: AdamW, lr: 0.01}}
  scheduler: {{class: WarmupHoldDecay, warmup: 3, hold: 5, total: 30}}
  train_data_loader:
    class: AudioDataLoader
    num_workers: {workers}
    sampler: {{batch_size: 3}}
    dataset:
      manifest: {folder}/train.jsonl
      features: &features {{class: LogMel, mels: 6}}
      tokenizer: &alphabet {{class: Alphabet, characters: "ab "}}
      waveform_augmentations: [{{class: SpeedPerturbation}}]
      feature_augmentations: [{{class: SpecAugment, frequency_width: 2, time_width: 4}}]
  val_data_loader:
    class: AudioDataLoader
    sampler: {{batch_size: 3, shuffle: false}}
    dataset: {{manifest: {folder}/val.jsonl, features: *features, tokenizer: *alphabet}}
  callbacks:
  - {{class: LogMeasures, every: 1ba}}
  - {{class: MetricsFile}}
  - {{class: TensorBoardCallback}}
  - {{class: TranscriptDashboard}}
  - {{class: HistoryRecorder}}
  - {{class: EarlyStopping, monitor: val_loss, patience: 90}}
  - {{class: ReduceLROnPlateau, monitor: val_loss, patience: 2}}
  - {{class: matrix_parts.Killer}}
  - {{class: ModelCheckpoint, every: 2ba, keep_last: 2}}
"""


def config_text(folder: Path, model: str, accumulate: int = 1, precision: str = "float32", workers: int = 0) -> str:
    """The config of one cell of the matrix; 5 batches an epoch."""
    is_las = model == "las"
    return CONFIG.format(
        folder=folder,
        model=MODELS[model],
        accumulate=accumulate,
        precision=precision,
        averaging="{decay: 0.9}" if model in ("tds", "conformer") else "null",
        workers=workers,
        loss="{class: JointLoss, ctc_weight: 0.3}" if is_las else "{class: CTCLoss, too_long: skip}",
        decoder="{class: GreedyAttentionDecoder}" if is_las else "{class: GreedyCTCDecoder}",
    )


def make_corpus(folder: Path) -> None:
    """Noise with texts: nobody listens to it."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(5)
    for name, count in (("train", 14), ("val", 4)):
        rows = []
        for number in range(count):
            seconds = float(random.uniform(0.3, 0.6))
            audio = folder / f"{name}-{number}.wav"
            soundfile.write(audio, random.normal(0, 0.1, int(16000 * seconds)), 16000)
            text = "".join(random.choice(list("ab"), 2)) + " b"
            duration = soundfile.info(audio).duration
            rows.append(f'{{"audio_filepath": "{audio.name}", "duration": {duration}, "text": "{text}"}}\n')
        (folder / f"{name}.jsonl").write_text("".join(rows))


@serializable
class Killer(AbstractCallback):
    """Kills its process, for real, where the environment says; a save is killed before one of its file operations."""

    order: int = 400

    def __post_init__(self) -> None:
        self._event, *numbers = os.environ.get(KILL, "never 0").split()
        self._numbers = [int(number) for number in numbers]
        self._armed = False

    def on_batch_end(self, moment) -> None:
        if self._event == "batch_end" and moment.context.global_step == self._numbers[0]:
            _die()

    def on_validation_end(self, moment) -> None:
        if self._event == "validation_end" and moment.context.global_step >= self._numbers[0]:
            _die()

    def on_epoch_end(self, moment) -> None:
        if self._event == "epoch_end" and moment.context.epoch == self._numbers[0]:
            _die()

    def on_checkpoint_start(self, moment) -> None:
        if self._event in _PLACES and moment.context.global_step >= self._numbers[1] and not self._armed:
            self._armed = True
            sys.addaudithook(_Countdown(self._numbers[0], _PLACES[self._event]))


@serializable
class EndKiller(AbstractCallback):
    """Sends its process a signal when the training has ended, if the environment says so by the name of this one."""

    name: str = ""

    def on_training_end(self, moment) -> None:
        name, *numbers = os.environ.get(KILL, "never 0").split()
        if name == self.name:
            os.kill(os.getpid(), int(numbers[0]))


class _Countdown:
    """Hears every file operation of the interpreter, and kills before the n-th of those at some places."""

    def __init__(self, operations: int, places: tuple[str, ...]) -> None:
        self._left, self._places = operations, places

    def __call__(self, event: str, args: tuple) -> None:
        if event in _OPERATIONS and any(place in str(args[0]) for place in self._places):
            self._left -= 1
            if self._left == 0:
                _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
