"""Imports that wait until a name is used, so that `import sonosco_like` is quick and does not import torch. Layer 0."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

PROVIDERS: list[Callable[[], None]] = []
"""Functions that import further definitions; each is called once, when a file uses a name that is not registered."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Have the garbage collector wait: what an import makes stays, so that there is nothing to collect."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package; `homes` maps each module to its names, separated by blanks."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with _uncollected():
            value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(sys.modules[package].__all__)
