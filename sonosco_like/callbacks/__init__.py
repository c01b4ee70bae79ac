"""What listens to a run: callbacks that stop it, steer it, watch it and write it down."""

from sonosco_like.callbacks.attention import DisableSoftWindowAttention
from sonosco_like.callbacks.benchmark_log import BenchmarkLog
from sonosco_like.callbacks.callback_times import CallbackTimes
from sonosco_like.callbacks.checkpoint_average import CheckpointAverage
from sonosco_like.callbacks.checkpoints import ModelCheckpoint
from sonosco_like.callbacks.destinations import (
    ConsoleLog,
    CsvFile,
    Destination,
    MetricsFile,
    MlflowDestination,
    WandbDestination,
)
from sonosco_like.callbacks.evaluation_reports import EvaluationReport
from sonosco_like.callbacks.export import ExportForInference
from sonosco_like.callbacks.freezing import FreezeParameters
from sonosco_like.callbacks.gradients import GradMonitor, LayerwiseGradientNorm
from sonosco_like.callbacks.history import Curve, HistoryRecorder
from sonosco_like.callbacks.learning_rates import (
    ReduceLROnPlateau,
    ScheduledLearningRateReduction,
    StepwiseLearningRateReduction,
)
from sonosco_like.callbacks.limits import LimitBatches
from sonosco_like.callbacks.logging_measures import LogMeasures
from sonosco_like.callbacks.media import Audio, DashboardData, Image, Markdown
from sonosco_like.callbacks.monitors import LRMonitor, MemoryMonitor
from sonosco_like.callbacks.plots import HistoryPlots
from sonosco_like.callbacks.progress import PrintMetrics, ProgressBar
from sonosco_like.callbacks.report import RunReport
from sonosco_like.callbacks.speed import EpochTimeEstimate, SpeedMonitor
from sonosco_like.callbacks.stopping import AllPredictionsSame, EarlyStopping, TerminateOnNaN, ThresholdStopper
from sonosco_like.callbacks.tensorboard import TensorBoardCallback
from sonosco_like.callbacks.text_comparison import (
    LasTextComparisonCallback,
    TbTeacherForcingTextComparisonCallback,
    TbTextComparisonCallback,
    TranscriptDashboard,
)
from sonosco_like.callbacks.watching import Watcher

__all__ = [
    "AllPredictionsSame", "Audio", "BenchmarkLog", "CallbackTimes", "CheckpointAverage", "ConsoleLog",
    "CsvFile", "Curve", "DashboardData",
    "Destination", "DisableSoftWindowAttention", "EarlyStopping", "EpochTimeEstimate", "EvaluationReport",
    "ExportForInference", "FreezeParameters", "GradMonitor", "HistoryPlots", "HistoryRecorder", "Image", "LRMonitor",
    "LasTextComparisonCallback", "LayerwiseGradientNorm", "LimitBatches", "LogMeasures", "Markdown", "MemoryMonitor",
    "MetricsFile", "MlflowDestination", "ModelCheckpoint", "PrintMetrics", "ProgressBar", "ReduceLROnPlateau",
    "RunReport", "ScheduledLearningRateReduction", "SpeedMonitor", "StepwiseLearningRateReduction",
    "TbTeacherForcingTextComparisonCallback", "TbTextComparisonCallback", "TensorBoardCallback", "TerminateOnNaN",
    "ThresholdStopper", "TranscriptDashboard", "WandbDestination", "Watcher",
]  # fmt: skip
