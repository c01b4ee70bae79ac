"""The random generators a run draws from, taken and put back."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import rich.style  # noqa: F401  (draws from Python's generator when it is imported: before a seed is set, not after)
import torch

_GENERATORS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)
_DEEPEST, _MOST_LOOKED_AT = 5, 1000  # a generator that a dataset keeps is near its surface


def seed_everything(seed: int) -> None:
    """Seed all generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def describe_seeds(experiment: Any) -> list[tuple[str, str]]:
    """Which seed goes where, as (what is drawn, seed and where it is set); gives loaders without one their seed."""
    trainer, own = experiment.trainer, f"{experiment.seed} (seed)"
    lines = [("weights, dropout", own)]
    loader = trainer.parts.loaders.adapt(trainer.train_data_loader)
    given = getattr(loader, "seed", None) if hasattr(loader, "take_seed") else None
    lines.append(("order, augmentation", own if given is None else f"{given} (trainer.train_data_loader.seed)"))
    corpus = getattr(experiment.corpus, "seed", None)
    return lines if corpus is None else [*lines, ("generated corpus", f"{corpus} (corpus.seed)")]


def generator_states() -> dict[str, Any]:
    """Where every generator is: torch's on the CPU and on each GPU, Python's and numpy's."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": (name, keys, int(position), int(has_gauss), float(gauss)),
    }


def restore_generators(states: dict[str, Any]) -> None:
    """Put every generator back to where it was."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])


def mix_seed(*key: int) -> int:
    """A seed of 64 bits from several numbers, none of which is negative."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


@contextmanager
def drawing_from(*key: int) -> Iterator[None]:
    """Seed the generators of the CPU with a key of numbers; afterwards restore their states."""
    before = torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=True)
    seed = mix_seed(*key)
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])


def generators_in(*roots: Any) -> list[Any]:
    """The random generators that objects keep in their attributes, and in those of what they hold."""
    found: list[Any] = []
    seen: set[int] = set()
    waiting = [(root, 0) for root in roots]
    while waiting and len(seen) < _MOST_LOOKED_AT:
        value, depth = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, _GENERATORS):
            found.append(value)
        elif depth < _DEEPEST:
            waiting += [(part, depth + 1) for part in _parts(value)]
    return found


def reseed(generators: Iterable[Any], *key: int) -> None:
    """Seed generators with a key of numbers, each with a different seed."""
    for number, generator in enumerate(generators):
        seed = mix_seed(*key, number)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)
        elif isinstance(generator, random.Random):
            generator.seed(seed)
        elif isinstance(generator, np.random.RandomState):
            generator.seed(seed % 2**32)
        else:
            generator.bit_generator.state = type(generator.bit_generator)(seed).state


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple)):
        return value[:_MOST_LOOKED_AT]
    if isinstance(value, dict):
        return list(value.values())[:_MOST_LOOKED_AT]
    is_plain = isinstance(value, (type, ModuleType, torch.Tensor, np.ndarray, str, bytes, int, float))
    return () if is_plain else list(getattr(value, "__dict__", {}).values())
