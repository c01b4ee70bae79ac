"""The formats in which a recogniser can leave this package, by name; the room `export` registers them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from sonosco_like.deferred_imports import PROVIDERS
from sonosco_like.errors import UsageError, did_you_mean
from sonosco_like.inference.recogniser import TrainedRecogniser


class Exporter(Protocol):
    """Writes recognisers in one format."""

    def check(self, recogniser: TrainedRecogniser) -> None:
        """Refuse a recogniser that cannot be written in this format, and a package that is missing."""

    def write(self, recogniser: TrainedRecogniser, folder: Path, manifest: Path | None) -> list[str]:
        """Write the folder, in the place of a former one; sentences about what is wrong with it on this manifest."""


EXPORTERS: dict[str, Exporter] = {}


def exporter_named(name: str) -> Exporter:
    """The exporter of a format."""
    if name not in EXPORTERS:
        for provide in PROVIDERS:
            provide()
    if name not in EXPORTERS:
        known = sorted(EXPORTERS)
        raise UsageError(f"`format` must be one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}")
    return EXPORTERS[name]
