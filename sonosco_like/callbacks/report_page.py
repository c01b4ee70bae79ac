"""The HTML of a report: one file, no scripts, everything a run says escaped."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure

from sonosco_like.metrics import Edit, align, words_of

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; max-width: 1100px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
table { border-collapse: collapse } td, th { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top }
th { color: #656d76; font-weight: 500; border-bottom: 1px solid #d0d7de } td.number { font-variant-numeric: tabular-nums }
.facts { color: #656d76 } .facts b { color: #1f2328; font-weight: 600; margin-right: 1.2rem }
pre { background: #f6f8fa; padding: 1rem; overflow: auto; font-size: 13px; max-height: 32rem } svg { width: 100%; height: auto }
.id { color: #656d76; font-size: 13px; white-space: nowrap } .deletion, .said { color: #cf222e; text-decoration: line-through }
.insertion, .heard { color: #1a7f37; text-decoration: underline } summary { cursor: pointer; font-weight: 600 }
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Row:
    """A measure: its last and its best value, and the step of that."""

    name: str
    last: str
    best: str
    step: int | str


@dataclass(frozen=True, slots=True)
class Utterance:
    """What was said, and what was heard."""

    id: str
    reference: str
    hypothesis: str


@dataclass(frozen=True, slots=True)
class Page:
    """What a report tells."""

    title: str
    facts: Mapping[str, str]
    measures: Sequence[Row]
    figure: Figure | None
    worst: Sequence[Utterance]
    texts: Mapping[str, str | None]
    seconds_in_callbacks: Mapping[str, float]

    def html(self) -> str:
        """The whole page."""
        facts = " ".join(f"{escape(name)} <b>{escape(value)}</b>" for name, value in self.facts.items())
        parts = [
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(self.title)}</title>',
            f"<style>{_STYLE}</style>",
            f'<h1>{escape(self.title)}</h1><p class="facts">{facts}</p>',
            *self._sections(),
        ]
        return "\n".join(parts) + "\n</html>\n"

    def _sections(self) -> Iterable[str]:
        if self.measures:
            rows = ([row.name, row.last, row.best, str(row.step)] for row in self.measures)
            yield "<h2>Measures</h2>" + _table(["", "last", "best", "at step"], rows)
        if self.figure is not None:
            yield "<h2>Curves</h2>" + _svg(self.figure)
        if self.worst:
            lines = "".join(f'<tr><td class="id">{escape(u.id)}</td><td>{_compared(u)}</td></tr>' for u in self.worst)
            said = '<span class="said">said</span>, <span class="heard">heard</span>'
            yield f"<h2>Worst utterances of the last validation ({said})</h2><table>{lines}</table>"
        for title, text in self.texts.items():
            if text is not None:
                yield f"<h2>{escape(title)}</h2><pre>{escape(text)}</pre>"
        if self.seconds_in_callbacks:
            slowest = sorted(self.seconds_in_callbacks.items(), key=lambda item: -item[1])
            rows = ([name, f"{seconds:.2f} s"] for name, seconds in slowest)
            yield f"<details><summary>Time in callbacks</summary>{_table(['', 'seconds'], rows)}</details>"


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(
        "<tr>" + "".join(f'<td class="number">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _compared(utterance: Utterance) -> str:
    edits = align(words_of(utterance.reference), words_of(utterance.hypothesis)).edits
    return " ".join(map(_edit, edits))


def _edit(edit: Edit) -> str:
    if edit.kind == "equal":
        return escape(edit.reference or "")
    said = f'<span class="deletion">{escape(edit.reference)}</span>' if edit.reference is not None else ""
    heard = f'<span class="insertion">{escape(edit.hypothesis)}</span>' if edit.hypothesis is not None else ""
    return f"{said} {heard}".strip()
