"""The HTML of a report: one file, no scripts, everything a run says escaped."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from sonosco_like.metrics import Edit, align, count_errors, words_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { --ink: #1f2328; --faint: #59636e; --line: #d1d9e0; --paper: #f6f8fa }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 1100px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem }
p { margin: .3rem 0 } .faint, .facts { color: var(--faint) }
.facts span { display: inline-block; margin-right: 1.4rem } .facts b { color: var(--ink); font-weight: 600 }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0 0 }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .7rem 1.1rem; min-width: 11rem }
.card b { display: block; font-size: 1.7rem; line-height: 1.3; font-variant-numeric: tabular-nums }
.card small { color: var(--faint); display: block }
table { border-collapse: collapse } td, th { padding: .3rem 1.4rem .3rem 0; text-align: left; vertical-align: top }
th { color: var(--faint); font-weight: 500; border-bottom: 1px solid var(--line) }
td { border-bottom: 1px solid #eff2f5 } tr:last-child td { border-bottom: 0 }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.id { color: var(--faint); font-size: 13px; white-space: nowrap }
pre { background: var(--paper); border-radius: 6px; padding: 1rem; overflow: auto; font-size: 13px; max-height: 32rem }
svg { width: 100%; height: auto } details { margin: 1rem 0 } summary { cursor: pointer; font-weight: 600 }
.deletion { color: #cf222e; text-decoration: line-through } .insertion { color: #1a7f37; text-decoration: underline }
@media print { pre { max-height: none; white-space: pre-wrap } .card { break-inside: avoid } }
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A measure on one set of data: its last and its best value, and the step of that; empty if there is no best."""

    measure: str
    data: str
    last: str
    best: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class Utterance:
    """What was said, and what was heard."""

    id: str
    reference: str
    hypothesis: str


@dataclass(frozen=True, slots=True)
class Page:
    """What a report tells: `headlines` large, `measures` in a table, other `values` and `texts` folded away."""

    title: str
    facts: Mapping[str, str]
    headlines: Sequence[Row] = ()
    measures: Sequence[Row] = ()
    values: Mapping[str, str] | None = None
    figure: Figure | None = None
    worst: Sequence[Utterance] = ()
    texts: Mapping[str, str | None] | None = None
    seconds_in_callbacks: Mapping[str, float] | None = None

    def html(self) -> str:
        """The whole page."""
        facts = " ".join(f"<span>{escape(name)} <b>{escape(value)}</b></span>" for name, value in self.facts.items())
        parts = [
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(self.title)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_STYLE}</style>",
            f'<p class="faint">Training report</p><h1>{escape(self.title)}</h1><p class="facts">{facts}</p>',
            *self._sections(),
        ]
        return "\n".join(parts) + "\n</html>\n"

    def _sections(self) -> Iterable[str]:
        if self.headlines:
            yield f'<div class="cards">{"".join(map(_card, self.headlines))}</div>'
        if self.measures:
            rows = ([row.measure, row.data, row.last, row.best, row.step] for row in self.measures)
            yield "<h2>Measures</h2>" + _table(["", "data", "last", "best", "at step"], rows, texts=2)
        if self.figure is not None:
            yield "<h2>Curves</h2>" + _svg(self.figure)
        if self.worst:
            yield _worst(self.worst)
        if self.values:
            yield _folded("Other logged values, as last logged", _table(["", "last"], self.values.items()))
        for title, text in (self.texts or {}).items():
            if text is not None:
                yield _folded(title, f"<pre>{escape(text)}</pre>")
        if self.seconds_in_callbacks:
            slowest = sorted(self.seconds_in_callbacks.items(), key=lambda item: -item[1])
            rows = ([name, f"{seconds:.2f}"] for name, seconds in slowest)
            yield _folded("Time in callbacks", _table(["", "seconds"], rows))


def _card(row: Row) -> str:
    where = f"best, at step {row.step}" if row.step else "last"
    last = f"<small>last {escape(row.last)}</small>" if row.best and row.best != row.last else ""
    name = f"<small>{escape(row.measure)} on {escape(row.data)}</small>"
    return f'<div class="card">{name}<b>{escape(row.best or row.last)}</b><small>{escape(where)}</small>{last}</div>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A table whose first `texts` columns are texts and whose others are numbers."""
    kinds = ["" if place < texts else ' class="number"' for place in range(len(heads))]
    head = "".join(f"<th{kind}>{escape(each)}</th>" for kind, each in zip(kinds, heads, strict=True))
    cells = (zip(kinds, row, strict=True) for row in rows)
    body = ("<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in row) + "</tr>" for row in cells)
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _svg(figure: Figure) -> str:
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "sonosco_like"}):  # the same picture is the same text
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _worst(utterances: Sequence[Utterance]) -> str:
    rows = "".join(
        f'<tr><td class="id">{escape(each.id)}</td><td class="number">{_errors(each)}</td>'
        f"<td>{_compared(each)}</td></tr>"
        for each in utterances
    )
    legend = '<span class="deletion">said, not heard</span>, <span class="insertion">heard, not said</span>'
    head = '<tr><th>utterance</th><th class="number">errors</th><th>text</th></tr>'
    return f'<h2>Worst utterances of the last validation</h2><p class="faint">{legend}</p><table>{head}{rows}</table>'


def _errors(utterance: Utterance) -> str:
    said = words_of(utterance.reference)
    return f"{count_errors(said, words_of(utterance.hypothesis)).errors} in {len(said)} words"


def _compared(utterance: Utterance) -> str:
    edits = align(words_of(utterance.reference), words_of(utterance.hypothesis)).edits
    return " ".join(map(_edit, edits))


def _edit(edit: Edit) -> str:
    if edit.kind == "equal":
        return escape(edit.reference or "")
    said = f'<span class="deletion">{escape(edit.reference)}</span>' if edit.reference is not None else ""
    heard = f'<span class="insertion">{escape(edit.hypothesis)}</span>' if edit.hypothesis is not None else ""
    return f"{said} {heard}".strip()
