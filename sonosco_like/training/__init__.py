"""The loop, the experiment around it, and the folder in which a run is found again."""

from sonosco_like.training.averaging import WeightAverage
from sonosco_like.training.checkpoints import Checkpoints
from sonosco_like.training.experiment import Experiment, open_run, read_experiment
from sonosco_like.training.measures import PerformanceMeasures
from sonosco_like.training.randomness import seed_everything
from sonosco_like.training.recovering import NonFiniteLossError
from sonosco_like.training.saving import CheckpointSaver
from sonosco_like.training.trainer import ModelTrainer

__all__ = [
    "CheckpointSaver", "Checkpoints", "Experiment", "ModelTrainer", "NonFiniteLossError", "PerformanceMeasures",
    "WeightAverage", "open_run", "read_experiment", "seed_everything",
]  # fmt: skip
