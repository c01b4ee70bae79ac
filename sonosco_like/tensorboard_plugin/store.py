"""The records of all runs by run, validation set and step; each part is unpacked when it is needed."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sonosco_like.tensorboard_plugin.records import (
    PLUGIN,
    UnreadableError,
    Utterances,
    counts_of,
    entries_of,
    header_of,
    texts_of,
    unpack,
    utterances_of,
)

T = TypeVar("T")
_FRESH_SECONDS = 2.0
_MOST_CACHED = 1 << 28


@dataclass(frozen=True, slots=True)
class Record:
    """A record that TensorBoard knows: its header, and the keys under which its parts can be read."""

    header: dict[str, Any]
    wall_time: float
    parts: tuple[str, ...]


@dataclass(slots=True)
class ValidationSet:
    """The records of one validation set of one run."""

    utterances: dict[str, Record] = field(default_factory=dict)
    hypotheses: dict[int, Record] = field(default_factory=dict)
    alignments: dict[int, Record] = field(default_factory=dict)
    recordings: Record | None = None

    @property
    def steps(self) -> list[int]:
        """The steps whose texts are complete."""
        return sorted(
            step for step, record in self.hypotheses.items() if record.header.get("utterances") in self.utterances
        )

    def latest(self, step: int) -> int | None:
        """The last validation up to a step: runs need not validate at the same steps."""
        return max((each for each in self.steps if each <= step), default=None)


Index = dict[str, dict[str, ValidationSet]]


class Store:
    """Reads runs through a data provider of TensorBoard; there is one store for each experiment."""

    def __init__(self, provider: Any, experiment: str) -> None:
        self._provider, self._experiment = provider, experiment
        self._cache = _Cache(_MOST_CACHED)
        self._lock = Lock()
        self._index: tuple[float, Index] = (-np.inf, {})

    def index(self, context: Any) -> Index:
        """Runs and their validation sets, at most two seconds old."""
        with self._lock:
            read_at, index = self._index
            if time.monotonic() - read_at > _FRESH_SECONDS:
                index = self._read_index(context)
                self._index = time.monotonic(), index
            return index

    def utterances(self, context: Any, found: ValidationSet, step: int) -> Utterances:
        """The utterances in the validation of a step."""
        record = found.utterances[found.hypotheses[step].header["utterances"]]
        return self._part(context, record, 0, utterances_of)

    def errors(self, context: Any, found: ValidationSet, step: int, mode: str) -> NDArray[np.int32]:
        """Word and character errors of each utterance at a step, as rows of two."""
        record = found.hypotheses[step]
        count = len(self.utterances(context, found, step).ids)
        modes = modes_of(record)
        counts = self._part(context, record, 0, lambda content: counts_of(content, len(modes), count))
        errors: NDArray[np.int32] = counts[modes.index(mode)]
        return errors

    def texts(self, context: Any, found: ValidationSet, step: int, mode: str) -> list[str]:
        """The hypothesis of each utterance at a step."""
        record = found.hypotheses[step]
        texts = self._part(context, record, 1 + modes_of(record).index(mode), texts_of)
        if len(texts) != len(self.utterances(context, found, step).ids):
            raise UnreadableError("There are not as many texts as utterances.")
        return texts

    def samples(self, context: Any, record: Record | None) -> dict[str, dict[str, Any]]:
        """The entries of a record of recordings or alignments, by id of the utterance."""
        return {} if record is None else self._part(context, record, 0, entries_of)

    def part(self, context: Any, record: Record, number: Any, packed: bool = True) -> bytes:
        """The bytes of one part of a record."""
        return self._part(context, record, number, unpack if packed else bytes)

    def _part(self, context: Any, record: Record, number: Any, read: Callable[[bytes], T]) -> T:
        if not isinstance(number, int) or not 0 <= number < len(record.parts):
            raise UnreadableError(f"A record has {len(record.parts)} parts, but part {number!r} was asked for.")
        key = (record.parts[number], record.wall_time)
        cached = self._cache.get(key)
        if cached is None:
            content = self._provider.read_blob(context, blob_key=record.parts[number])
            cached = read(content)
            self._cache.put(key, cached, 8 * len(content))
        return cached  # type: ignore[no-any-return]

    def _read_index(self, context: Any) -> Index:
        asked = {"experiment_id": self._experiment, "plugin_name": PLUGIN}
        listed = self._provider.list_blob_sequences(context, **asked)
        read = self._provider.read_blob_sequences(context, downsample=1, **asked)
        index: Index = {}
        for run, tags in read.items():
            for record in _records(listed.get(run, {}), tags):
                _add_record(record, index.setdefault(run, {}).setdefault(record.header["set"], ValidationSet()))
        for found in (found for sets in index.values() for found in sets.values()):
            found.hypotheses = _remove_discarded(found.hypotheses)
        with_steps = {run: {name: found for name, found in sets.items() if found.steps} for run, sets in index.items()}
        return {run: with_steps[run] for run in sorted(with_steps, key=lambda run: run.split("/")) if with_steps[run]}


def modes_of(record: Record) -> list[str]:
    """The ways of decoding whose texts a record has."""
    modes = record.header.get("modes")
    return [str(mode) for mode in modes] if isinstance(modes, list) else []


def _records(listed: dict[str, Any], read: dict[str, Any]) -> Iterator[Record]:
    for tag, events in read.items():
        if tag not in listed or not events:
            continue
        try:
            header = header_of(listed[tag].plugin_content)
        except UnreadableError:
            continue  # of a later version or another program: the readable records are still shown
        yield Record(header, events[-1].wall_time, tuple(each.blob_key for each in events[-1].values))


def _add_record(record: Record, found: ValidationSet) -> None:
    kind, step = record.header.get("kind"), record.header.get("step")
    if kind == "utterances":
        found.utterances[str(record.header.get("key"))] = record
    elif kind == "recordings":
        found.recordings = record
    elif kind == "heard" and isinstance(step, int) and modes_of(record):
        found.hypotheses[step] = record
    elif kind == "alignments" and isinstance(step, int):
        found.alignments[step] = record


def _remove_discarded(validations: dict[int, Record]) -> dict[int, Record]:
    """The validations that led to the newest one: a resumed run drops those after its checkpoint.

    The event files have only these, but a TensorBoard that was started earlier may still know the others.
    """
    kept: dict[int, Record] = {}
    step: Any = max(validations, key=lambda each: (validations[each].wall_time, each), default=None)
    while isinstance(step, int) and step in validations and step not in kept:
        kept[step] = validations[step]
        step = validations[step].header.get("previous", step)
    if isinstance(step, int):  # the previous validation is missing: all earlier ones are kept
        kept |= {each: record for each, record in validations.items() if each < step}
    return kept


class _Cache:
    """Keeps the values that were used last, up to a size in bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._kept: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Any) -> Any:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Any, value: Any, size: int) -> None:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = value, size
                self._size += size
            while self._size > self._most and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1][1]
