"""What is checked of speech data before a run: its texts, and whether the largest batch of each length fits in memory.

Only this file of the trainer knows our datasets. It is imported when there is one, so that a trainer of anything else
does not wait for them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sonosco_like.data.augment import SpeedPerturbation, TempoPerturbation
from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.loader import AudioDataLoader
from sonosco_like.data.sampling import BucketSampler
from sonosco_like.data.tools.examination import Fault, Frames, examine_texts, group_faults, uncounted
from sonosco_like.errors import UsageError, message_of
from sonosco_like.losses import CTCLoss
from sonosco_like.process import available_memory, resident_memory
from sonosco_like.progress import Progress, no_progress
from sonosco_like.training.batches import describe_batch, loss_of, output_of, to_device
from sonosco_like.training.guard import LastGood, Undo

logger = logging.getLogger(__name__)

_SOME_TEXTS = 1000
_MEGA = 1e6
_USED_SHARE = 0.9  # of the memory; the rest is for what was not measured
_ADVISED_SHARE = 0.7  # of what would just fit: what a batch needs was estimated, and differs from run to run
_FULL = ("can't allocate memory", "bad_alloc")  # how torch words it on the CPU


def warn_of_texts(trainer: Any, dataset: Any, is_training: bool) -> None:
    """Look at some texts of a dataset, which costs milliseconds: what `sonosco check` would find in all of them."""
    if not isinstance(dataset, AudioDataset):
        return
    some = dataset.usable[:: max(1, len(dataset.usable) // _SOME_TEXTS)]
    for finding in group_faults(text_faults(trainer, dataset, some, is_training)):
        logger.warning(
            "%s\n  (of %d rows that were looked at; `sonosco check` looks at all)",
            finding.describe(dataset.utterances, most=2), len(some),
        )  # fmt: skip


def text_faults(
    trainer: Any, dataset: AudioDataset, rows: NDArray[np.int64], is_training: bool, progress: Progress = no_progress
) -> dict[int, list[Fault]]:
    """The faults of the texts of some rows, also for the CTC loss of a trainer, if it has one."""
    ctc = getattr(trainer.loss, "ctc", trainer.loss)
    if not isinstance(ctc, CTCLoss):
        return examine_texts(dataset, rows, progress=progress)
    frames = _frames_of(trainer.model, dataset, is_training)
    return examine_texts(dataset, rows, frames, progress, skips_too_long=ctc.too_long == "skip")


def _frames_of(model: Any, dataset: AudioDataset, is_training: bool) -> Frames | None:
    """How many encoded frames a model makes of seconds of a dataset's audio, at the highest speed of its augmentations.

    None if the model does not say it.
    """
    lengths = getattr(model, "output_lengths", None)
    if lengths is None:
        return None
    speeds = [1.0]
    for each in dataset.waveform_augmentations if is_training else ():
        if isinstance(each, SpeedPerturbation):
            speeds += each.factors
        elif isinstance(each, TempoPerturbation):
            speeds += each.factor
    fastest = max(speeds)

    def frames(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        counts = [dataset.features.frames(each / fastest) for each in seconds.tolist()]
        encoded: NDArray[np.int64] = lengths(torch.tensor(counts, dtype=torch.int64)).cpu().numpy()
        return encoded

    return frames


@dataclass(frozen=True)
class Trial:
    """The largest batch of a bucket: its utterances, the length of the longest, and what its training needed.

    `needed` are bytes on top of what was in use before. `is_tried` says whether they were measured; otherwise they are
    computed from the trial before, because the batch would not fit.
    """

    utterances: int
    seconds: float
    needed: float
    took: float = 0.0
    loss: float = 0.0
    is_tried: bool = True

    @property
    def padded(self) -> float:
        """Seconds of audio with padding."""
        return self.utterances * self.seconds


class MemoryMeter:
    """The memory that a device, or this process, uses at its peak."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begin = self.start()
        self.limit = self._limit()

    def start(self) -> int:
        """Forget the peak so far; returns the memory in use."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return torch.cuda.memory_allocated(self._device)
        if os.access("/proc/self/clear_refs", os.W_OK):
            Path("/proc/self/clear_refs").write_text("5")
        return resident_memory()[0] or self.peak()

    def peak(self) -> int:
        """The most memory in use since the start."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return resident_memory()[1] or 0

    def needed(self) -> int:
        """The peak, less what was in use when the meter was made."""
        return max(0, self.peak() - self._begin)

    def _limit(self) -> float | None:
        """Bytes that may be used on top of those in use now, with a reserve; None if that is not known."""
        free = torch.cuda.mem_get_info(self._device)[0] if self._device.type == "cuda" else available_memory()
        return None if free is None else _USED_SHARE * free


