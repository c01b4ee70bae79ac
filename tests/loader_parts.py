"""Loaders of every kind that a user may bring, over data whose batches depend on random numbers."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from sonosco_like import serializable

EXAMPLES, SIZE = 22, 4


def example(index: int) -> tuple[Tensor, Tensor]:
    """Four numbers and their sum."""
    inputs = torch.randn(4, generator=torch.Generator().manual_seed(index))
    return inputs, inputs.sum(0, keepdim=True)


class Noisy(Dataset):
    """Examples with noise from every generator there is, also one of its own."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(5)
        self.parts = {"one": random.Random(6), "two": [torch.Generator().manual_seed(7)]}

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, target = example(index)
        noise = random.random() + np.random.rand() + self.own.random() + self.parts["one"].random()
        noise += torch.rand(4) + torch.rand(4, generator=self.parts["two"][0])
        return inputs + 0.1 * noise.float(), target


class Pairs(Sampler):
    """Batches of two neighbours, in an order that Python's generator shuffles."""

    def __iter__(self) -> Iterator[list[int]]:
        pairs = [[i, i + 1] for i in range(0, EXAMPLES, 2)]
        random.shuffle(pairs)
        return iter(pairs)

    def __len__(self) -> int:
        return EXAMPLES // 2


class ByEpoch(Sampler):
    """An order that follows from the epoch it is told."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng(self.epoch).permutation(EXAMPLES).tolist())

    def __len__(self) -> int:
        return EXAMPLES


class Stream(IterableDataset):
    """Examples without indices, shuffled anew in each pass; workers share them."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        info = get_worker_info()
        order = list(range(EXAMPLES))[info.id if info else 0 :: info.num_workers if info else 1]
        random.shuffle(order)
        for index in order:
            inputs, target = example(index)
            yield inputs + 0.1 * torch.rand(4), target


class Shuffling:
    """An iterable of batches without any place, with a generator of its own."""

    def __init__(self) -> None:
        self.own = random.Random(1)

    def __iter__(self) -> Iterator[Any]:
        order = list(range(EXAMPLES))
        self.own.shuffle(order)
        for first in range(0, EXAMPLES, SIZE):
            rows = [example(index) for index in order[first : first + SIZE]]
            yield torch.stack([row[0] for row in rows]) + 0.1 * np.random.rand(), torch.stack([row[1] for row in rows])


class WithPlace:
    """What the pages ask of a loader, and nothing more; its state is always the same dict."""

    def __init__(self) -> None:
        self.place = {"epoch": 0, "done": 0}

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.place["epoch"]:
            self.place.update(epoch=epoch, done=0)

    def state_dict(self) -> dict[str, int]:
        return self.place

    def load_state_dict(self, content: dict[str, int]) -> None:
        self.place.update(content)

    def __iter__(self) -> Iterator[Any]:
        order = np.random.default_rng(self.place["epoch"]).permutation(EXAMPLES).tolist()
        loader = DataLoader(TensorDataset(torch.tensor(order[self.place["done"] * SIZE :])), batch_size=SIZE)
        for (indices,) in loader:  # torch draws from the global generator here
            rows = [example(index) for index in indices.tolist()]
            self.place["done"] += 1
            yield torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])
        self.place["done"] = 0


@serializable
class RegisteredWithPlace:
    """The same, as part of a config."""

    def __post_init__(self) -> None:
        self.inner = WithPlace()
        for name in ("set_epoch", "state_dict", "load_state_dict"):
            setattr(self, name, getattr(self.inner, name))

    def state_dict(self) -> dict[str, int]:
        """The place."""
        return self.inner.state_dict()

    def load_state_dict(self, content: dict[str, int]) -> None:
        """Go to a place."""
        self.inner.load_state_dict(content)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inner)


class Stateful:
    """The protocol of torchdata's StatefulDataLoader: a pass begins anew unless a state was loaded just before."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(4)
        self.next_state: dict[str, Any] | None = None
        self.iterator: _StatefulPass | None = None

    def state_dict(self) -> dict[str, Any]:
        if self.iterator is None:
            self.iterator = _StatefulPass(self, self.next_state)
        return {"done": self.iterator.done, "generator": self.iterator.began_at, "finished": self.iterator.finished}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        self.iterator, self.next_state = None, copy.copy(content)

    def __iter__(self) -> Iterator[Any]:
        torch.rand(1)  # as torch does to seed its workers
        self.iterator = _StatefulPass(self, self.next_state)
        self.next_state = None
        return self.iterator


class _StatefulPass:
    def __init__(self, loader: Stateful, state: dict[str, Any] | None) -> None:
        if state is not None:
            loader.generator.set_state(state["generator"])
            if state["finished"]:
                torch.randperm(EXAMPLES, generator=loader.generator)
        self.began_at = loader.generator.get_state()
        self.order = torch.randperm(EXAMPLES, generator=loader.generator).tolist()
        self.done = 0 if state is None or state["finished"] else state["done"]
        self.finished = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        indices = self.order[self.done * SIZE : self.done * SIZE + SIZE]
        if not indices:
            self.finished = True
            raise StopIteration
        self.done += 1
        rows = [example(index) for index in indices]
        return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])


class OwnIteration(DataLoader):
    """A DataLoader that changes what it hands out: to go around its `__iter__` would be wrong."""

    def __iter__(self) -> Iterator[Any]:
        for inputs, targets in super().__iter__():
            yield 2 * inputs, targets


@serializable
def noisy_loader(batch_size: int = SIZE) -> Any:
    """A DataLoader, made by a function that a config can name."""
    return DataLoader(Noisy(), batch_size=batch_size, shuffle=True)


def _kinds() -> dict[str, Callable[[], Any]]:
    noisy = Noisy
    weights = [1.0 + index for index in range(EXAMPLES)]
    lists = [tuple(map(torch.stack, zip(*map(example, range(i, i + 4)), strict=True))) for i in range(0, 20, 4)]
    return {
        "list": lambda: list(lists),
        "shuffled": lambda: DataLoader(noisy(), batch_size=SIZE, shuffle=True),
        "in order, incomplete batch dropped": lambda: DataLoader(noisy(), batch_size=SIZE, drop_last=True),
        "own generator": lambda: DataLoader(noisy(), SIZE, shuffle=True, generator=torch.Generator().manual_seed(1)),
        "two workers": lambda: DataLoader(noisy(), SIZE, shuffle=True, num_workers=2),
        "kept workers": lambda: DataLoader(noisy(), SIZE, shuffle=True, num_workers=1, persistent_workers=True),
        "weighted": lambda: DataLoader(noisy(), SIZE, sampler=WeightedRandomSampler(weights, 18)),
        "subset": lambda: DataLoader(noisy(), SIZE, sampler=SubsetRandomSampler(range(3, 20))),
        "batch sampler": lambda: DataLoader(noisy(), batch_sampler=Pairs()),
        "sampler with epochs": lambda: DataLoader(noisy(), SIZE, sampler=ByEpoch()),
        "single examples": lambda: DataLoader(noisy(), batch_size=None, shuffle=True),
        "stream": lambda: DataLoader(Stream(), batch_size=SIZE),
        "stream with workers": lambda: DataLoader(Stream(), batch_size=SIZE, num_workers=2),
        "own __iter__": lambda: OwnIteration(
            TensorDataset(*map(torch.stack, zip(*map(example, range(20)), strict=True))), SIZE
        ),
        "iterable": Shuffling,
        "with place": WithPlace,
        "registered with place": RegisteredWithPlace,
        "stateful": Stateful,
        "function": lambda: noisy_loader,
    }


KINDS = _kinds()
