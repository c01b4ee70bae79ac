"""The random generators of a run: their seeds and their states."""

from __future__ import annotations

import ctypes
import functools
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import rich.style  # noqa: F401  (draws from Python's generator when it is imported: before a seed is set, not after)
import torch
from torch import Tensor

_OF_NUMPY: Any = np.random  # its stubs leave out the functions of the bit generator
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


class _CachedState:
    """A global generator whose state is copied only if the generator has moved since the last copy.

    Copying the state of Python's or NumPy's generator takes as long as a small training step. Comparing the memory of
    its objects takes a hundredth of that. The memory is only read, and only if a trial showed that it
    changes with each draw.
    """

    def __init__(self, watch: Callable[[], Callable[[], Any] | None], copy_state: Callable[[], Any]) -> None:
        """`watch` makes a function that looks at the memory; none if the memory does not show it."""
        self._watch, self._copy_state = watch, copy_state
        self._look: Callable[[], Any] | None = None
        self._seen: Any = None
        self._state: Any = None

    def state(self) -> Any:
        """The state of now."""
        if self._look is None or self._look() != self._seen:
            self._look = self._watch() if _memory_shows_draws() else None
            self._seen = self._look() if self._look is not None else None
            self._state = self._copy_state()
        return self._state


def _memory_of(part: Any) -> Any:
    """The memory of an object, without the head that every object has."""
    head = object.__basicsize__
    return (ctypes.c_char * (type(part).__basicsize__ - head)).from_address(id(part) + head)


@functools.cache
def _memory_shows_draws() -> bool:
    """Whether each draw changes what `_memory_of` shows, tried with other generators of the same kinds."""
    if sys.implementation.name != "cpython":
        return False
    python, numpy, bits = random.Random(0), np.random.RandomState(0), np.random.MT19937(0)
    generators_and_draws = (
        (python, python.random),
        (bits, bits.random_raw),
        (numpy, numpy.standard_normal),
        (numpy, numpy.standard_normal),  # it gives the second number of a pair, and leaves the bits alone
    )
    for part, draw in generators_and_draws:
        before = _memory_of(part).raw
        draw()
        if _memory_of(part).raw == before:
            return False
    return True


def _watch_python() -> Callable[[], Any]:
    generator: Any = random.random.__self__  # type: ignore[attr-defined]
    memory = _memory_of(generator)
    return lambda: (memory.raw, generator.gauss_next)


def _watch_numpy() -> Callable[[], Any] | None:
    generator, bits = _OF_NUMPY.random_sample.__self__, _OF_NUMPY.get_bit_generator()
    if type(bits) is not np.random.MT19937:
        return None
    memory, memory_of_bits = _memory_of(generator), _memory_of(bits)
    return lambda: (memory.raw, memory_of_bits.raw, bits)  # another one of bits changes the memory of the generator


def _numpy_state() -> tuple[str, Any, int, int, float]:
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return name, keys, int(position), int(has_gauss), float(gauss)


_PYTHON = _CachedState(_watch_python, random.getstate)
_NUMPY = _CachedState(_watch_numpy, _numpy_state)


def generator_states() -> dict[str, Any]:
    """The state of every generator: torch's on the CPU and on each GPU, Python's and numpy's."""
    of_torch, python, numpy = cpu_states()
    cuda = list(torch.cuda.get_rng_state_all()) if _has_cuda() else []
    return {"torch": of_torch, "cuda": cuda, "python": python, "numpy": numpy}


def restore_generators(states: dict[str, Any]) -> None:
    """Restore the state of every generator."""
    restore_cpu_states((states["torch"], states["python"], states["numpy"]))
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])


def mix_seed(*key: int) -> int:
    """A seed of 64 bits from several numbers, none of which is negative."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


_SEPARATE_BITS = np.random.MT19937(0)  # what NumPy draws from inside `drawing_from`


def cpu_states() -> tuple[Tensor, Any, Any]:
    """Where the generators of the CPU are: torch's, Python's and NumPy's."""
    return torch.default_generator.get_state(), _PYTHON.state(), _NUMPY.state()


_has_cuda = functools.cache(torch.cuda.is_available)  # it looks for devices each time it is asked


def have_moved(before: tuple[Tensor, Any, Any]) -> bool:
    """Whether a generator of the CPU has moved since `cpu_states`; True also if only a copy could show it."""
    after = cpu_states()
    return (
        after[1] is not before[1]
        or after[2] is not before[2]
        or after[0].numpy().tobytes() != before[0].numpy().tobytes()
    )


def restore_cpu_states(states: tuple[Tensor, Any, Any]) -> None:
    """Put the generators of the CPU back to where they were."""
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


@contextmanager
def drawing_from(*key: int) -> Iterator[None]:
    """Seed the generators of the CPU with a key of numbers; afterwards restore their states."""
    before = cpu_states()
    bits = _OF_NUMPY.get_bit_generator()
    _OF_NUMPY.set_bit_generator(
        _SEPARATE_BITS
    )  # quicker than to put the state back, but it forgets a kept normal number
    seed = mix_seed(*key)
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        _OF_NUMPY.set_bit_generator(bits)
        has_spare_normal = before[2][3]
        if has_spare_normal or bits is _SEPARATE_BITS:  # inside another `drawing_from`
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