def try_buckets(trainer: Any) -> Iterator[Trial]:
    """Train on the largest batch of each length bucket, short to long, until one does not fit.

    The last trial is then that of the batch which needs most memory, and was not tried. Before a batch that might not
    fit a part of it is tried, so that the system does not kill the process.
    """
    loader = trainer.train_data_loader
    meter = MemoryMeter(trainer.parts.device)
    batches = largest_batches(loader)
    tried: list[Trial] = []

    def attempt(indices: Any) -> Trial | None:
        batch = loader.dataset.batch(indices, loader.used_seed, loader.epoch)
        trial = None if batch is None else try_batch(trainer, batch, meter, _longest(loader, indices), not tried)
        tried.extend([trial] if trial is not None and trial.is_tried else [])
        return trial

    attempt(batches[0][-(1 + len(batches[0]) // 8) :])  # what the first batch of a process needs once is in there
    for place, indices in enumerate(batches):
        if not _is_expected_to_fit(tried, loader, indices, meter):
            part = int(0.8 * len(indices) * (meter.limit or 0) / expected_need(tried, *_size(loader, indices)))
            attempt(indices[-max(1, part) :])
        trial = attempt(indices) if _is_expected_to_fit(tried, loader, indices, meter) else None
        if trial is not None and trial.is_tried:
            yield trial
        elif trial is not None or not _is_expected_to_fit(tried, loader, indices, meter):
            yield _trial_of_largest_need(tried, [_size(loader, each) for each in batches[place:]], meter)
            return


def _is_expected_to_fit(tried: Sequence[Trial], loader: AudioDataLoader, indices: Any, meter: MemoryMeter) -> bool:
    return meter.limit is None or expected_need(tried, *_size(loader, indices)) <= meter.limit


def _trial_of_largest_need(tried: Sequence[Trial], sizes: Sequence[tuple[int, float]], meter: MemoryMeter) -> Trial:
    """The trial, not carried out, of the batch that needs most memory; at least all of it, as it does not fit."""
    needs = [max(expected_need(tried, *size), (meter.limit or 0) / _USED_SHARE) for size in sizes]
    most = max(range(len(sizes)), key=needs.__getitem__)
    return Trial(*sizes[most], needs[most], is_tried=False)


def expected_need(tried: Sequence[Trial], utterances: int, seconds: float) -> float:
    """The bytes of a batch by those of shorter ones: they grow with its padded seconds, with attention faster."""
    if not tried:
        return 0.0
    last, power = tried[-1], 1.0
    if (
        len(tried) > 1
        and seconds > last.seconds > tried[-2].seconds
        and last.padded > tried[-2].padded
        and last.needed > tried[-2].needed > 0
    ):
        power = log(last.needed / tried[-2].needed) / log(last.padded / tried[-2].padded)
    needed: float = last.needed * (utterances * seconds / last.padded) ** min(2.0, max(1.0, power))
    return needed


def _size(loader: AudioDataLoader, indices: Any) -> tuple[int, float]:
    return len(indices), _longest(loader, indices)


def _longest(loader: AudioDataLoader, indices: Any) -> float:
    return float(loader.dataset.utterances.durations[indices].max())


def try_batch(trainer: Any, batch: Any, meter: MemoryMeter, seconds: float = 0.0, steps: bool = True) -> Trial:
    """Train on one batch, with a step of the optimizer, or without one; measures, and forgets the gradients.

    Raises UsageError if the batch fails for another reason than memory.
    """
    meter.start()
    begin, count = time.perf_counter(), len(batch) if hasattr(batch, "__len__") else 0
    try:
        moved = to_device(batch, trainer.parts.device)
        with trainer.parts.autocast():
            loss = trainer.compute_loss(trainer.forward(moved), moved)
        trainer.backward(loss)
        if steps:
            trainer.optimizer_step()
        value = loss.item()
    except (RuntimeError, IndexError, ValueError, TypeError, ArithmeticError) as error:
        if not _is_out_of_memory(error):
            raise UsageError(f"A batch with {describe_batch(batch)} failed: {message_of(error)}") from error
        return Trial(count, seconds, meter.needed(), is_tried=False)
    finally:
        trainer.parts.optimization.forget_gradients()
    return Trial(count, seconds, meter.needed(), time.perf_counter() - begin, value)


def largest_batches(loader: AudioDataLoader) -> list[Any]:
    """The largest batch of each bucket as indices of the manifest, short to long."""
    loader.dataset.prepare()
    dataset, mixture = loader.dataset, loader.dataset.mixture
    rows = np.arange(len(dataset.usable)) if mixture is None else mixture.rows_at_most()
    return [dataset.usable[rows[batch]] for batch in loader.sampler.largest_batches(dataset.durations[rows])]


def remedy(trial: Trial, limit: float, sampler: BucketSampler) -> str:
    """The settings with which the batches of a bucket fit into a number of bytes."""
    share = _ADVISED_SHARE * limit / trial.needed
    utterances = int(trial.utterances * share)
    if utterances < 1:
        return (
            f"Not even one utterance of {trial.seconds:.1f} s fits: set `max_duration: {trial.seconds * share:.1f}` of "
            "the dataset, use `gradient_checkpointing`, or make the model smaller."
        )
    if sampler.batch_seconds is None or sampler.batch_size == trial.utterances:
        return f"Set `sampler.batch_size` to {utterances}, or use `gradient_checkpointing`."
    seconds = max(trial.seconds, sampler.batch_seconds * share)
    return f"Set `sampler.batch_seconds` to {seconds:.0f}, or use `gradient_checkpointing`."


def try_largest_first(trainer: Any) -> None:
    """At the start of a run: train on the largest batch, and take everything back.

    What does not fit fails now, and not at the end of the first epoch. Nothing of the run changes: generators, buffers
    and states are as before, and no callback is called. A batch that fails for another reason fails again in its place.
    """
    loader, model = trainer.train_data_loader, trainer.parts.model
    if not isinstance(loader, AudioDataLoader):
        return
    batches = largest_batches(loader)
    indices = max(batches, key=lambda each: len(each) * _longest(loader, each))
    dataset = copy(loader.dataset)  # whose counts of characters are those of the run
    dataset.cleaner, dataset.tokenizer = uncounted(dataset.cleaner), uncounted(dataset.tokenizer)
    before, undo = LastGood(model, loader), Undo(trainer)
    undo.begin()
    try:
        batch = to_device(dataset.batch(indices, loader.used_seed, trainer.epoch), trainer.parts.device)
        with trainer.parts.autocast():
            loss = loss_of(trainer.loss, output_of(model, model, batch), batch, model)
        loss.backward()
    except Exception as error:
        if _is_out_of_memory(error):
            size = f"{len(indices)} utterances of up to {_longest(loader, indices):.1f} s"
            raise UsageError(
                f"Out of memory on the largest batch, {size}, which was tried before the training. `sonosco check` "
                "says which batches fit."
            ) from error
        logger.debug("The largest batch could not be tried: %s", error)
    finally:
        model.zero_grad(set_to_none=True)
        undo.restore()
        before.restore()


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(each in str(error) for each in _FULL)
