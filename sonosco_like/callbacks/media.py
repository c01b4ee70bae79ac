"""What can be logged beside numbers and texts. Destinations that cannot show it pass over it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


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
    """Data that a dashboard of its own reads: what they are about, in a few bytes, and the parts themselves."""

    plugin: str
    about: bytes
    parts: tuple[bytes, ...]
