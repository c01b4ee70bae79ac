"""Finding all problems of the texts of a dataset before training: each would otherwise stop a run, or spoil it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.text import Tokenizer
from sonosco_like.data.tools.examination import Fault
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
    cleaner = replace(dataset.cleaner) if dataset.cleaner else None
    tokenizer = replace(dataset.tokenizer, missing="drop")
    known = _Known(tokenizer)
    stops = dataset.tokenizer.missing == "error"
    available = frames(dataset.utterances.durations[indices]) if frames is not None else None
    found: dict[int, list[Fault]] = {}
    with progress(f"reading texts of {dataset.manifest.name}", len(indices), "rows") as advance:
        for place, index in enumerate(indices.tolist()):
            text = dataset.utterances[index].text
            text = cleaner(text) if cleaner else text
            tokenizer.missing_counts.clear()
            labels = tokenizer.encode(text)
            faults = [known.fault(text, tokenizer.missing_counts, usable=not stops)] if tokenizer.missing_counts else []
            if not labels and not faults:
                faults = [Fault("no text", "there is nothing to learn", usable=True)]
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


class _Known:
    """The characters of a tokenizer, and what is meant by those that it does not have."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._characters = set("".join(tokenizer.symbols[len(SPECIAL_SYMBOLS) :]))
        self._scripts = _scripts_of(self._characters)

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
