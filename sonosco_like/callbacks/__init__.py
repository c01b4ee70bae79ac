"""Callbacks: they stop a run, steer it, watch it, and write down what it logs."""

from sonosco_like.callbacks.benchmark_log import BenchmarkLog
from sonosco_like.callbacks.console import ConsoleLog, PrintMetrics, ProgressBar
from sonosco_like.callbacks.destination import Audio, DashboardData, Destination, Image, Markdown
from sonosco_like.callbacks.export import ExportForInference
from sonosco_like.callbacks.history import Curve, HistoryRecorder
from sonosco_like.callbacks.learning_rates import (
    ReduceLROnPlateau,
    ScheduledLearningRateReduction,
    StepwiseLearningRateReduction,
)
from sonosco_like.callbacks.measures import FollowsMeasure
from sonosco_like.callbacks.model_checkpoint import CheckpointAverage, ModelCheckpoint
from sonosco_like.callbacks.monitors import (
    CallbackTimes,
    GradMonitor,
    LayerwiseGradientNorm,
    LogMeasures,
    LRMonitor,
    MemoryMonitor,
)
from sonosco_like.callbacks.phases import DisableSoftWindowAttention, FreezeParameters
from sonosco_like.callbacks.plots import HistoryPlots
from sonosco_like.callbacks.report import EvaluationReport, RunReport
from sonosco_like.callbacks.row_files import CsvFile, MetricsFile
from sonosco_like.callbacks.speed import EpochTimeEstimate, SpeedMonitor
from sonosco_like.callbacks.stopping import (
    AllPredictionsSame,
    EarlyStopping,
    LimitBatches,
    TerminateOnNaN,
    ThresholdStopper,
)
from sonosco_like.callbacks.tensorboard import TensorBoardCallback
from sonosco_like.callbacks.text_comparison import (
    LasTextComparisonCallback,
    TbTeacherForcingTextComparisonCallback,
    TbTextComparisonCallback,
    TranscriptDashboard,
)
from sonosco_like.callbacks.tracking_services import MlflowDestination, WandbDestination

__all__ = [
    "AllPredictionsSame",
    "Audio",
    "BenchmarkLog",
    "CallbackTimes",
    "CheckpointAverage",
    "ConsoleLog",
    "CsvFile",
    "Curve",
    "DashboardData",
    "Destination",
    "DisableSoftWindowAttention",
    "EarlyStopping",
    "EpochTimeEstimate",
    "EvaluationReport",
    "ExportForInference",
    "FollowsMeasure",
    "FreezeParameters",
    "GradMonitor",
    "HistoryPlots",
    "HistoryRecorder",
    "Image",
    "LRMonitor",
    "LasTextComparisonCallback",
    "LayerwiseGradientNorm",
    "LimitBatches",
    "LogMeasures",
    "Markdown",
    "MemoryMonitor",
    "MetricsFile",
    "MlflowDestination",
    "ModelCheckpoint",
    "PrintMetrics",
    "ProgressBar",
    "ReduceLROnPlateau",
    "RunReport",
    "ScheduledLearningRateReduction",
    "SpeedMonitor",
    "StepwiseLearningRateReduction",
    "TbTeacherForcingTextComparisonCallback",
    "TbTextComparisonCallback",
    "TensorBoardCallback",
    "TerminateOnNaN",
    "ThresholdStopper",
    "TranscriptDashboard",
    "WandbDestination",
]  # fmt: skip
