"""torch's own `DataLoader` over a map-style dataset, as a loader whose epochs can be entered at any batch.

Which examples make a batch is drawn from (seed, epoch), and whatever the dataset draws for a batch from (seed, epoch,
batch): so neither where a run was stopped nor the number of workers changes a bit, and nothing is read again.
"""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, get_worker_info

from sonosco_like.data.workers import (
    close_at_exit,
    init_worker,
    install_sigchld_handler,
    one_thread,
    shut_down,
    worker_errors_as_data_errors,
)
from sonosco_like.errors import DataError, UsageError, list_some, message_of
from sonosco_like.process import block_signals
from sonosco_like.training.foreign_loader import LoaderWrapper, left_out, shard_batches
from sonosco_like.training.randomness import (
    cpu_states,
    drawing_from,
    generators_in,
    have_moved,
    mix_seed,
    reseed,
    restore_cpu_states,
)

logger = logging.getLogger(__name__)

_ORDER, _WORKERS, _BATCH = range(3)  # what a random number is drawn for
_OPTIONS = ("num_workers", "prefetch_factor", "timeout", "multiprocessing_context", "pin_memory")


def can_be_placed(loader: Any) -> bool:
    """Whether a loader is an unchanged DataLoader over a dataset with indices, in an order of a known length."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    is_plain = type(loader).__iter__ is DataLoader.__iter__ and type(loader)._get_iterator is DataLoader._get_iterator
    return is_plain and hasattr(_order_of(loader), "__len__")


def has_distributed_sampler(loader: Any) -> bool:
    """Whether a loader has a sampler for several processes, such as torch's DistributedSampler."""
    return any(hasattr(each, "num_replicas") and hasattr(each, "rank") for each in samplers_of(loader))


