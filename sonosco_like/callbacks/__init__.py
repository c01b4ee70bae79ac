"""What listens to a run: callbacks that stop it, steer it, watch it and write it down."""

from sonosco_like.callbacks.attention import DisableSoftWindowAttention
from sonosco_like.callbacks.benchmark_log import BenchmarkLog
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
from sonosco_like.callbacks.gradients import GradMonitor, LayerwiseGradientNorm
from sonosco_like.callbacks.history import Curve, HistoryRecorder
from sonosco_like.callbacks.learning_rates import (
    ReduceLROnPlateau,
    ScheduledLearningRateReduction,
    StepwiseLearningRateReduction,
)
from sonosco_like.callbacks.logging_measures import LogMeasures
from sonosco_like.callbacks.media import Audio, Image
from sonosco_like.callbacks.monitors import LRMonitor, MemoryMonitor
from sonosco_like.callbacks.plots import HistoryPlots
from sonosco_like.callbacks.progress import PrintMetrics, ProgressBar
from sonosco_like.callbacks.report import RunReport
from sonosco_like.callbacks.speed import EpochTimeEstimate, SpeedMonitor
from sonosco_like.callbacks.stopping import AllPredictionsSame, EarlyStopping, TerminateOnNaN, ThresholdStopper
from sonosco_like.callbacks.tensorboard import TensorBoardCallback
from sonosco_like.callbacks.watching import Watcher

__all__ = [
    "AllPredictionsSame", "Audio", "BenchmarkLog", "ConsoleLog", "CsvFile", "Curve", "Destination",
    "DisableSoftWindowAttention", "EarlyStopping", "EpochTimeEstimate", "EvaluationReport", "GradMonitor",
    "HistoryPlots", "HistoryRecorder", "Image", "LRMonitor", "LayerwiseGradientNorm", "LogMeasures", "MemoryMonitor",
    "MetricsFile", "MlflowDestination", "ModelCheckpoint", "PrintMetrics", "ProgressBar", "ReduceLROnPlateau",
    "RunReport", "ScheduledLearningRateReduction", "SpeedMonitor", "StepwiseLearningRateReduction",
    "TensorBoardCallback", "TerminateOnNaN", "ThresholdStopper", "WandbDestination", "Watcher",
]  # fmt: skip
