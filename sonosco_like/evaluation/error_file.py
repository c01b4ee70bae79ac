"""An evaluation as the error file that users of Kaldi and icefall know: everything, as text to search in."""

from __future__ import annotations

from collections.abc import Iterator

from sonosco_like.evaluation.evaluation import Evaluation
from sonosco_like.evaluation.results import Result

_EMPTY = "*"


def error_lines(evaluation: Evaluation) -> Iterator[str]:
    """The lines of the file: the rate, each utterance with its errors marked, then the lists by frequency."""
    counts = evaluation.words
    correct = counts.reference_length - counts.substitutions - counts.deletions
    yield f"%WER = {100 * evaluation.wer:.2f}"
    yield (
        f"Errors: {counts.insertions} insertions, {counts.deletions} deletions, {counts.substitutions} substitutions, "
        f"over {counts.reference_length} reference words ({correct} correct)"
    )
    yield "Sections below: PER-UTT DETAILS, SUBSTITUTIONS, DELETIONS, INSERTIONS, PER-WORD STATS"
    yield ""
    yield "PER-UTT DETAILS: corr or (ref->hyp)"
    yield from map(_utterance, evaluation.results)
    yield ""
    yield "SUBSTITUTIONS: count ref -> hyp"
    confusions = evaluation.confusions
    yield from (f"{count} {said} -> {heard}" for (said, heard), count in confusions.substitutions.most_common())
    yield ""
    yield "DELETIONS: count ref"
    yield from (f"{count} {word}" for word, count in confusions.deletions.most_common())
    yield ""
    yield "INSERTIONS: count hyp"
    yield from (f"{count} {word}" for word, count in confusions.insertions.most_common())
    yield ""
    yield "PER-WORD STATS: word  corr tot_errs count_in_ref count_in_hyp"
    words = sorted(confusions.words.items(), key=lambda item: (-item[1].errors, item[0]))
    yield from (f"{word}   {each.correct} {each.errors} {each.said} {each.heard}" for word, each in words)


def _utterance(result: Result) -> str:
    parts = []
    for edit in result.alignment.edits:
        said, heard = edit.reference or _EMPTY, edit.hypothesis or _EMPTY
        parts.append(said if edit.kind == "equal" else f"({said}->{heard})")
    return f"{result.id}:\t{' '.join(parts)}"
