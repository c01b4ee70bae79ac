"""An evaluation as a file: an HTML page, or the error file of Kaldi and icefall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sonosco_like.evaluation.bootstrap import Comparison
from sonosco_like.evaluation.evaluation import Evaluation
from sonosco_like.evaluation.results import Confusions, Result, worst
from sonosco_like.html_page import render_page

_MOST_WORST, _MOST_LISTED = 50, 30
_EMPTY = "*"


def html_page(
    evaluation: Evaluation,
    title: str,
    comparisons: Sequence[Comparison] = (),
    columns: Mapping[str, Evaluation] | None = None,
) -> str:
    """The whole page, without scripts and without anything from the web."""
    return render_page(
        "evaluation.html",
        title=title,
        evaluation=evaluation,
        comparisons=comparisons,
        column_heads=("", *Evaluation.HEADS),
        columns=[(name, *each.row()) for name, each in (columns or {}).items()],
        summary=_summary(evaluation),
        rates=list(_rates(evaluation)),
        confusions=list(_confusions(evaluation.confusions)),
        worst=worst(evaluation.results, _MOST_WORST),
    )


def _summary(evaluation: Evaluation) -> str:
    factor = evaluation.real_time_factor
    return (
        f"{len(evaluation.results):,} utterances, {evaluation.seconds / 60:.1f} minutes of audio, "
        f"{len(evaluation.by_speaker) or 'unknown'} speakers"
        + (f", real-time factor {factor:.3f}" if factor is not None else "")
        + f"; texts in the form of the normalizer {evaluation.normalizer}"
    )


def _rates(evaluation: Evaluation) -> Iterator[tuple[str, float, str]]:
    """Name, value and interval of each rate."""
    rates = {"wer": "word error rate", "cer": "character error rate", "ser": "utterances with errors"}
    for name, label in rates.items():
        interval = evaluation.intervals.get(name)
        span = f"{interval.low:.2%} to {interval.high:.2%}" if interval else "no interval"
        yield label, getattr(evaluation, name), span


def _confusions(confusions: Confusions) -> Iterator[tuple[list[str], list[tuple[str | int, ...]]]]:
    """Heads and rows of the tables of frequent errors."""
    pairs = confusions.substitutions.most_common(_MOST_LISTED)
    yield ["reference", "hypothesis", "times"], [(*pair, count) for pair, count in pairs]
    yield ["deleted", "times"], list(confusions.deletions.most_common(_MOST_LISTED))
    yield ["inserted", "times"], list(confusions.insertions.most_common(_MOST_LISTED))


def error_lines(evaluation: Evaluation) -> Iterator[str]:
    """The lines of the error file: the rate, each utterance with its errors marked, then the lists by frequency."""
    total = evaluation.words
    correct = total.reference_length - total.substitutions - total.deletions
    yield f"%WER = {100 * evaluation.wer:.2f}"
    yield (
        f"Errors: {total.insertions} insertions, {total.deletions} deletions, {total.substitutions} substitutions, "
        f"over {total.reference_length} reference words ({correct} correct)"
    )
    yield "Sections below: PER-UTT DETAILS, SUBSTITUTIONS, DELETIONS, INSERTIONS, PER-WORD STATS"
    yield ""
    yield "PER-UTT DETAILS: corr or (ref->hyp)"
    yield from map(_marked_words, evaluation.results)
    yield ""
    yield "SUBSTITUTIONS: count ref -> hyp"
    confusions = evaluation.confusions
    yield from (
        f"{count} {reference} -> {hypothesis}"
        for (reference, hypothesis), count in confusions.substitutions.most_common()
    )
    yield ""
    yield "DELETIONS: count ref"
    yield from (f"{count} {word}" for word, count in confusions.deletions.most_common())
    yield ""
    yield "INSERTIONS: count hyp"
    yield from (f"{count} {word}" for word, count in confusions.insertions.most_common())
    yield ""
    yield "PER-WORD STATS: word  corr tot_errs count_in_ref count_in_hyp"
    words = sorted(confusions.words.items(), key=lambda item: (-item[1].errors, item[0]))
    yield from (
        f"{word}   {each.correct} {each.errors} {each.in_references} {each.in_hypotheses}" for word, each in words
    )


def _marked_words(result: Result) -> str:
    parts = (
        edit.reference if edit.kind == "equal" else f"({edit.reference or _EMPTY}->{edit.hypothesis or _EMPTY})"
        for edit in result.alignment.edits
    )
    return f"{result.id}:\t{' '.join(map(str, parts))}"
