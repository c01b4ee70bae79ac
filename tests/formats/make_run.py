"""Makes a kept run folder: `python tests/formats/make_run.py 1|2 FOLDER`.

Each was made once, by the code of its time, and is kept so that the code of today still opens and resumes it:
`run-1` when the format was new, `run-2` by the last code before `ModelTrainer` had a second version, with a model that
has attention and with nearly every callback. When the format changes, add a folder; never make an old one again. One
exception: the expected end of `run-1` was made a second time, when the last batches of an epoch began to count as what
they are and not as a share of a full group.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import soundfile

from sonosco_like.training import read_experiment

STEPS, KEPT = 9, 4
CONFIGS = {}
CONFIGS["1"] = """
class: Experiment
name: kept
seed: 5
trainer:
  class: ModelTrainer
  epochs: 3
  test_step: 2
  accumulate_gradients: 2
  model:
    class: DeepSpeech2
    vocabulary_size: 7
    features: 6
    encoder:
      hidden_size: 4
      layers: 1
      dropout: 0.2
      convolutions: [{channels: 2, time_kernel: 3, frequency_kernel: 3, time_stride: 2}]
  loss: {class: CTCLoss, too_long: skip}
  decoder: {class: GreedyCTCDecoder}
  metrics: [word_error_rate]
  optimizer: {class: AdamW, lr: 0.01}
  scheduler: {class: WarmupHoldDecay, warmup: 2, hold: 3, total: 20}
  train_data_loader:
    class: AudioDataLoader
    sampler: {batch_size: 2}
    dataset:
      manifest: data/train.jsonl
      features: &features {class: LogMel, mels: 6}
      tokenizer: &alphabet {class: Alphabet, characters: "ab "}
      feature_augmentations: [{class: SpecAugment, frequency_width: 2, time_width: 4}]
  val_data_loader:
    class: AudioDataLoader
    sampler: {batch_size: 2, shuffle: false}
    dataset: {manifest: data/val.jsonl, features: *features, tokenizer: *alphabet}
  callbacks:
  - {class: LogMeasures, every: 1ba}
  - {class: MetricsFile}
  - {class: EarlyStopping, monitor: val_loss, patience: 50}
  - {class: ModelCheckpoint, every: 2ba, keep_last: 9}
"""
CONFIGS["2"] = """
class: Experiment
name: kept
seed: 5
trainer:
  class: ModelTrainer
  epochs: 3
  test_step: 2
  clip_grads: 5.0
  averaging: {decay: 0.9}
  model:
    class: Recogniser
    vocabulary_size: 7
    features: 6
    ctc: true
    encoder:
      class: DeepSpeech2Encoder
      hidden_size: 4
      layers: 1
      dropout: 0.2
      convolutions: [{channels: 2, time_kernel: 3, frequency_kernel: 3, time_stride: 2}]
    decoder:
      class: Speller
      hidden_size: 4
      layers: 1
      embedding_size: 3
      dropout: 0.2
      scheduled_sampling: 0.1
      attention: {class: Attention, kind: location, size: 3, pace: 4.0}
  loss: {class: JointLoss, ctc_weight: 0.4, attention: {label_smoothing: 0.1}}
  decoder: {class: AttentionBeamDecoder, beam_size: 2, ctc_weight: 0.3}
  metrics: [word_error_rate, character_error_rate]
  optimizer: {class: AdamW, lr: 0.01}
  scheduler: {class: WarmupHoldDecay, warmup: 2, hold: 3, total: 20}
  train_data_loader:
    class: AudioDataLoader
    sampler: {batch_size: 2}
    dataset:
      manifest: data/train.jsonl
      features: &features {class: LogMel, mels: 6}
      tokenizer: &alphabet {class: Alphabet, characters: "ab "}
      waveform_augmentations: [{class: SpeedPerturbation, factors: [0.9, 1.0, 1.1]}]
      feature_augmentations: [{class: SpecAugment, frequency_width: 2, time_width: 4}]
  val_data_loader:
    class: AudioDataLoader
    sampler: {batch_size: 2, shuffle: false}
    dataset: {manifest: data/val.jsonl, features: *features, tokenizer: *alphabet}
  callbacks:
  - {class: LogMeasures, every: 1ba}
  - {class: MetricsFile}
  - {class: CsvFile}
  - {class: EarlyStopping, monitor: val_loss, patience: 50}
  - {class: ThresholdStopper, monitor: val_loss, threshold: 0.0}
  - {class: TerminateOnNaN}
  - {class: AllPredictionsSame, patience: 50}
  - {class: ReduceLROnPlateau, monitor: val_loss, patience: 1}
  - {class: HistoryRecorder}
  - {class: HistoryPlots}
  - {class: RunReport}
  - {class: EvaluationReport, every: 1ep}
  - {class: GradMonitor, every: 2}
  - {class: LayerwiseGradientNorm}
  - {class: LRMonitor}
  - {class: SpeedMonitor}
  - {class: EpochTimeEstimate}
  - {class: FreezeParameters, patterns: ["encoder.*"], until: 3ba}
  - {class: TensorBoardCallback}
  - {class: TbTextComparisonCallback}
  - {class: TbTeacherForcingTextComparisonCallback}
  - {class: LasTextComparisonCallback}
  - {class: TranscriptDashboard}
  - {class: ModelCheckpoint, every: 2ba, keep_last: 9}
"""


def main(number: str, folder: Path) -> None:
    """Train a tiny run to its end, and leave it as if it had been killed in the middle; the end is kept beside it."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    _make_data(Path("data"))
    Path("kept.yaml").write_text(CONFIGS[number])
    experiment = read_experiment(Path("kept.yaml"))
    experiment.start("run")
    assert experiment.trainer.global_step == STEPS
    Path("kept.yaml").unlink()
    run = Path("run")
    (run / "final").rename("expected")
    (run / "metrics.jsonl").rename("expected/metrics.jsonl")
    unneeded = ("environment.yaml", "lock", "logs", "code", "status.yaml", "plots", "report.html")
    for name in unneeded:  # they describe the machine or are pictures
        _remove(run / name)
    for checkpoint in (run / "checkpoints").iterdir():
        if checkpoint.name != f"step-{KEPT:08d}":
            _remove(checkpoint)
    (run / "latest").write_text(f"checkpoints/step-{KEPT:08d}\n")
    rows = Path("expected/metrics.jsonl").read_text().splitlines(keepends=True)
    kept = KEPT + 1 if number == "1" else len(rows)  # a killed run may have written rows after its last checkpoint
    (run / "metrics.jsonl").write_text("".join(rows[:kept]))


def _make_data(folder: Path) -> None:
    folder.mkdir()
    for name, count in (("train", 6), ("val", 2)):
        rows = []
        for number in range(count):
            moments = np.arange(int(16000 * (0.2 + 0.02 * number))) / 16000
            audio = folder / f"{name}-{number}.flac"
            soundfile.write(audio, 0.3 * np.sin(2 * np.pi * 200 * (number + 1) * moments), 16000)
            duration = soundfile.info(audio).duration
            row = f'{{"audio_filepath": "{audio.name}", "duration": {duration}, "text": "{"ab"[number % 2]} b"}}\n'
            rows.append(row)
        (folder / f"{name}.jsonl").write_text("".join(rows))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).absolute())
