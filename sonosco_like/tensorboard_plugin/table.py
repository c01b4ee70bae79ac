"""The table of utterances: filtered and sorted as a whole, put into words page by page."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonosco_like.tensorboard_plugin.diffs import character_diff, word_diff
from sonosco_like.tensorboard_plugin.query import BadQueryError, Query, chosen
from sonosco_like.tensorboard_plugin.records import UnreadableError, Utterances
from sonosco_like.tensorboard_plugin.store import SetOfRun, Store, modes_of

_MOST_POINTS = 120  # of a curve that is 90 pixels wide
_LONGEST_SHOWN = 2000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Lane:
    """One run decoded in one way, at the step it has reached."""

    run: str
    mode: str
    step: int
    found: SetOfRun
    utterances: Utterances
    texts: list[str]
    errors: NDArray[np.int32]
    before: NDArray[np.float64] | None

    @property
    def rates(self) -> NDArray[np.float64]:
        """WER and CER of each utterance, as rows of two."""
        return self.errors / self.utterances.lengths


class Table:
    """The answer to a query."""

    def __init__(self, store: Store, context: Any, query: Query) -> None:
        self._store, self._context, self._query = store, context, query
        self.lanes = list(self._lanes())
        if not self.lanes:
            raise BadQueryError("None of these runs was validated in this way up to this step.")
        self._first = self.lanes[0]
        self._sampled = store.samples(context, self._first.found.recordings)
        self._order = self._ordered()

    def page(self) -> dict[str, Any]:
        """The rows that were asked for, and how many there are."""
        rows = [self._row(name) for name in self._page_ids()]
        counts = {"total": len(self._order), "all": len(self._first.utterances.ids)}
        return {**counts, "lanes": self._about_lanes(), "rows": rows}

    def curves(self) -> dict[str, Any]:
        """The WER at every step of each utterance of the page, for each lane; needs the records of all steps."""
        ids = self._page_ids()
        return {"lanes": self._about_lanes(), "curves": [self._curves(lane, ids) for lane in self.lanes]}

    def csv(self) -> str:
        """Every row that was asked for, on whatever page."""
        file = StringIO()
        writer = csv.writer(file)
        names = [f"{lane.run} {lane.mode} {lane.step}" for lane in self.lanes]
        columns = [f"{what} ({name})" for name in names for what in ("heard", "wer", "cer")]
        writer.writerow(["id", "seconds", "said", *map(_harmless, columns)])
        for place in self._order:
            name = self._first.utterances.ids[place]
            writer.writerow([_harmless(str(cell)) for cell in self._cells(name)])
        return file.getvalue()

    def _lanes(self) -> Iterator[Lane]:
        query, index = self._query, self._store.index(self._context)
        for run in query.runs:
            found = chosen(chosen(index, run, "run"), query.set, "validation set")
            step = found.latest(query.step)
            for mode in query.modes if step is not None else ():
                if mode in modes_of(found.heard[step]):
                    yield self._lane(run, mode, step, found)

    def _lane(self, run: str, mode: str, step: int, found: SetOfRun) -> Lane:
        store, context = self._store, self._context
        utterances = store.utterances(context, found, step)
        earlier = found.latest(step - 1)
        before = None
        if earlier is not None and mode in modes_of(found.heard[earlier]):
            with suppress(UnreadableError):
                before = self._rates_at(found, earlier, mode, utterances)
        texts, errors = store.texts(context, found, step, mode), store.errors(context, found, step, mode)
        return Lane(run, mode, step, found, utterances, texts, errors, before)

    def _rates_at(self, found: SetOfRun, step: int, mode: str, wanted: Utterances) -> NDArray[np.float64]:
        """The WER of each wanted utterance at another step; NaN for what was not there then."""
        there = self._store.utterances(self._context, found, step)
        rates = self._store.errors(self._context, found, step, mode)[:, 0] / there.lengths[:, 0]
        if there is wanted:
            return rates
        places = [there.place.get(name) for name in wanted.ids]
        return np.array([np.nan if place is None else rates[place] for place in places])

    def _ordered(self) -> list[int]:
        first, query = self._first, self._query
        rates, lengths = first.rates, first.utterances.lengths
        change = rates[:, 0] - first.before if first.before is not None else np.zeros(len(rates))
        change = np.nan_to_num(change)
        keys = {
            "wer": rates[:, 0],
            "cer": rates[:, 1],
            "change": change,
            "duration": np.array(first.utterances.durations, dtype=np.float64),
            "words": lengths[:, 0].astype(np.float64),
            "id": np.arange(len(rates), dtype=np.float64),
        }
        kept = [place for place in range(len(rates)) if self._is_wanted(place, first.errors[place, 0], change[place])]
        sign = -1.0 if query.descending else 1.0
        return sorted(kept, key=lambda place: (sign * keys[query.sort][place], sign * rates[place, 1], place))

    def _is_wanted(self, place: int, errors: int, change: float) -> bool:
        filtered, utterances = self._query.filter, self._first.utterances
        wanted = {
            "all": True,
            "wrong": errors > 0,
            "right": errors == 0,
            "improved": change < 0,
            "worsened": change > 0,
            "audio": utterances.ids[place] in self._sampled,
        }[filtered]
        search = self._query.search
        if not wanted or not search:
            return bool(wanted)
        texts = (utterances.ids[place], utterances.references[place], self._first.texts[place])
        return any(search in text.lower() for text in texts)

    def _about_lanes(self) -> list[dict[str, Any]]:
        return [{"run": lane.run, "mode": lane.mode, "step": lane.step} for lane in self.lanes]

    def _page_ids(self) -> list[str]:
        first, last = self._query.offset, self._query.offset + self._query.limit
        return [self._first.utterances.ids[place] for place in self._order[first:last]]

    def _row(self, name: str) -> dict[str, Any]:
        place = self._first.utterances.place[name]
        utterances = self._first.utterances
        return {
            "id": name,
            "reference": _shown(utterances.references[place]),
            "duration": utterances.durations[place],
            "sampled": name in self._sampled,
            "audio": "audio" in self._sampled.get(name, {}),
            "lanes": [self._cell(lane, name) for lane in self.lanes],
        }

    def _cell(self, lane: Lane, name: str) -> dict[str, Any] | None:
        place = lane.utterances.place.get(name)
        if place is None:
            return None
        reference, text = _shown(lane.utterances.references[place]), _shown(lane.texts[place])
        wer, cer = lane.rates[place].tolist()
        before = None if lane.before is None else _number(lane.before[place])
        return {
            "text": text,
            "words": word_diff(reference, text),
            "characters": character_diff(reference, text),
            "errors": int(lane.errors[place, 0]),
            "wer": wer,
            "cer": cer,
            "before": before,
        }

    def _curves(self, lane: Lane, ids: list[str]) -> dict[str, list[float | None]]:
        """The WER of each utterance at every step, or at some of very many."""
        steps = [step for step in lane.found.steps if lane.mode in modes_of(lane.found.heard[step])]
        if len(steps) > _MOST_POINTS:
            steps = sorted({steps[place] for place in np.linspace(0, len(steps) - 1, _MOST_POINTS).astype(int)})
        curves: dict[str, list[float | None]] = {name: [] for name in ids}
        for step in steps:
            try:
                there = self._store.utterances(self._context, lane.found, step)
                errors = self._store.errors(self._context, lane.found, step, lane.mode)
            except UnreadableError:  # a gap in the curve; the step itself says what is wrong when it is looked at
                for curve in curves.values():
                    curve.append(None)
                continue
            for name, curve in curves.items():
                place = there.place.get(name)
                curve.append(None if place is None else round(float(errors[place, 0] / there.lengths[place, 0]), 4))
        return curves

    def _cells(self, name: str) -> Iterator[Any]:
        place = self._first.utterances.place[name]
        yield from (name, self._first.utterances.durations[place], self._first.utterances.references[place])
        for lane in self.lanes:
            there = lane.utterances.place.get(name)
            if there is None:
                yield from ("", "", "")
            else:
                yield from (lane.texts[there], *(f"{rate:.4f}" for rate in lane.rates[there]))


def _shown(text: str) -> str:
    """A text, or the beginning of one that nobody would read to its end; files have all of it."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _harmless(cell: str) -> str:
    """A cell that a spreadsheet does not take for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell
