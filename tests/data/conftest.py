"""Small corpora of real audio files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tones import make_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of 40 recordings between 0.2 and 1.2 seconds, which no test changes."""
    lengths = np.random.default_rng(0).uniform(0.2, 1.2, 40).round(3)
    return make_corpus(tmp_path_factory.mktemp("corpus"), lengths.tolist())


@pytest.fixture
def make(tmp_path: Path) -> Callable[[list[float]], Path]:
    """Makes a corpus of the given lengths in the test's own folder."""
    return lambda lengths: make_corpus(tmp_path, lengths)
