"""How good a recogniser is: error rates, alignments, and averages that add up exactly."""

from sonosco_like.metrics.edits import (
    Alignment,
    Edit,
    ErrorCounts,
    align,
    characters_of,
    count_character_errors,
    count_errors,
    count_word_errors,
    words_of,
)
from sonosco_like.metrics.error_rates import (
    character_error_rate,
    error_sums,
    sentence_error_rate,
    teacher_forced_character_error_rate,
    teacher_forced_sentence_error_rate,
    teacher_forced_word_error_rate,
    token_accuracy,
    word_error_rate,
)
from sonosco_like.metrics.metric import Judged, Metric, MetricDescription, Need, describe, measure, metric, needs_of
from sonosco_like.metrics.running import RunningMeasures, Sums
from sonosco_like.metrics.teacher_forcing import teacher_forced_texts

__all__ = [
    "Alignment",
    "Edit",
    "ErrorCounts",
    "Judged",
    "Metric",
    "MetricDescription",
    "Need",
    "RunningMeasures",
    "Sums",
    "align",
    "character_error_rate",
    "characters_of",
    "count_character_errors",
    "count_errors",
    "count_word_errors",
    "describe",
    "error_sums",
    "measure",
    "metric",
    "needs_of",
    "sentence_error_rate",
    "teacher_forced_character_error_rate",
    "teacher_forced_sentence_error_rate",
    "teacher_forced_texts",
    "teacher_forced_word_error_rate",
    "token_accuracy",
    "word_error_rate",
    "words_of",
]
