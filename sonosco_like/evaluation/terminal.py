"""An evaluation as tables for a terminal, which can be read without colours too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Group as Together
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sonosco_like.edits import Edit
from sonosco_like.evaluation.bootstrap import Comparison
from sonosco_like.evaluation.evaluation import Evaluation
from sonosco_like.evaluation.results import Confusions, Group, Result, worst
from sonosco_like.evaluation.tuning import Tuning

_MOST_GROUPS, _MOST_CONFUSIONS = 10, 10
_STYLES = {"equal": "", "substitution": "yellow", "deletion": "red", "insertion": "magenta"}
_NOTHING = "*"


def summary(
    evaluation: Evaluation,
    title: str,
    width: int,
    most_worst: int,
    comparisons: Sequence[Comparison] = (),
    columns: Mapping[str, Evaluation] | None = None,
) -> Iterator[RenderableType]:
    """The parts to print: rates, comparisons, breakdowns, confusions and the worst utterances."""
    yield _rates(evaluation, title)
    if columns is not None and len(columns) > 1:
        yield _columns(columns)
    yield from (Text(comparison.in_words(), style="bold") for comparison in comparisons)
    if len(evaluation.by_length) > 1:
        yield _groups("by length", evaluation.by_length)
    if len(evaluation.by_speaker) > 1:
        yield _groups("by speaker, the highest error rate first", evaluation.by_speaker)
    if evaluation.words.errors:
        yield _confusions(evaluation.confusions)
        chosen = worst(evaluation.results, most_worst)
        if chosen:
            yield Together(Text("worst utterances\n", style="bold"), *(_worst(result, width) for result in chosen))
    if evaluation.unusable:
        yield _unusable(evaluation)


def _rates(evaluation: Evaluation, title: str) -> Table:
    words, level = evaluation.words, f"{evaluation.level:.0%}"
    table = _table(title, "", "rate", f"{level} interval", "errors", "of")
    wrong = sum(result.is_wrong for result in evaluation.results)
    lines = (
        ("wer", "word error rate", evaluation.wer, words.errors, f"{words.reference_length:,} words"),
        ("wer_by_speaker", "  drawing speakers", evaluation.wer, words.errors,
         f"{len(evaluation.by_speaker):,} speakers"),
        ("cer", "character error rate", evaluation.cer, evaluation.characters.errors,
         f"{evaluation.characters.reference_length:,} characters"),
        ("ser", "utterances with errors", evaluation.ser, wrong, f"{len(evaluation.results):,} utterances"),
    )  # fmt: skip
    for name, label, rate, errors, over in lines:
        interval = evaluation.intervals.get(name)
        if name == "wer_by_speaker" and interval is None:
            continue
        span = f"{interval.low:.2%} to {interval.high:.2%}" if interval else "-"
        table.add_row(label, f"{rate:.2%}", span, f"{errors:,}", over)
    kinds = f"{words.substitutions:,} substitutions, {words.deletions:,} deletions, {words.insertions:,} insertions"
    factor = evaluation.real_time_factor
    speed = f"; real-time factor {factor:.3f}" if factor is not None else ""
    audio = f"{evaluation.seconds / 60:.1f} minutes of audio{speed}"
    table.caption = f"{kinds}\n{audio}\nnormalizer: {evaluation.normalizer}"
    table.caption_justify = "left"
    return table


def _columns(columns: Mapping[str, Evaluation]) -> Table:
    table = _table("all predictions", "", *Evaluation.HEADS)
    for name, evaluation in columns.items():
        table.add_row(Text(name), *evaluation.row())
    return table


def tuning_summary(tuning: Tuning, manifest: str) -> Iterator[RenderableType]:
    """The best weights that were tried, and how to use them."""
    table = _table(f"the best of {len(tuning.trials)} trials on {manifest}", "weight", "word bonus", "WER", "CER")
    for row in tuning.rows():
        table.add_row(*row)
    yield table
    if not tuning.helps:
        yield Text(f"No weight of this language model gives fewer errors on {manifest}. Decode without it.")
        return
    yield Text(f"These weights were chosen on {manifest}, so its rates above are too good. On other data use them with")
    yield Text(f"  {tuning.options()}\nor in a config with\n  {tuning.override()}")


def _groups(title: str, groups: Sequence[Group]) -> Table:
    hidden = len(groups) - _MOST_GROUPS
    table = _table(title, "", "utterances", "minutes", "words", "S", "D", "I", "WER")
    for group in groups[:_MOST_GROUPS]:
        table.add_row(group.name, *group.row())
    if hidden > 0:
        table.caption = f"and {hidden:,} more; --json and --html have them all"
        table.caption_justify = "left"
    return table


def _confusions(confusions: Confusions) -> Table:
    table = _table("most frequent errors", "times", "reference", "hypothesis")
    both = [(count, *pair) for pair, count in confusions.substitutions.items()]
    both += [(count, word, "-") for word, count in confusions.deletions.items()]
    both += [(count, "-", word) for word, count in confusions.insertions.items()]
    for count, reference, hypothesis in sorted(both, key=lambda each: (-each[0], each[1:]))[:_MOST_CONFUSIONS]:
        table.add_row(str(count), Text(reference), Text(hypothesis))
    return table


def _worst(result: Result, width: int) -> Text:
    text = Text(f"{result.in_words}\n")
    for row in rows_of(result, width - len("  hypothesis  ")):
        for label, part in (("reference ", "reference"), ("hypothesis", "hypothesis"), (" " * 10, "mark")):
            text.append(f"  {label}  ", style="dim")
            for column in row:
                text.append(getattr(column, part), style=_STYLES[column.kind])
                text.append(" ")
            text.rstrip()
            text.append("\n")
    return text


def _unusable(evaluation: Evaluation) -> Text:
    count = len(evaluation.unusable)
    text = Text(f"{count} utterances could not be used, and are in no rate:\n", style="bold red")
    for reason in evaluation.unusable.values():
        text.append(f"  {reason}\n", style="not bold default")
    return text


def _table(title: str, *columns: str) -> Table:
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE, title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    return table


@dataclass(frozen=True, slots=True)
class Column:
    """One place of an alignment; all its parts have the same width."""

    reference: str
    hypothesis: str
    mark: str
    kind: str


def rows_of(result: Result, width: int) -> Iterator[list[Column]]:
    """The alignment of an utterance in rows of at most this width, unless a single word is wider."""
    row: list[Column] = []
    used = 0
    for column in map(_column, result.alignment.edits):
        needed = cell_len(column.reference) + 1
        if row and used + needed > width:
            yield row
            row, used = [], 0
        row.append(column)
        used += needed
    if row:
        yield row


def _column(edit: Edit) -> Column:
    reference, hypothesis = edit.reference or "", edit.hypothesis or ""
    width = max(cell_len(reference), cell_len(hypothesis))
    parts = (reference or _NOTHING * width, hypothesis or _NOTHING * width, edit.mark)
    reference, hypothesis, mark = (part + " " * (width - cell_len(part)) for part in parts)
    return Column(reference, hypothesis, mark, edit.kind)
