"""Wrappers that give loaders of any kind a position, and random numbers that can be repeated.

A foreign loader may draw from the same generators as dropout, at different moments after a resume. Therefore each of
its batches is made with generators that are seeded with (seed, epoch, batch), and those of the trainer are restored.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from typing import Any

from sonosco_like.data.workers import shut_down
from sonosco_like.training.randomness import drawing_from, generators_in, reseed

logger = logging.getLogger(__name__)

_OPENING, _BATCH = range(2)  # what a random number is drawn for


def close_batches(batches: Iterator[Any]) -> None:
    """Close a pass over a loader, so that its workers end at once."""
    close = getattr(batches, "close", None)
    if close is not None:
        close()
    else:
        shut_down(batches)


class SeededBatches:
    """The batches of an iterable, each made with random numbers that depend only on its position."""

    def __init__(self, iterable: Any, seed: int, epoch: int, position: int = 0) -> None:
        self._key, self._position = (seed, epoch), position
        with drawing_from(*self._key, _OPENING, position):
            self._batches = iter(iterable)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with drawing_from(*self._key, _BATCH, self._position):
            batch = next(self._batches)
        self._position += 1
        return batch

    def close(self) -> None:
        """End the workers behind the iterable now."""
        close_batches(self._batches)


class LoaderWrapper:
    """The base of wrappers around a loader; all other attributes are those of the loader."""

    draws_nothing = True

    def __init__(self, loader: Any, seed: int) -> None:
        self.loader = loader
        self.seed = seed
        self.epoch = 0

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not made yet
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)


def name_of(loader: Any) -> str:
    """The name of the class of the original loader."""
    return type(loader.loader if isinstance(loader, LoaderWrapper) else loader).__name__


class ReplayedLoader(LoaderWrapper):
    """An iterable without a position: to reach batch k, all batches before it are made again and skipped."""

    def __init__(self, loader: Any, seed: int) -> None:
        super().__init__(loader, seed)
        self.position = 0

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; within the current epoch the position stays."""
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    def seek(self, position: int) -> None:
        """Go to a batch of the current epoch."""
        self.position = position

    def state_dict(self) -> dict[str, int]:
        """The position, and the seed of the random numbers."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, content: dict[str, int]) -> None:
        """Go to the position of a `state_dict`."""
        self.seed, self.epoch, self.position = content["seed"], content["epoch"], content["position"]

    def __iter__(self) -> Generator[Any, None, None]:
        skipped = self.position
        if hasattr(self.loader, "set_epoch"):
            self.loader.set_epoch(self.epoch)
        reseed(generators_in(self.loader), self.seed, self.epoch)
        batches = SeededBatches(self.loader, self.seed, self.epoch)
        if skipped:
            logger.warning(
                "%s cannot start at a position: %d batches are read and skipped.", type(self.loader).__name__, skipped
            )
        return self._serve(batches, skipped)

    def _serve(self, batches: SeededBatches, skipped: int) -> Generator[Any, None, None]:
        for position, batch in enumerate(batches):
            if position >= skipped:
                self.position = position + 1
                yield batch
        self.position = 0


class StatefulLoader(LoaderWrapper):
    """A loader that has its position in a `state_dict`, but starts again when it is iterated, such as torchdata's.

    Its state is loaded again before each pass, so that a stopped pass continues, in this process or in another one.
    """

    def __init__(self, loader: Any, seed: int) -> None:
        super().__init__(loader, seed)
        self._read = 0  # batches of this pass
        self._has_started = False
        self._source: Any = None
        self._first_state: Any = None

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch."""
        if epoch != self.epoch:
            self.epoch, self._read = epoch, 0
        parts: list[Any] = [getattr(self.loader, name, None) for name in ("sampler", "batch_sampler")]
        for each in (self.loader, *parts):
            if hasattr(each, "set_epoch"):
                each.set_epoch(epoch)

    def rewind(self) -> None:
        """Go to the first batch of the pass."""
        if self._has_started:
            self.loader.load_state_dict(copy.deepcopy(self._first_state))
        self._read, self._source = 0, None

    def state_dict(self) -> dict[str, Any]:
        """The position, as the loader gives it."""
        with drawing_from(self.seed, self.epoch, _OPENING, self._read):
            place = copy.deepcopy(self.loader.state_dict()) if self._has_started else None
        place = {"loader": place, "beginning": self._first_state}
        return {"seed": self.seed, "epoch": self.epoch, "read": self._read, **place}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Go to the position of a `state_dict`."""
        self.seed, self.epoch, self._read = content["seed"], content["epoch"], content["read"]
        self._has_started, self._source = content["loader"] is not None, None
        self._first_state = content["beginning"]
        if self._has_started:
            self.loader.load_state_dict(copy.deepcopy(content["loader"]))

    def __iter__(self) -> Generator[Any, None, None]:
        if self._source is not None:
            self.load_state_dict(self.state_dict())
        self._open()
        return self._serve()

    def _serve(self) -> Generator[Any, None, None]:
        while True:
            if self._source is None:  # its position was changed meanwhile
                self._open()
            try:
                batch = next(self._source)
            except StopIteration:
                self._read = 0
                return
            self._read += 1
            yield batch

    def _open(self) -> None:
        self._source = SeededBatches(self.loader, self.seed, self.epoch, self._read)
        self._has_started = True
        if self._read == 0:
            self._first_state = copy.deepcopy(self.loader.state_dict())


def shard_batches(batches: Sequence[Any], rank: int, world_size: int, divisible: bool, equal_shards: bool) -> list[Any]:
    """The batches of one of `world_size` processes: one batch of each round.

    The rest does not fill a round. If batches are lists of examples (`divisible`), its examples are divided among all
    processes. If that is impossible, `equal_shards` leaves the rest out; otherwise the first processes get it.
    """
    full = len(batches) // world_size * world_size
    rounds, rest = list(batches[:full]), list(batches[full:])
    if rest and divisible:
        rounds, rest = _divide_rest(rounds, rest, world_size)
    return rounds[rank::world_size] + ([] if equal_shards else rest[rank : rank + 1])


def left_out(batches: Sequence[Any], world_size: int, divisible: bool) -> int:
    """How many examples, or batches that cannot be divided, are left out so that all shards have the same size."""
    shards = [shard_batches(batches, rank, world_size, divisible, equal_shards=True) for rank in range(world_size)]
    if not divisible:
        return len(batches) - sum(map(len, shards))
    return sum(map(len, batches)) - sum(len(batch) for share in shards for batch in share)


def _divide_rest(rounds: list[Any], rest: list[Any], world_size: int) -> tuple[list[Any], list[Any]]:
    """One more round of the rest; or two in place of the last full one if the rest is too small for all processes."""
    examples = [example for batch in rest for example in batch]
    if len(examples) >= world_size:
        return [*rounds, *_split(examples, world_size)], []
    examples = [example for batch in (*rounds[-world_size:], examples) for example in batch]
    if not rounds or len(examples) < 2 * world_size:
        return rounds, rest
    return [*rounds[:-world_size], *_split(examples, 2 * world_size)], []


def _split(examples: list[Any], parts: int) -> list[list[Any]]:
    """The examples in `parts` parts, whose lengths differ by one at most."""
    share, more = divmod(len(examples), parts)
    edges = [part * share + min(part, more) for part in range(parts + 1)]
    return [examples[begin:end] for begin, end in pairwise(edges)]
