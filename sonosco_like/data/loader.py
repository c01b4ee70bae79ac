"""The loader: batches in the order of the plan, from any position, by any number of workers."""

from __future__ import annotations

import logging
import warnings
import zlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from sonosco_like.data.dataset import AudioDataset, LoadedBatch
from sonosco_like.data.mixing import plan_of_drawn
from sonosco_like.data.sampling import BatchPlan, BucketSampler, plan_remaining
from sonosco_like.data.workers import (
    close_at_exit,
    init_worker,
    install_sigchld_handler,
    one_thread,
    shut_down,
    start_method,
    worker_errors_as_data_errors,
)
from sonosco_like.errors import DataError, SonoscoError, UsageError
from sonosco_like.process import block_signals
from sonosco_like.records import Batch
from sonosco_like.serialization import serializable

logger = logging.getLogger(__name__)

_MOST_WORKERS = 1024


@serializable
class AudioDataLoader:
    """Batches of a dataset, epoch by epoch.

    `iter(loader)` begins at `position`, which counts the batches yielded in this epoch, never those that workers have
    prepared; a batch without usable utterances counts too, although it is not yielded. At the end of a pass the
    position is 0 again, and the epoch stays until `set_epoch` changes it.

    An epoch can continue with another number of processes (`load_shares`), on the utterances that no process has seen.
    Order and augmentation are drawn from `seed`; null is that of the experiment, which a trainer gives (`take_seed`).
    """

    dataset: AudioDataset
    sampler: BucketSampler
    seed: int | None = None
    num_workers: int = 0
    prefetch: int = 2
    pin_memory: bool = False

    def __post_init__(self) -> None:
        if self.num_workers < 0 or self.prefetch < 1 or (self.seed or 0) < 0:
            raise UsageError(
                f"`num_workers` and `seed` must not be negative and `prefetch` must be at least 1, "
                f"got {self.num_workers}, {self.seed} and {self.prefetch}."
            )
        if self.num_workers > _MOST_WORKERS:
            raise UsageError(
                f"`num_workers` must be at most {_MOST_WORKERS}, each is a process; got {self.num_workers}."
            )
        self.used_seed = self.seed or 0
        self.epoch = 0
        self.position = 0
        self.rank, self.world_size = 0, 1
        self._skipped_so_far: dict[str, str] = {}
        # One list for each earlier number of ranks in this epoch: the batches that each rank has done.
        self._shares: list[list[int]] = []
        self._plan: tuple[tuple[Any, ...], BatchPlan, NDArray[np.float64]] | None = None
        self._saved_data: str | None = None

    def __len__(self) -> int:
        """The number of batches of this rank in the epoch, with those done before the number of ranks changed."""
        return self._begin + len(self.plan)

    def first_epoch_batches(self) -> int:
        """The number of batches of this rank in epoch 0, wherever the loader is: others may have a few more or less."""
        if self.epoch == 0 and not self._shares:
            return len(self.plan)
        return len(self._plan_after([], self.rank, self.world_size, epoch=0))

    @property
    def plan(self) -> BatchPlan:
        """The remaining batches of the current epoch for this rank, as indices into `dataset.usable`."""
        wanted = (self.epoch, self.rank, self.world_size, *map(tuple, self._shares))
        durations = self.dataset.durations
        if self._plan is None or self._plan[0] != wanted or self._plan[2] is not durations:
            plan = self._plan_after(self._shares, self.rank, self.world_size, self.epoch)
            if len(plan) == 0 and not self._shares:
                raise DataError(
                    f"{self.dataset.name} has {len(plan.left_out)} usable utterances, too few for "
                    f"{self.world_size} processes. Use fewer processes."
                )
            self._plan = wanted, plan, durations
        return self._plan[1]

    def _plan_after(self, shares: list[list[int]], rank: int, world_size: int, epoch: int) -> BatchPlan:
        mixture, durations = self.dataset.mixture, self.dataset.durations
        drawn = None if mixture is None else mixture.draw(self.used_seed, epoch)
        given = durations if drawn is None else durations[drawn.rows], self.used_seed, epoch, rank, world_size
        plan = plan_remaining(self.sampler, *given, shares) if shares else self.sampler.plan(*given)
        return plan if drawn is None else plan_of_drawn(plan, drawn, durations)

    @property
    def _begin(self) -> int:
        """The position at which the plan begins."""
        return sum(map(max, self._shares))

    @property
    def skipped(self) -> dict[str, str]:
        """Utterances that could not be used so far, id to reason; those out of the length limits from the beginning."""
        return {**self.dataset.out_of_limits, **self._skipped_so_far}

    def distribute(self, rank: int, world_size: int) -> None:
        """Set which part of each epoch belongs to this process."""
        if not 0 <= rank < world_size:
            raise UsageError(f"`rank` must be one of 0 to world_size - 1, got {rank} of {world_size}.")
        self.rank, self.world_size = rank, world_size

    def take_seed(self, seed: int) -> None:
        """Draw from this seed, unless the loader has one of its own."""
        if self.seed is None and seed != self.used_seed:
            self.used_seed, self._plan = seed, None

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; within the current epoch the position stays."""
        if epoch != self.epoch:
            self.epoch, self.position, self._shares = epoch, 0, []

    def seek(self, position: int) -> None:
        """Go to a batch of the current epoch; this costs the same for every position."""
        if position < 0:
            raise UsageError(f"A position counts batches and cannot be {position}.")
        if position == 0:
            self._shares = []
        if position < self._begin:
            raise UsageError(f"The first {self._begin} batches of this epoch are done; got {position}.")
        self.position = position

    def report(self) -> str:
        """A sentence about hours, batches, padding and what is left out."""
        count = len(self.dataset.out_of_limits)
        left_out = f"; {count} left out for their length" if count else ""
        return f"{self.dataset.name}: {self.plan.report()}{left_out}"

    def state_dict(self) -> dict[str, Any]:
        """The position, and the utterances skipped so far."""
        data = self._data_mark(self.plan) if self._plan else self._saved_data
        place = {"epoch": self.epoch, "position": self.position, "data": data, "skipped": dict(self._skipped_so_far)}
        return {**place, "shares": [list(each) for each in self._shares]} if self._shares else place

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the position of a `state_dict`; utterances known to be unusable stay known."""
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self._saved_data = state.get("data")
        self._shares = [list(map(int, each)) for each in state.get("shares", [])]
        self._skipped_so_far.update(state.get("skipped", {}))

    def load_shares(self, states: Sequence[dict[str, Any]]) -> None:
        """Continue an epoch from the `state_dict` of each process, on the utterances that none of them has seen."""
        for state in reversed(states):
            self.load_state_dict(state)  # leaves the position of the first, and the skipped utterances of all
        begin = self._begin
        done = [max(int(state["position"]) - begin, 0) for state in states]
        if any(done):
            self.dataset.prepare()
            self._warn_of_changed_data(self._plan_after(self._shares, 0, len(states), self.epoch))
            self._shares.append(done)
        self.position, self._saved_data = self._begin, None

    def __iter__(self) -> Iterator[Batch]:
        self.dataset.prepare()
        self._warn_of_changed_data(self.plan)
        positions = range(self.position - self._begin, len(self.plan))
        batches = self._yield_batches(positions, self._results(positions))
        if self.num_workers:
            install_sigchld_handler()
            close_at_exit(batches)
        return batches

    def _yield_batches(
        self, positions: range, results: Iterator[LoadedBatch | SonoscoError]
    ) -> Generator[Batch, None, None]:
        begin = self._begin
        try:
            for position in positions:
                with worker_errors_as_data_errors():
                    loaded = next(results)
                if isinstance(loaded, SonoscoError):
                    raise loaded
                self.position = begin + position + 1
                self._record(loaded)
                if loaded.batch is not None:
                    yield loaded.batch
            self.position, self._shares = 0, []
        finally:
            shut_down(results)

    def _results(self, positions: range) -> Iterator[LoadedBatch | SonoscoError]:
        """The batches at these positions, in order; workers make them, or this process on demand."""
        options: dict[str, Any] = {}
        if self.num_workers:
            options = {
                "num_workers": self.num_workers,
                "prefetch_factor": self.prefetch,
                "multiprocessing_context": start_method(),
                "worker_init_fn": init_worker,
            }
        with warnings.catch_warnings():  # more workers than processors is for the user to decide: they wait for disks
            warnings.filterwarnings("ignore", "This DataLoader will create")
            loader: DataLoader[LoadedBatch | SonoscoError] = DataLoader(
                _BatchTask(self.dataset, self.plan, self.used_seed, self.epoch),
                batch_size=None,
                sampler=positions,
                collate_fn=_identity,
                pin_memory=self.pin_memory and torch.cuda.is_available(),
                generator=torch.Generator(),  # otherwise torch would draw from the global generator
                **options,
            )
            with block_signals():
                return iter(loader)

    def _record(self, loaded: LoadedBatch) -> None:
        new = {name: reason for name, reason in loaded.skipped.items() if name not in self._skipped_so_far}
        for reason in new.values():
            logger.warning("Skipped: %s", reason)
        self._skipped_so_far.update(new)
        if self.num_workers:  # the workers counted in their copies
            if self.dataset.cleaner:
                self.dataset.cleaner.dropped_counts.update(loaded.dropped_counts)
            self.dataset.tokenizer.missing_counts.update(loaded.missing_counts)

    def _warn_of_changed_data(self, plan: BatchPlan) -> None:
        mark = self._data_mark(plan)
        if self.position and self._saved_data not in (None, mark):
            logger.warning(
                "%s, or how it is divided into batches, changed since this position was saved (then %s, now %s): "
                "the rest of this epoch differs from what it would have been.",
                self.dataset.name, self._saved_data, mark,
            )  # fmt: skip

    def _data_mark(self, plan: BatchPlan) -> str:
        mixture, durations = self.dataset.mixture, self.dataset.durations
        if mixture is not None:
            durations = durations[mixture.draw(self.used_seed, self.epoch).rows]
        durations = np.ascontiguousarray(durations)
        return f"{len(durations)} utterances in {len(plan)} batches, {zlib.crc32(durations.data):08x}"


class _BatchTask(Dataset[LoadedBatch | SonoscoError]):
    """Runs in a worker: batch number in, batch out. Data errors are returned, not raised there."""

    def __init__(self, dataset: AudioDataset, plan: BatchPlan, seed: int, epoch: int) -> None:
        self._dataset, self._plan, self._usable = dataset, plan, dataset.usable
        self._seed, self._epoch = seed, epoch

    def __getitem__(self, position: int) -> LoadedBatch | SonoscoError:
        with one_thread():
            try:
                passes = self._plan.passes_of(position)
                number = self._epoch if passes is None else passes  # augmentation differs where an utterance returns
                return self._dataset.load_batch(self._usable[self._plan[position]], self._seed, number)
            except SonoscoError as error:
                return error


def _identity(loaded: Any) -> Any:
    return loaded
