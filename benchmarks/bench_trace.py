"""How many files of ours a reader meets on the way of a run: config to objects, one batch, one checkpoint, and all.

`python benchmarks/bench_trace.py [--files]`. Traced is `sonosco train` with LAS on a minute of synthetic digits,
without loader workers, with a checkpoint every two batches; the batch is the second one. Functions of ours only: no
lambdas, no comprehensions, nothing that runs while a module is imported. With PYTHONPATH another checkout can be
traced.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # last: PYTHONPATH may name another checkout to trace

import sonosco_like
from benchmarks.results import Row, report
from sonosco_like import AbstractCallback, Experiment, Stop, serializable
from sonosco_like.cli import run

PACKAGE = f"{Path(sonosco_like.__file__).parent}/"
CONFIG, START, BATCH, CHECKPOINT = PHASES = (
    "config text to objects",
    "start to the first fetch",
    "one batch, fetch to batch_end",
    "one checkpoint, asked to on disk",
)
ALL = "config to checkpoint"
BEFORE = {CONFIG: 77, START: 89, BATCH: 48, CHECKPOINT: 51, ALL: 133}  # before the rooms were redrawn
SECONDS = 120.0  # after which a checkpoint that is not on disk is taken for lost

# Written out here, so that what is traced is the same in years to come.
TEXT = """
class: Experiment
name: traced
seed: 1234
trainer:
  class: ModelTrainer
  epochs: 1
  test_step: null
  clip_grads: 5.0
  model:
    class: Recogniser
    vocabulary_size: 32
    features: 40
    ctc: true
    encoder:
      class: DeepSpeech2Encoder
      cell: lstm
      hidden_size: 32
      layers: 2
      dropout: 0.2
      convolutions:
      - {{channels: 4, time_kernel: 7, frequency_kernel: 11, time_stride: 2}}
      - {{channels: 4, time_kernel: 5, frequency_kernel: 5, time_stride: 2}}
    decoder:
      class: Speller
      hidden_size: 32
      layers: 1
      embedding_size: 16
      dropout: 0.2
      attention: {{class: Attention, kind: location, size: 16, pace: 4.0}}
  loss: {{class: JointLoss, ctc_weight: 0.4, attention: {{label_smoothing: 0.1}}}}
  decoder: {{class: AttentionBeamDecoder, beam_size: 4, ctc_weight: 0.3}}
  metrics: [word_error_rate, character_error_rate]
  optimizer: {{class: AdamW, lr: 0.002}}
  scheduler: {{class: WarmupHoldDecay, warmup: 100, hold: 350, total: 720}}
  train_data_loader:
    class: AudioDataLoader
    num_workers: 0
    sampler: {{batch_size: 4, sorted_first_epoch: true}}
    dataset:
      manifest: {corpus}/train.jsonl
      features: &features {{class: LogMel, mels: 40}}
      tokenizer: &alphabet {{class: Alphabet}}
      waveform_augmentations:
      - {{class: SpeedPerturbation, factors: [0.8, 0.9, 1.0, 1.1, 1.2]}}
      feature_augmentations:
      - {{class: SpecAugment, frequency_width: 12, time_width: 20, time_share: 0.1}}
  val_data_loader:
    class: AudioDataLoader
    sampler: &evaluation {{batch_size: 16, shuffle: false}}
    dataset: {{manifest: {corpus}/val.jsonl, features: *features, tokenizer: *alphabet}}
  callbacks:
  - {{class: ProgressBar}}
  - {{class: LogMeasures}}
  - {{class: MetricsFile}}
  - {{class: TensorBoardCallback}}
  - {{class: TranscriptDashboard}}
  - {{class: ModelCheckpoint, every: 2ba, keep_last: 2}}
  - {{class: bench_trace.FirstMark}}
  - {{class: bench_trace.LastMark}}
