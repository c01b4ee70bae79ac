"""What a teacher-forced attention output says. Kept apart from decoding: each step has seen the right beginning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.metrics.running import Sums
from sonosco_like.models.masking import length_mask
from sonosco_like.records import END, Batch, Output


def teacher_forced_texts(output: Output, batch: Batch, text_of: Callable[[Sequence[int]], str]) -> list[str]:
    """The text of each utterance up to the END that the decoder wrote; `text_of` turns labels into text."""
    best_BU = attention_logits(output).argmax(-1).tolist()
    lengths_B = (batch.label_lengths_B + 1).tolist()
    return [text_of(_until_end(best_U[:length])) for best_U, length in zip(best_BU, lengths_B, strict=True)]


def matching_tokens(output: Output, batch: Batch) -> Sums:
    """How many labels, END included, are ranked first by the decoder; stays on the device."""
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
