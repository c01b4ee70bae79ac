"""What stands in TensorBoard's event files, whatever a reader makes of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest


def records(folder: Path) -> Counter[tuple[str, int]]:
    """How often each (tag, step) is in the files of a folder."""
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    found: Counter[tuple[str, int]] = Counter()
    for file in folder.iterdir():
        for event in loader.EventFileLoader(str(file)).Load():
            found.update((value.tag, event.step) for value in event.summary.value)
    return found
