"""The names that a file may use. `@serializable` fills this registry, and reading looks names up only here.

A file can only name what is in here, so a file can never make Python import anything.
"""

from __future__ import annotations

import inspect
import sys
import threading
from abc import ABC
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonosco_like.deferred_imports import PROVIDERS
from sonosco_like.errors import DefinitionError


@dataclass(frozen=True)
class Registration:
    """A class or function that files may name, and the versions of it that can be read."""

    name: str
    target: Any
    version: int = 1
    also: tuple[str, ...] = ()
    place: tuple[str, str, str, int] = ("", "", "", 0)

    @property
    def is_class(self) -> bool:
        """Whether it is a class, and not a function."""
        return isinstance(self.target, type)

    @property
    def kind(self) -> str:
        """`class` or `function`, the key that names it in a file."""
        return "class" if self.is_class else "function"

    @property
    def tag(self) -> str:
        """How a file names it: `LAS`, or `LAS@2` once there is a second version."""
        return self.name if self.version == 1 else f"{self.name}@{self.version}"


class Registry:
    """Names to classes and functions, and back."""

    def __init__(self, providers: list[Callable[[], None]] | None = None) -> None:
        self._by_name: dict[str, Registration] = {}
        self._by_target: dict[Any, Registration] = {}
        self._providers = [] if providers is None else providers
        self._asking = threading.RLock()  # a thread that misses a name waits for one that fetches it

    def add(self, entry: Registration) -> None:
        """Register under the public name and the former ones; a name that is taken is refused."""
        for name in (entry.name, *entry.also):
            taken = self._by_name.get(name)
            if taken and not _is_same_definition(taken, entry):
                raise DefinitionError(
                    f"Two definitions under one name: {name!r} is already {_where(taken)}, "
                    f"and would also be {_where(entry)}. Rename one of them."
                )
        for name in (entry.name, *entry.also):
            self._by_name[name] = entry
        self._by_target[entry.target] = entry

    def find(self, name: str) -> Registration | None:
        """The registration of a name that a file gave, or None."""
        if name not in self._by_name:
            self._ask_providers()
        return self._by_name.get(name)

    def registration_of(self, target: Any) -> Registration | None:
        """The registration of a class or function, if its name still stands for it."""
        try:
            entry = self._by_target.get(target)
        except TypeError:  # an unhashable callable was never registered
            return None
        return entry if entry and self._by_name.get(entry.name) is entry else None

    def registrations(self) -> list[Registration]:
        """Every class and function that a file may name, sorted by name."""
        self._ask_providers()
        return sorted(set(self._by_name.values()), key=lambda entry: entry.name)

    def subclasses(self, base: Any) -> Iterator[Registration]:
        """Registered classes that fit where `base` is wanted."""
        for entry in self.registrations():
            if entry.is_class and fits(entry.target, base):
                yield entry

    def provide(self, provider: Callable[[], None]) -> None:
        """Let `provider` import further definitions when a name is missing for the first time."""
        self._providers.append(provider)

    def _ask_providers(self) -> None:
        with self._asking:
            while self._providers:
                self._providers.pop(0)()


def fits(cls: type, base: Any) -> bool:
    """Whether instances of `cls` may stand where `base` is declared; a protocol that cannot be checked fits."""
    try:
        return issubclass(cls, base)
    except TypeError:
        return True


def is_abstract(target: Any) -> bool:
    """Whether a class is only a base for others: it names ABC among its own bases, or has abstract methods."""
    bases = getattr(target, "__bases__", ())
    return ABC in bases or inspect.isabstract(target) or getattr(target, "_is_protocol", False)


def public_name(target: Any) -> str:
    """The name of a class or function in files: bare for our own, with its top-level package for others'."""
    package = target.__module__.partition(".")[0]
    if package == "sonosco_like":
        return str(target.__name__)
    if package == "__main__":
        package = _script_name()
    return f"{package}.{target.__name__}"


def _script_name() -> str:
    """The module that `__main__` would be if it were imported, so that a script's files can be read by another one."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name.partition(".")[0])
    path = getattr(main, "__file__", None)
    return Path(path).stem if path else "__main__"


def _is_same_definition(old: Registration, new: Registration) -> bool:
    """Whether `new` is `old` executed once more: a module reloaded, a function called twice, a notebook cell rerun."""
    if old.place[:2] != new.place[:2]:
        return False
    return old.place == new.place or hasattr(sys, "ps1") or "ipykernel" in sys.modules


def _where(entry: Registration) -> str:
    module, name, file, line = entry.place
    return f"{entry.kind} {module}.{name} ({Path(file).name}:{line})"


REGISTRY = Registry(PROVIDERS)
