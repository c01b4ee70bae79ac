"""An evaluation as one HTML file: no script, nothing from elsewhere, and everything that was said escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from sonosco_like.evaluation.breakdown import Group
from sonosco_like.evaluation.comparison import Comparison
from sonosco_like.evaluation.evaluation import Evaluation
from sonosco_like.evaluation.results import Result, worst
from sonosco_like.metrics import Edit

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --dim: #667080; --line: #dfe3e8; --bar: #4878a8;
  --sub: #9a6700; --del: #cf222e; --ins: #8250df; --card: #f5f7f9 }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e6ea; --dim: #99a3b0; --line: #353b44; --bar: #6c9fd0;
  --sub: #e0a83a; --del: #ff7b72; --ins: #c297ff; --card: #1c2128 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 68rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 0 .2rem } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem } .dim { color: var(--dim) }
.cards { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.2rem 0 }
.card { background: var(--card); border-radius: 8px; padding: .7rem 1.1rem; min-width: 7rem }
.card b { display: block; font-size: 1.7rem; font-variant-numeric: tabular-nums }
table { border-collapse: collapse } td, th { padding: .22rem 1rem .22rem 0; text-align: right; vertical-align: top }
td { font-variant-numeric: tabular-nums } td:first-child, th:first-child { text-align: left }
th { color: var(--dim); font-weight: 500; border-bottom: 1px solid var(--line) }
.bar { display: inline-block; height: .7em; background: var(--bar); border-radius: 2px }
.bars td:last-child { text-align: left }
.columns { display: flex; align-items: flex-start; flex-wrap: wrap; gap: 0 4rem }
details { margin: .8rem 0 } summary { cursor: pointer }
.utterance { margin: 0 0 1.1rem } .words { display: flex; flex-wrap: wrap; gap: .1rem .7rem }
.word { display: inline-flex; flex-direction: column; min-height: 3em }
.substitution { color: var(--sub) } .deletion { color: var(--del) } .insertion { color: var(--ins) }
.real { font-weight: 600 } .every td:last-child, .every th:last-child { text-align: left }
"""
_MOST_WORST, _MOST_LISTED = 50, 30


def page(evaluation: Evaluation, title: str, comparison: Comparison | None = None) -> str:
    """The whole page."""
    body = "\n".join(_sections(evaluation, title, comparison))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _sections(evaluation: Evaluation, title: str, comparison: Comparison | None) -> Iterator[str]:
    factor = evaluation.real_time_factor
    speed = f", real-time factor {factor:.3f}" if factor is not None else ""
    yield f"<h1>{escape(title)}</h1>"
    yield (
        f'<p class="dim">{len(evaluation.results):,} utterances, {evaluation.seconds / 60:.1f} minutes of audio, '
        f"{len(evaluation.by_speaker) or 'unknown'} speakers{speed}</p>"
    )
    yield f'<div class="cards">{"".join(_cards(evaluation))}</div>'
    if comparison is not None:
        yield f'<p class="real">{escape(comparison.in_words())}</p>'
    if evaluation.unusable:
        items = "".join(f"<li>{escape(reason)}</li>" for reason in evaluation.unusable.values())
        yield f"<h2>{len(evaluation.unusable)} utterances could not be used</h2><ul>{items}</ul>"
    yield f"<h2>By length</h2>{_groups(evaluation.by_length)}"
    if evaluation.by_speaker:
        yield f"<h2>By speaker</h2>{_groups(evaluation.by_speaker)}"
    if evaluation.words.errors:
        yield f'<h2>Most frequent errors</h2><div class="columns">{"".join(_confusions(evaluation))}</div>'
    chosen = worst(evaluation.results, _MOST_WORST)
    if chosen:
        legend = "said above, heard below"
        yield f'<h2>Worst utterances <span class="dim">({legend})</span></h2>{"".join(map(_utterance, chosen))}'
    yield _every(evaluation.results)


def _cards(evaluation: Evaluation) -> Iterator[str]:
    counts = evaluation.words
    for name, label, rate in (
        ("wer", "word error rate", evaluation.wer),
        ("cer", "character error rate", evaluation.cer),
        ("ser", "utterances with errors", evaluation.ser),
    ):
        interval = evaluation.intervals.get(name)
        span = f"{interval.low:.2%} to {interval.high:.2%}" if interval else "no interval"
        yield f'<div class="card">{label}<b>{rate:.2%}</b><span class="dim">{span}</span></div>'
    for label, count in (
        ("substitutions", counts.substitutions),
        ("deletions", counts.deletions),
        ("insertions", counts.insertions),
    ):
        over = f"of {counts.reference_length:,} words"
        yield f'<div class="card">{label}<b>{count:,}</b><span class="dim">{over}</span></div>'


def _groups(groups: Sequence[Group]) -> str:
    highest = max((group.words.rate for group in groups), default=0.0) or 1.0
    rows = []
    for group in groups:
        counts = group.words
        bar = f'<span class="bar" style="width:{8 * counts.rate / highest:.2f}rem"></span>'
        numbers = (group.utterances, f"{group.seconds / 60:.1f}", counts.reference_length, counts.substitutions,
                   counts.deletions, counts.insertions, f"{counts.rate:.2%}")  # fmt: skip
        rows.append([escape(group.name), *map(str, numbers), bar])
    table = _table(["", "utterances", "minutes", "words", "S", "D", "I", "WER", ""], rows)
    return f'<div class="bars">{table}</div>'


def _confusions(evaluation: Evaluation) -> Iterator[str]:
    confusions = evaluation.confusions
    pairs = confusions.substitutions.most_common(_MOST_LISTED)
    if pairs:
        yield _table(["said", "heard", "times"], [[escape(a), escape(b), str(count)] for (a, b), count in pairs])
    for label, counter in (("missed", confusions.deletions), ("made up", confusions.insertions)):
        rows = [[escape(word), str(count)] for word, count in counter.most_common(_MOST_LISTED)]
        if rows:
            yield _table([label, "times"], rows)


def _utterance(result: Result) -> str:
    words = "".join(map(_word, result.alignment.edits))
    head = f'<span class="dim">{escape(result.in_words)}</span>'
    return f'<div class="utterance">{head}<div class="words">{words}</div></div>'


def _word(edit: Edit) -> str:
    said, heard = (escape(word) if word is not None else "&middot;" for word in (edit.reference, edit.hypothesis))
    if edit.kind == "equal":
        return f'<span class="word"><span>{said}</span></span>'
    return f'<span class="word {edit.kind}" title="{edit.kind}"><span>{said}</span><span>{heard}</span></span>'


def _every(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        texts = f'{escape(result.reference)}<br><span class="dim">{escape(result.hypothesis)}</span>'
        rows.append([escape(result.id), str(result.words.errors), texts])
    table = _table(["", "errors", "said, heard"], rows)
    return f'<details class="every"><summary>All {len(results):,} utterances</summary>{table}</details>'


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
