"""Values that can be logged beside numbers and texts; a destination ignores those that it cannot show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

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
