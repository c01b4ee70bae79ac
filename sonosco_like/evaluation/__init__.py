"""How good a recogniser is, how sure that is, and where its errors are."""

from sonosco_like.evaluation.bootstrap import Interval, interval_of, resampled_rates
from sonosco_like.evaluation.breakdown import Confusions, Group
from sonosco_like.evaluation.comparison import Comparison, compare
from sonosco_like.evaluation.evaluation import Evaluation, results_of
from sonosco_like.evaluation.evaluator import ModelEvaluator
from sonosco_like.evaluation.results import Result

__all__ = [
    "Comparison",
    "Confusions",
    "Evaluation",
    "Group",
    "Interval",
    "ModelEvaluator",
    "Result",
    "compare",
    "interval_of",
    "resampled_rates",
    "results_of",
]
