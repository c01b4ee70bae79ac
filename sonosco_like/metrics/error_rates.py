"""The metrics of speech recognition. A rate is all errors over all words of the corpus, not a mean of rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from sonosco_like.edits import ErrorCounts, characters_of, count_character_errors, count_word_errors
from sonosco_like.errors import UsageError
from sonosco_like.metrics.metric import DecodedBatch, Sums, metric
from sonosco_like.records import END, Batch, Output
from sonosco_like.tensors import length_mask


@metric(lower_is_better=True, over="reference words", needs=("hypotheses",))
def word_error_rate(decoded: DecodedBatch) -> Sums:
    """Substituted, deleted and inserted words per reference word."""
    return error_sums(count_word_errors(decoded.references, decoded.hypotheses))


@metric(lower_is_better=True, over="reference characters", needs=("hypotheses",))
def character_error_rate(decoded: DecodedBatch) -> Sums:
    """Substituted, deleted and inserted characters per reference character, spaces included."""
    return error_sums(count_character_errors(decoded.references, decoded.hypotheses))


@metric(lower_is_better=True, over="utterances", needs=("hypotheses",))
def sentence_error_rate(decoded: DecodedBatch) -> Sums:
    """The share of utterances with any error."""
    return _wrong_sentences(decoded.references, decoded.hypotheses)


@metric(lower_is_better=True, over="reference words", needs=("teacher_forced",))
def teacher_forced_word_error_rate(decoded: DecodedBatch) -> Sums:
    """The word error rate if every step of the decoder is given the reference so far; far lower than in use."""
    return error_sums(count_word_errors(decoded.references, decoded.teacher_forced))


@metric(lower_is_better=True, over="reference characters", needs=("teacher_forced",))
def teacher_forced_character_error_rate(decoded: DecodedBatch) -> Sums:
    """The character error rate if every step of the decoder is given the reference so far."""
    return error_sums(count_character_errors(decoded.references, decoded.teacher_forced))


@metric(lower_is_better=True, over="utterances", needs=("teacher_forced",))
def teacher_forced_sentence_error_rate(decoded: DecodedBatch) -> Sums:
    """The share of utterances with any error if every step of the decoder is given the reference so far."""
    return _wrong_sentences(decoded.references, decoded.teacher_forced)


@metric(lower_is_better=False, over="tokens")
def token_accuracy(decoded: DecodedBatch) -> Sums:
    """The share of labels, END included, that the teacher-forced decoder ranks first; costs no decoding."""
    return matching_tokens(decoded.output, decoded.batch)


def error_sums(counts: ErrorCounts) -> Sums:
    """Error counts as sums."""
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


def teacher_forced_texts(output: Output, batch: Batch, text_of: Callable[[Sequence[int]], str]) -> list[str]:
    """The text of each utterance up to the decoder's END; `text_of` turns labels into text."""
    best_BU = attention_logits(output).argmax(-1).tolist()
    lengths_B = (batch.label_lengths_B + 1).tolist()
    return [text_of(_until_end(best_U[:length])) for best_U, length in zip(best_BU, lengths_B, strict=True)]


def matching_tokens(output: Output, batch: Batch) -> Sums:
    """The number of labels, END included, that the decoder ranks first; it stays on the device."""
    best_BU, lengths_B = attention_logits(output).argmax(-1), batch.label_lengths_B
    labels_match_BU = (best_BU[:, :-1] == batch.labels_BU) & length_mask(lengths_B, batch.labels_BU.shape[1])
    ends_match_B1 = best_BU.gather(1, lengths_B.unsqueeze(1)) == END
    return Sums(labels_match_BU.sum() + ends_match_B1.sum(), lengths_B.sum() + len(batch))


def attention_logits(output: Output) -> Tensor:
    """The teacher-forced logits, which a pure CTC model does not have."""
    if output.attention_logits_BUV is None:
        raise UsageError(
            "Teacher-forced measures need a model with an attention decoder, but this one gave no attention logits. "
            "Use word_error_rate or character_error_rate, which decode freely."
        )
    return output.attention_logits_BUV


def _until_end(labels: list[int]) -> list[int]:
    return labels[: labels.index(END)] if END in labels else labels
