"""What callbacks may log, and the base of the destinations, which write it to files and services."""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from sonosco_like.errors import MissingPackageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable

Plain: TypeAlias = "bool | int | float | str"
"""A value that every destination can write."""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture of height H and width W in C channels (1 or 3): uint8, or float from 0 to 1."""

    pixels_HWC: Tensor


@dataclass(frozen=True, slots=True)
class Audio:
    """A recording: samples from -1 to 1."""

    samples_N: Tensor
    sample_rate: int


@dataclass(frozen=True, slots=True)
class Markdown:
    """A text for people, with tables and emphasis; not for files with one value per column."""

    text: str


@dataclass(frozen=True, slots=True)
class DashboardData:
    """Data for a TensorBoard dashboard: the name of its plugin, a short description (`about`), and the parts."""

    plugin: str
    about: bytes
    parts: tuple[bytes, ...]


@serializable
class Destination(AbstractCallback, ABC):
    """Writes the values that are logged. Only the first process of a distributed run writes."""

    ranks: list[int] | None = field(default_factory=lambda: [0])

    @abstractmethod
    def on_log(self, moment: Moment) -> None:
        """Write `moment.args["values"]`, which belong to `moment.args["epoch"]` and `moment.args["step"]`."""


def plain_values(values: Mapping[str, Any]) -> dict[str, Plain]:
    """The numbers and texts among logged values; pictures and tensors are for destinations that can show them."""
    plain: dict[str, Plain] = {}
    for name, value in values.items():
        if getattr(value, "ndim", None) == 0:
            value = value.item()
        if isinstance(value, str):
            plain[name] = escape_surrogates(value)
        elif isinstance(value, (bool, int, float)):
            plain[name] = value
    return plain


def numeric_values(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among logged values."""
    return {name: as_float(value) for name, value in plain_values(values).items() if not isinstance(value, str)}


def escape_surrogates(text: str) -> str:
    """A text that can be written as UTF-8: a lone surrogate becomes an escape such as `\\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode()


def as_float(value: float) -> float:
    """A number as floating point; infinite if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def optional_package(name: str, wanted_by: str, extra: str) -> Any:
    """Import an optional package. Raises MissingPackageError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{wanted_by} needs the package {name.partition('.')[0]}, which cannot be imported ({error}). "
            f"Install it with: pip install 'sonosco_like[{extra}]'"
        ) from error
