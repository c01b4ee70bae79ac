"""The table of utterances that a request asks for: filtered and sorted as a whole, aligned page by page."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from werkzeug.datastructures import MultiDict

from sonosco_like.edits import Edit, align, character_diff, word_diff, words_of
from sonosco_like.tensorboard_plugin.records import UnreadableError, Utterances
from sonosco_like.tensorboard_plugin.store import Store, ValidationSet, modes_of

SORTS = ("wer", "cer", "change", "duration", "words", "id")
FILTERS = ("all", "wrong", "right", "improved", "worsened", "audio")
_MOST_ROWS, _MOST_LANES, _LONGEST_SEARCH = 200, 12, 200


class BadQueryError(Exception):
    """The request asks for something that does not exist or makes no sense."""


Arguments: TypeAlias = "MultiDict[str, str]"


@dataclass(frozen=True, slots=True)
class Query:
    """Utterances of a validation set at a step; the first run with the first mode decides which, and their order."""

    runs: tuple[str, ...]
    set: str
    step: int
    modes: tuple[str, ...]
    sort: str = "wer"
    descending: bool = True
    filter: str = "all"
    search: str = ""
    offset: int = 0
    limit: int = 50

    @classmethod
    def parse(cls, arguments: Arguments) -> Query:
        """The query in the arguments of an address; raises BadQueryError if it makes no sense."""
        runs, modes = tuple(arguments.getlist("run")), tuple(arguments.getlist("mode"))
        if not runs or not modes or len(runs) * len(modes) > _MOST_LANES:
            raise BadQueryError(f"Ask for at least one run and mode, and for at most {_MOST_LANES} of them together.")
        return cls(
            runs=runs,
            set=arguments.get("set", ""),
            step=whole_number(arguments, "step", 0),
            modes=modes,
            sort=_one_of(arguments.get("sort", "wer"), "sort", SORTS),
            descending=arguments.get("order", "desc") != "asc",
            filter=_one_of(arguments.get("filter", "all"), "filter", FILTERS),
            search=arguments.get("search", "")[:_LONGEST_SEARCH].strip().lower(),
            offset=max(0, whole_number(arguments, "offset", 0)),
            limit=min(_MOST_ROWS, max(1, whole_number(arguments, "limit", 50))),
        )


def whole_number(arguments: Arguments, name: str, default: int) -> int:
    """An argument as a whole number."""
    text = arguments.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise BadQueryError(f"`{name}` must be a whole number, got {text[:40]!r}.") from None


def _one_of(value: str, name: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise BadQueryError(f"`{name}` must be one of {', '.join(known)}, got {value[:40]!r}.")
    return value


def lookup(found: Mapping[str, Any], name: str, what: str) -> Any:
    """The entry of that name; raises BadQueryError if there is none."""
    if name not in found:
        raise BadQueryError(f"There is no {what} {name[:80]!r}.")
    return found[name]


_MOST_POINTS = 120  # of a curve that is 90 pixels wide
_LONGEST_SHOWN = 2000
_MOST_WORDS = 4000  # an alignment takes memory that grows with the square of the length
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class RunView:
    """One run decoded in one way, at its last step up to that of the query."""

    run: str
    mode: str
    step: int
    found: ValidationSet
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
        self.views = list(self._read_views())
        if not self.views:
            raise BadQueryError("None of these runs was validated in this way up to this step.")
        self._first = self.views[0]
        self._sampled = store.samples(context, self._first.found.recordings)
        self._order = self._sort()

    def page(self) -> dict[str, Any]:
        """The rows of the page, and the number of all rows."""
        rows = [self._row(name) for name in self._page_ids()]
        counts = {"total": len(self._order), "all": len(self._first.utterances.ids)}
        return {**counts, "lanes": self._view_headers(), "rows": rows}

    def curves(self) -> dict[str, Any]:
        """The WER at every step of each utterance of the page, for each view; needs the records of all steps."""
        ids = self._page_ids()
        return {"lanes": self._view_headers(), "curves": [self._curves(view, ids) for view in self.views]}

    def csv(self) -> str:
        """The rows of all pages."""
        file = StringIO()
        writer = csv.writer(file)
        names = [f"{view.run} {view.mode} {view.step}" for view in self.views]
        columns = [f"{what} ({name})" for name in names for what in ("hypothesis", "wer", "cer")]
        writer.writerow(["id", "seconds", "reference", *map(_as_text, columns)])
        for place in self._order:
            name = self._first.utterances.ids[place]
            writer.writerow([_as_text(str(cell)) for cell in self._cells(name)])
        return file.getvalue()

    def _read_views(self) -> Iterator[RunView]:
        query, index = self._query, self._store.index(self._context)
        for run in query.runs:
            found = lookup(lookup(index, run, "run"), query.set, "validation set")
            step = found.latest(query.step)
            for mode in query.modes if step is not None else ():
                if mode in modes_of(found.hypotheses[step]):
                    yield self._view(run, mode, step, found)

    def _view(self, run: str, mode: str, step: int, found: ValidationSet) -> RunView:
        store, context = self._store, self._context
        utterances = store.utterances(context, found, step)
        earlier = found.latest(step - 1)
        before = None
        if earlier is not None and mode in modes_of(found.hypotheses[earlier]):
            with suppress(UnreadableError):
                before = self._rates_at(found, earlier, mode, utterances)
        texts, errors = store.texts(context, found, step, mode), store.errors(context, found, step, mode)
        return RunView(run, mode, step, found, utterances, texts, errors, before)

    def _rates_at(self, found: ValidationSet, step: int, mode: str, wanted: Utterances) -> NDArray[np.float64]:
        """The WER of each wanted utterance at another step; NaN if the utterance was not in that validation."""
        there = self._store.utterances(self._context, found, step)
        rates = self._store.errors(self._context, found, step, mode)[:, 0] / there.lengths[:, 0]
        if there is wanted:
            return rates
        places = [there.place.get(name) for name in wanted.ids]
        return np.array([np.nan if place is None else rates[place] for place in places])

    def _sort(self) -> list[int]:
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

    def _view_headers(self) -> list[dict[str, Any]]:
        return [{"run": view.run, "mode": view.mode, "step": view.step} for view in self.views]

    def _page_ids(self) -> list[str]:
        first, last = self._query.offset, self._query.offset + self._query.limit
        return [self._first.utterances.ids[place] for place in self._order[first:last]]

    def _row(self, name: str) -> dict[str, Any]:
        place = self._first.utterances.place[name]
        utterances = self._first.utterances
        return {
            "id": name,
            "reference": _shorten(utterances.references[place]),
            "duration": utterances.durations[place],
            "sampled": name in self._sampled,
            "audio": "audio" in self._sampled.get(name, {}),
            "lanes": [self._cell(view, name) for view in self.views],
        }

    def _cell(self, view: RunView, name: str) -> dict[str, Any] | None:
        place = view.utterances.place.get(name)
        if place is None:
            return None
        reference, text = _shorten(view.utterances.references[place]), _shorten(view.texts[place])
        wer, cer = view.rates[place].tolist()
        before = None if view.before is None else _number(view.before[place])
        return {
            "text": text,
            "words": word_diff(reference, text),
            "characters": character_diff(reference, text),
            "errors": int(view.errors[place, 0]),
            "wer": wer,
            "cer": cer,
            "before": before,
        }

    def _curves(self, view: RunView, ids: list[str]) -> dict[str, list[float | None]]:
        """The WER of each utterance at every step, or at some of very many."""
        steps = [step for step in view.found.steps if view.mode in modes_of(view.found.hypotheses[step])]
        if len(steps) > _MOST_POINTS:
            steps = sorted({steps[place] for place in np.linspace(0, len(steps) - 1, _MOST_POINTS).astype(int)})
        curves: dict[str, list[float | None]] = {name: [] for name in ids}
        for step in steps:
            try:
                there = self._store.utterances(self._context, view.found, step)
                errors = self._store.errors(self._context, view.found, step, view.mode)
            except UnreadableError:  # a gap in the curve; the page of that step shows the error
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
        for view in self.views:
            there = view.utterances.place.get(name)
            if there is None:
                yield from ("", "", "")
            else:
                yield from (view.texts[there], *(f"{rate:.4f}" for rate in view.rates[there]))


def _shorten(text: str) -> str:
    """A text, or the beginning of a very long one; the CSV file has all of it."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _as_text(cell: str) -> str:
    """A cell that no spreadsheet reads as a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def confusions(references: Sequence[str], hypotheses: Sequence[str], most: int) -> dict[str, list[list[Any]]]:
    """The words most often substituted, deleted and inserted, each with its count.

    Only the beginning of a very long text counts, such as that of a decoder that does not find an end.
    """
    counts: Counter[Edit] = Counter()
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        if reference != hypothesis:
            counts.update(align(words_of(reference)[:_MOST_WORDS], words_of(hypothesis)[:_MOST_WORDS]).edits)
    return {f"{kind}s": _most_frequent(counts, kind, most) for kind in ("substitution", "deletion", "insertion")}


def _most_frequent(counts: Counter[Edit], kind: str, most: int) -> list[list[Any]]:
    rows = [
        (-count, edit.reference or "", edit.hypothesis or "") for edit, count in counts.items() if edit.kind == kind
    ]
    return [[reference, hypothesis, -negative] for negative, reference, hypothesis in sorted(rows)[:most]]
