"""Error rates of a recogniser, their confidence intervals, and where the errors are."""

from sonosco_like.evaluation.bootstrap import Comparison, Interval, compare, interval_of, resampled_rates
from sonosco_like.evaluation.evaluation import Evaluation, Normalizer, find_normalizer, results_of, training_normalizer
from sonosco_like.evaluation.evaluator import ModelEvaluator
from sonosco_like.evaluation.results import Confusions, Group, Result
from sonosco_like.evaluation.tuning import Tuning, tune_language_model

__all__ = [
    "Comparison",
    "Confusions",
    "Evaluation",
    "Group",
    "Interval",
    "ModelEvaluator",
    "Normalizer",
    "Result",
    "Tuning",
    "compare",
    "find_normalizer",
    "interval_of",
    "resampled_rates",
    "results_of",
    "training_normalizer",
    "tune_language_model",
]
