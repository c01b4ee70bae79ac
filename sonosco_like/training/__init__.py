"""The loop, the experiment around it, and the folder in which a run is found again."""

from sonosco_like.training.experiment import Experiment, read_experiment
from sonosco_like.training.guard import NonFiniteLossError
from sonosco_like.training.measures import PerformanceMeasures
from sonosco_like.training.randomness import seed_everything
from sonosco_like.training.resume import open_run
from sonosco_like.training.saver import CheckpointSaver
from sonosco_like.training.trainer import ModelTrainer
from sonosco_like.training.used_weights import WeightAverage

__all__ = [
    "CheckpointSaver", "Experiment", "ModelTrainer", "NonFiniteLossError", "PerformanceMeasures",
    "WeightAverage", "open_run", "read_experiment", "seed_everything",
]  # fmt: skip