"""


@dataclass
class Phase:
    """What was called during one part of the run."""

    files: set[str] = field(default_factory=set)
    functions: set[tuple[str, str, int]] = field(default_factory=set)
    edges: set[tuple[str, str]] = field(default_factory=set)
    calls: int = 0
    calls_between_files: int = 0

    def add(self, frame: FrameType) -> None:
        """Count one call."""
        file, code = _file(frame), frame.f_code
        self.files.add(file)
        self.functions.add((file, code.co_name, code.co_firstlineno))
        self.calls += 1
        caller = next((_file(above) for above in _above(frame) if _is_ours(above)), file)
        if caller != file:
            self.calls_between_files += 1
            self.edges.add((caller, file))


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(PACKAGE)


def _is_ours(frame: FrameType) -> bool:
    code = frame.f_code
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)  # the body of a class is none
    return is_function and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")


def _above(frame: FrameType) -> Iterator[FrameType]:
    above = frame.f_back
    while above is not None:
        yield above
        above = above.f_back


def _is_import(frame: FrameType) -> bool:
    return any(above.f_code.co_filename.startswith("<frozen importlib") for above in _above(frame))


class Trace:
    """Counts calls of all threads, in the phase that was begun last."""

    def __init__(self) -> None:
        self.phases: dict[str, Phase] = defaultdict(Phase)
        self.now: str | None = None

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """What `sys.setprofile` calls."""
        if event == "call" and self.now is not None and _is_ours(frame) and not _is_import(frame):
            self.phases[self.now].add(frame)


TRACE = Trace()


@serializable
class FirstMark(AbstractCallback):
    """Hears first: the second batch begins when it is fetched, and what is traced ends with the third."""

    order: int = -10_000

    def on_fetch_start(self, moment: Any) -> None:
        if moment.context.global_step == 0:
            TRACE.now = None
        elif moment.context.global_step == 1:
            TRACE.now = BATCH
        elif moment.context.global_step == 2:
            await_checkpoint(Path(moment.context.experiment.folder))
            TRACE.now = None
            raise Stop("the trace is complete")


@serializable
class LastMark(AbstractCallback):
    """Hears last: after the second batch comes its checkpoint."""

    order: int = 10_000

    def on_batch_end(self, moment: Any) -> None:
        if moment.context.global_step == 2:
            TRACE.now = CHECKPOINT


def await_checkpoint(folder: Path) -> None:
    """Wait until the thread that saves has pointed to the second checkpoint."""
    end = time.monotonic() + SECONDS
    while not (folder / "latest").is_file() or "step-00000002" not in (folder / "latest").read_text():
        if time.monotonic() > end:
            raise TimeoutError(f"No checkpoint of step 2 in {folder} after {SECONDS:g} s.")
        time.sleep(0.05)
    time.sleep(0.5)  # what the thread does after it


def trace(folder: Path) -> dict[str, Phase]:
    """Train in a folder; the phases in their order."""
    run(["data", "synth", str(folder / "corpus"), "--minutes", "1", "--workers", "1"])
    (folder / "config.yaml").write_text(TEXT.format(corpus=folder / "corpus"), encoding="utf-8")
    started = Experiment.start

    def start(self: Experiment, *arguments: Any, **options: Any) -> int:
        TRACE.now = START
        return started(self, *arguments, **options)

    Experiment.start = start  # type: ignore[method-assign]
    threading.setprofile(TRACE)
    sys.setprofile(TRACE)
    TRACE.now = CONFIG
    try:
        run(["train", "--config", str(folder / "config.yaml"), "--run-dir", str(folder / "run")])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        Experiment.start = started  # type: ignore[method-assign]
    missing = [name for name in PHASES if name not in TRACE.phases]
    if missing:
        raise RuntimeError(f"The run never came to: {', '.join(missing)}.")
    return {name: TRACE.phases[name] for name in PHASES}


def _row(what: str, files: set[str]) -> Row:
    return Row(what, float(len(files)), f"{BEFORE[what]} before the redraw", unit="files")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="list the files of each phase, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        phases = trace(Path(name))
    together = set().union(*(phase.files for phase in phases.values()))
    print(f"{'':34}{'files':>7}{'functions':>11}{'calls':>9}{'to another file':>17}{'edges':>7}")
    for what, phase in phases.items():
        counts = f"{len(phase.functions):11,}{phase.calls:9,}{phase.calls_between_files:17,}{len(phase.edges):7,}"
        print(f"{what:34}{len(phase.files):7,}{counts}")
        report(_row(what, phase.files))
    print(f"{ALL:34}{len(together):7,}")
    report(_row(ALL, together))
    if options.files:
        for what, phase in phases.items():
            print(f"\n{what}:\n  " + "\n  ".join(sorted(phase.files)))


if __name__ == "__main__":
    main()
