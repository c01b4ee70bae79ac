"""The metrics of speech recognition. Rates are of the whole corpus: all errors over all words, not a mean of rates."""

from __future__ import annotations

from collections.abc import Sequence

from sonosco_like.metrics.edits import ErrorCounts, characters_of, count_character_errors, count_word_errors
from sonosco_like.metrics.metric import Judged, metric
from sonosco_like.metrics.running import Sums
from sonosco_like.metrics.teacher_forcing import matching_tokens


@metric(lower_is_better=True, over="reference words", needs=("hypotheses",))
def word_error_rate(judged: Judged) -> Sums:
    """Substituted, deleted and inserted words per word that was said."""
    return error_sums(count_word_errors(judged.references, judged.hypotheses))


@metric(lower_is_better=True, over="reference characters", needs=("hypotheses",))
def character_error_rate(judged: Judged) -> Sums:
    """Substituted, deleted and inserted characters per character that was said, spaces included."""
    return error_sums(count_character_errors(judged.references, judged.hypotheses))


@metric(lower_is_better=True, over="utterances", needs=("hypotheses",))
def sentence_error_rate(judged: Judged) -> Sums:
    """The share of utterances that have any error."""
    return _wrong_sentences(judged.references, judged.hypotheses)


@metric(lower_is_better=True, over="reference words", needs=("teacher_forced",))
def teacher_forced_word_error_rate(judged: Judged) -> Sums:
    """Word errors when every step of the decoder is told the right beginning; far below what is heard in use."""
    return error_sums(count_word_errors(judged.references, judged.teacher_forced))


@metric(lower_is_better=True, over="reference characters", needs=("teacher_forced",))
def teacher_forced_character_error_rate(judged: Judged) -> Sums:
    """Character errors when every step of the decoder is told the right beginning."""
    return error_sums(count_character_errors(judged.references, judged.teacher_forced))


@metric(lower_is_better=True, over="utterances", needs=("teacher_forced",))
def teacher_forced_sentence_error_rate(judged: Judged) -> Sums:
    """The share of utterances with an error although every step of the decoder is told the right beginning."""
    return _wrong_sentences(judged.references, judged.teacher_forced)


@metric(lower_is_better=False, over="tokens")
def token_accuracy(judged: Judged) -> Sums:
    """The share of labels, END included, that the teacher-forced decoder ranks first; costs no decoding."""
    return matching_tokens(judged.output, judged.batch)


def error_sums(counts: ErrorCounts) -> Sums:
    """Error counts in the form in which measures are added up."""
    parts = {
        "substitutions": counts.substitutions,
        "deletions": counts.deletions,
        "insertions": counts.insertions,
    }
    return Sums(counts.errors, counts.reference_length, parts)


def _wrong_sentences(references: Sequence[str], hypotheses: Sequence[str]) -> Sums:
    pairs = zip(references, hypotheses, strict=True)
    wrong = sum(characters_of(reference) != characters_of(hypothesis) for reference, hypothesis in pairs)
    return Sums(wrong, len(references))
