"""Metrics of a recogniser, and averages that add up exactly."""

from sonosco_like.metrics.error_rates import (
    character_error_rate,
    error_sums,
    sentence_error_rate,
    teacher_forced_character_error_rate,
    teacher_forced_sentence_error_rate,
    teacher_forced_texts,
    teacher_forced_word_error_rate,
    token_accuracy,
    word_error_rate,
)
from sonosco_like.metrics.metric import (
    DecodedBatch,
    Metric,
    MetricDescription,
    Need,
    RunningMeasures,
    Sums,
    description_of,
    measure,
    metric,
    needs_of,
)

__all__ = [
    "DecodedBatch",
    "Metric",
    "MetricDescription",
    "Need",
    "RunningMeasures",
    "Sums",
    "character_error_rate",
    "description_of",
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
]
