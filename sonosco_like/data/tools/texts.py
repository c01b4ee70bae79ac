"""Finding all problems of the texts of a dataset before training: each would otherwise stop a run, or spoil it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.text import Tokenizer
from sonosco_like.data.tools.examination import Fault
from sonosco_like.errors import DataError
from sonosco_like.progress import Progress, no_progress
from sonosco_like.records import SPECIAL_SYMBOLS

Frames = Callable[[NDArray[np.float64]], NDArray[np.int64]]
"""How many encoded frames a model makes of utterances of these lengths in seconds."""

_EVERY = 1000  # rows between two signs of progress
_SHOWN = 40  # characters of a text in a message


def examine_texts(
    dataset: AudioDataset,
    indices: NDArray[np.int64],
    frames: Frames | None = None,
    progress: Progress = no_progress,
    skips_too_long: bool = False,
) -> dict[int, list[Fault]]:
    """The faults of the texts of some utterances, by their index in the manifest.

    With `frames`, a text that CTC cannot write in the frames of its utterance is a fault, too; with `skips_too_long` it
    does not stop a training. The counts that the dataset keeps of characters stay as they are.
    """
    cleaner, tokenizer = uncounted(dataset.cleaner), uncounted(dataset.tokenizer)
    tokenizer.missing = "drop"
    known = _Known(tokenizer)
    stops = dataset.tokenizer.missing == "error"
    available = frames(dataset.utterances.durations[indices]) if frames is not None else None
    found: dict[int, list[Fault]] = {}
    with progress(f"reading texts of {dataset.manifest.name}", len(indices), "rows") as advance:
        for place, index in enumerate(indices.tolist()):
            text = dataset.utterances[index].text
            text = cleaner(text) if cleaner else text
            labels, faults = known.encode(text, stops)
            needed = frames_for(labels)
            if available is not None and needed > available[place]:
                detail = f"{needed} frames are needed for {_shortened(text)!r}, there are {available[place]}"
                faults.append(Fault("too long for CTC", detail, usable=skips_too_long))
            if faults:
                found[index] = faults
            if (place + 1) % _EVERY == 0:
                advance(_EVERY)
        advance(len(indices) % _EVERY)
    return found


def frames_for(labels: list[int]) -> int:
    """The fewest frames in which CTC can write labels: equal neighbours need a blank between."""
    return len(labels) + sum(a == b for a, b in pairwise(labels))


def uncounted(part: Any) -> Any:
    """A copy of a cleaner or tokenizer that counts characters for itself."""
    own = copy(part)
    for name in ("dropped_counts", "missing_counts"):
        getattr(own, "__dict__", {}).pop(name, None)
    return own


class _Known:
    """The characters of a tokenizer, and what is meant by those that it does not have."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._characters = set("".join(tokenizer.symbols[len(SPECIAL_SYMBOLS) :]))
        self._scripts = _scripts_of(self._characters)

    def encode(self, text: str, stops: bool) -> tuple[list[int], list[Fault]]:
        """The labels of a text, and what is wrong with it; `stops` says whether a missing label stops a training."""
        counts = self._tokenizer.missing_counts
        counts.clear()
        try:
            labels = self._tokenizer.encode(text)
        except DataError as error:  # a tokenizer of the user's own need not know `missing`
            return [], [Fault("no label", str(error))]
        if counts:
            return labels, [self.fault(text, counts, usable=not stops)]
        return labels, [] if labels else [Fault("no text", "there is nothing to learn", usable=True)]

    def fault(self, text: str, missing: Iterable[str], usable: bool) -> Fault:
        """The fault of a text with characters that have no label."""
        unknown = list(dict.fromkeys(missing))
        listed = f"no label for {', '.join(map(repr, unknown))} in the text {_shortened(text)!r}"
        if all(each.swapcase() in self._characters for each in unknown):
            return Fault("other case", listed, usable)
        scripts = _scripts_of(unknown) - self._scripts
        if scripts and self._scripts and not (_scripts_of(text) & self._scripts):
            here, there = ", ".join(sorted(scripts)), ", ".join(sorted(self._scripts))
            return Fault("other alphabet", f"{here}, while the labels are {there}: {listed}", usable)
        return Fault("no label", listed, usable)


def _scripts_of(characters: Iterable[str]) -> set[str]:
    """The alphabets of letters, such as LATIN and CYRILLIC, by their Unicode names."""
    return {unicodedata.name(each, "UNNAMED").partition(" ")[0] for each in characters if each.isalpha()}


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
