"""The interface of exporters, and of readers of exported folders; the room `export` registers both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sonosco_like.deferred_imports import PROVIDERS
from sonosco_like.errors import UsageError, did_you_mean
from sonosco_like.inference.recogniser import DecoderSettings, TrainedRecogniser
from sonosco_like.inference.transcriber import WaveformTranscriber, load_transcriber
from sonosco_like.runs.checkpoints import find_checkpoint


class Exporter(Protocol):
    """Writes recognisers in one format."""

    def check(self, recogniser: TrainedRecogniser) -> None:
        """Refuse a recogniser that cannot be written in this format, and a package that is missing."""

    def write(self, recogniser: TrainedRecogniser, folder: Path, manifest: Path | None) -> list[str]:
        """Write the folder, over an earlier one; returns a line for each difference on this manifest."""


Opener = Callable[[Path, DecoderSettings, "float | None"], "WaveformTranscriber | None"]
EXPORTERS: dict[str, Exporter] = {}
OPENERS: list[Opener] = []
"""Functions (folder, settings, longest) that give the transcriber of an exported folder; None for any other folder."""


def exporter_named(name: str) -> Exporter:
    """The exporter of a format."""
    if name not in EXPORTERS:
        for provide in PROVIDERS:
            provide()
    if name not in EXPORTERS:
        known = sorted(EXPORTERS)
        raise UsageError(f"`format` must be one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}")
    return EXPORTERS[name]


def open_transcriber(
    path: Path, device: str | None, settings: DecoderSettings, longest: float | None
) -> WaveformTranscriber:
    """The transcriber of a run folder, a checkpoint or an exported folder; the latter needs no device."""
    try:
        find_checkpoint(path)
    except UsageError:
        for provide in PROVIDERS:
            provide()
        for opener in OPENERS:
            found = opener(path, settings, longest)
            if found is not None:
                return found
        raise
    return load_transcriber(path, device, settings, longest)
