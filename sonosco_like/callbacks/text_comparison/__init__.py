"""References beside hypotheses of the same utterances at each validation, in TensorBoard's tabs and in ours."""

from sonosco_like.callbacks.text_comparison.dashboard import TranscriptDashboard
from sonosco_like.callbacks.text_comparison.tables import (
    LasTextComparisonCallback,
    TbTeacherForcingTextComparisonCallback,
    TbTextComparisonCallback,
)

__all__ = [
    "LasTextComparisonCallback", "TbTeacherForcingTextComparisonCallback", "TbTextComparisonCallback",
    "TranscriptDashboard",
]  # fmt: skip
