"""The base of all destinations, and the logged values that every destination can write."""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from sonosco_like.callbacks.media import Plain
from sonosco_like.errors import MissingPackageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable


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