def samplers_of(loader: Any) -> list[Any]:
    """The samplers of a loader, of batches and of examples."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    found = [batch_sampler, getattr(batch_sampler, "sampler", None), getattr(loader, "sampler", None)]
    return [each for number, each in enumerate(found) if each is not None and each not in found[:number]]


class TorchLoader(LoaderWrapper):
    """The batches of a DataLoader from any position on, in an order that is a function of (seed, epoch).

    With `equal_shards`, all processes have equally many batches, as training needs; else every example is used.
    """

    def __init__(self, loader: DataLoader[Any], seed: int, equal_shards: bool) -> None:
        super().__init__(loader, seed)
        self.position = 0
        self.rank, self.world_size = 0, 1
        self._equal_shards = equal_shards
        self._plan: tuple[tuple[int, int, int], list[Any]] | None = None
        self._saved_data: str | None = None
        self._open_passes = 0
        self._persistent: DataLoader[Any] | None = None  # with workers that outlive an epoch

    def __len__(self) -> int:
        """Batches of an epoch for this process."""
        return len(self.batches)

    @property
    def batches(self) -> list[Any]:
        """The indices of each batch of the current epoch, for this process."""
        wanted = (self.epoch, self.rank, self.world_size)
        if self._plan is None or self._plan[0] != wanted:
            self._plan = wanted, self._own_batches(self._draw_batches())
        return self._plan[1]

    def distribute(self, rank: int, world_size: int) -> None:
        """Give the batches of one process only, unless the sampler distributes them already."""
        if has_distributed_sampler(self.loader):
            logger.info("The sampler of the %s distributes its examples to the processes.", type(self.loader).__name__)
            return
        self.rank, self.world_size = rank, world_size
        drawn_batches = self._draw_batches()
        lost = left_out(drawn_batches, world_size, self._divisible) if self._equal_shards else 0
        unit = "examples" if self._divisible else "batches"
        logger.info(
            "The %d batches of the %s are distributed to %d processes, each example to one of them%s.",
            len(drawn_batches), type(self.loader).__name__, world_size,
            f"; {lost} {unit} of each epoch, which cannot be shared evenly, are left out" if lost else "",
        )  # fmt: skip

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; within the current epoch the position stays."""
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    def seek(self, position: int) -> None:
        """Go to a batch of the current epoch; the cost does not depend on which."""
        self.position = position

    def state_dict(self) -> dict[str, Any]:
        """The position, and the seed of the order."""
        data = self._data_mark() if self._plan else self._saved_data
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position, "data": data}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Go to the position of a `state_dict`."""
        if content["seed"] != self.seed:
            self.seed, self._plan = int(content["seed"]), None
        self.epoch, self.position = int(content["epoch"]), int(content["position"])
        self._saved_data = content.get("data")

    def close(self) -> None:
        """End the workers that outlive an epoch; the next pass starts new ones."""
        persistent, self._persistent = self._persistent, None
        if persistent is not None and persistent._iterator is not None:
            shut_down(persistent._iterator)

    def check_order(self) -> None:
        """Warn of a sampler whose order differs each time, although all generators have the same seed."""
        foreign = [each for each in samplers_of(self.loader) if not type(each).__module__.startswith("torch.")]
        if foreign and [str(batch) for batch in self._draw_batches()] != [str(batch) for batch in self._draw_batches()]:
            names = " and ".join(type(each).__name__ for each in foreign)
            logger.warning(
                "The order of %s is different each time, although the seed is the same, so a resumed run is not exact. "
                "Make the order a function of the epoch; a method set_epoch(epoch) is called with its number.",
                names,
            )

    def __iter__(self) -> Iterator[Any]:
        self._warn_of_changed_data()
        positions = range(self.position, len(self.batches))
        served = self._serve(positions, self._fetches(positions))
        if self.loader.num_workers:
            install_sigchld_handler()
            close_at_exit(served)
        return served

    def _serve(self, positions: range, fetches: Iterator[Any]) -> Generator[Any, None, None]:
        self._open_passes += 1
        complete = False
        try:
            for position in positions:
                if self.loader.num_workers:
                    with worker_errors_as_data_errors():
                        batch = next(fetches)
                else:
                    batch = next(fetches)
                if isinstance(batch, Failure):
                    raise batch.as_error(f"batch {position + 1} of epoch {self.epoch + 1}")
                self.position = position + 1
                yield batch
            self.position = 0
            complete = True
        finally:
            self._open_passes -= 1
            if not (complete and self._is_persistent(fetches)):
                self._persistent = None if self._is_persistent(fetches) else self._persistent
                shut_down(fetches)

    def _is_persistent(self, fetches: Iterator[Any]) -> bool:
        return self._persistent is not None and self._persistent._iterator is fetches

    def _fetches(self, positions: range) -> Iterator[Any]:
        """The batches at these positions, in order, made by the workers or by this process."""
        if not self.loader.num_workers and not self.loader.pin_memory:  # torch's own iterator takes longer
            return map(self._examples().__getitem__, self._places(positions))
        torch_loader = (
            self._persistent if self._persistent is not None and not self._open_passes else self._new_torch_loader()
        )
        places, generator = torch_loader.sampler, torch_loader.generator
        assert isinstance(places, _Places)
        assert generator is not None
        places.items = self._places(positions)
        generator.manual_seed(mix_seed(self.seed, self.epoch, _WORKERS))
        with block_signals(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This DataLoader will create")  # the user saw it already
            return iter(torch_loader)

    def _places(self, positions: range) -> Iterator[tuple[tuple[int, ...], Any]]:
        plan, key = self.batches, (self.seed, self.epoch, _BATCH)
        return (((*key, position), plan[position]) for position in positions)

    def _examples(self) -> PlacedExamples:
        return PlacedExamples(self.loader.dataset, self.loader.collate_fn, _is_batched(self.loader))

    def _new_torch_loader(self) -> DataLoader[Any]:
        own = self.loader
        options = {name: getattr(own, name) for name in _OPTIONS}
        if own.num_workers:
            options["persistent_workers"] = own.persistent_workers and not self._open_passes
            options["worker_init_fn"] = _WorkerStart(own.worker_init_fn)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This DataLoader will create")
            torch_loader: DataLoader[Any] = DataLoader(
                self._examples(),
                batch_size=None,
                sampler=_Places(),
                collate_fn=_unchanged,
                generator=torch.Generator(),
                **options,
            )
        if options.get("persistent_workers"):
            self._persistent = torch_loader
        return torch_loader

    def _draw_batches(self) -> list[Any]:
        """All batches of the epoch, as the samplers of the loader give them."""
        samplers = samplers_of(self.loader)
        for sampler in samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self.epoch)
        with drawing_from(self.seed, self.epoch, _ORDER):
            reseed(generators_in(*samplers, self.loader.generator), self.seed, self.epoch, _ORDER)
            return list(_order_of(self.loader))

    def _own_batches(self, batches: list[Any]) -> list[Any]:
        if self.world_size == 1:
            return batches
        shares = [
            shard_batches(batches, rank, self.world_size, self._divisible, self._equal_shards)
            for rank in range(self.world_size)
        ]
        if not all(shares):
            raise UsageError(
                f"The {type(self.loader).__name__} has {len(batches)} batches of {type(self.loader.dataset).__name__}, "
                f"too few for {self.world_size} processes. Use fewer of them, or smaller batches."
            )
        return shares[self.rank]

    @property
    def _divisible(self) -> bool:
        return type(self.loader.batch_sampler) is BatchSampler and not self.loader.drop_last

    def _warn_of_changed_data(self) -> None:
        if self.position and self._saved_data not in (None, self._data_mark()):
            logger.warning(
                "The data of the %s changed since this position was saved (then %s, now %s), so the rest of this epoch "
                "differs from that of an unbroken run.",
                type(self.loader).__name__, self._saved_data, self._data_mark(),
            )  # fmt: skip

    def _data_mark(self) -> str:
        examples = sum(map(len, self.batches)) if _is_batched(self.loader) else len(self.batches)
        return f"{examples} examples in {len(self.batches)} batches"


class PlacedExamples(Dataset[Any]):
    """The task of a worker: it gets a key of random numbers and the indices of a batch, and returns the batch."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], batched: bool) -> None:
        self.dataset, self._collate, self._batched = dataset, collate, batched
        self._generators: list[Any] | None = None
        self._is_random: bool | None = None  # whether a batch has drawn random numbers; None before the first one

    def __getitem__(self, place: tuple[tuple[int, ...], Any]) -> Any:
        key, indices = place
        if self._is_random is False:  # seeding all generators may take longer than reading
            before = cpu_states()
            with one_thread():
                batch = self._read(indices)
            if not have_moved(before):
                return batch
            restore_cpu_states(before)
            self._is_random = True
        return self._read_seeded(key, indices)

    def _read_seeded(self, key: tuple[int, ...], indices: Any) -> Any:
        if self._generators is None:
            self._generators = generators_in(self.dataset, self._collate)
        with drawing_from(*key), one_thread():
            reseed(self._generators, *key)
            before = cpu_states() if self._is_random is None else None
            batch = self._read(indices)
            if before is not None:
                self._is_random = bool(self._generators) or have_moved(before)
            return batch

    def _read(self, indices: Any) -> Any:
        index, is_read = indices, False
        try:
            if not self._batched:
                return self._collate(self.dataset[index])
            if callable(getattr(self.dataset, "__getitems__", None)):
                examples = self.dataset.__getitems__(indices)
            else:
                examples = []
                for index in indices:
                    examples.append(self.dataset[index])
            index, is_read = indices, True
            return self._collate(examples)
        except Exception as error:
            together = self._batched and index is indices
            where = f"the indices {list_some(list(indices), 8)}" if together else f"index {index!r}"
            how = ", which were to be collated" if is_read else ""
            return Failure(error, f"{type(self.dataset).__name__} failed at the example with {where}{how}")


class Failure:
    """An exception of a dataset as text, which a worker can send."""

    def __init__(self, error: Exception, what: str) -> None:
        self._message = f"{what}: {message_of(error).rstrip('.')}"
        self._trace = "".join(traceback.format_exception(error))

    def as_error(self, where: str) -> DataError:
        """The error to raise, with the place in the user's code as a note."""
        error = DataError(f"{self._message} ({where}).")
        error.add_note(self._trace)
        return error


class _Places:
    """A sampler that gives the indices that were set last."""

    items: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        return self.items


class _WorkerStart:
    """Initialise a worker as ours, then call the user's own function, which finds its dataset through torch."""

    def __init__(self, own: Callable[[int], None] | None) -> None:
        self._own = own

    def __call__(self, worker: int) -> None:
        init_worker(worker)
        info: Any = get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.dataset)  # its own __setattr__ forbids this
        if self._own is not None:
            self._own(worker)


def _order_of(loader: DataLoader[Any]) -> Any:
    return loader.batch_sampler if _is_batched(loader) else loader.sampler


def _is_batched(loader: DataLoader[Any]) -> bool:
    return loader.batch_sampler is not None


def _unchanged(batch: Any) -> Any:
    return batch
