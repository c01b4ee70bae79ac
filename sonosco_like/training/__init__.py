"""The trainer with its loop, and the experiment, which trains in a run folder.

Its names are imported when they are first used: a trainer needs neither the experiment nor our data and models.
"""

from typing import TYPE_CHECKING

from sonosco_like.deferred_imports import lazy

if TYPE_CHECKING:
    from sonosco_like.training.experiment import Experiment, read_experiment
    from sonosco_like.training.guard import NonFiniteLossError
    from sonosco_like.training.measures import PerformanceMeasures
    from sonosco_like.training.randomness import seed_everything
    from sonosco_like.training.resume import open_run
    from sonosco_like.training.saver import CheckpointSaver, WeightAverage
    from sonosco_like.training.trainer import ModelTrainer

__all__ = [
    "CheckpointSaver", "Experiment", "ModelTrainer", "NonFiniteLossError", "PerformanceMeasures",
    "WeightAverage", "open_run", "read_experiment", "seed_everything",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "experiment": "Experiment read_experiment",
        "guard": "NonFiniteLossError",
        "measures": "PerformanceMeasures",
        "randomness": "seed_everything",
        "resume": "open_run",
        "saver": "CheckpointSaver WeightAverage",
        "trainer": "ModelTrainer",
    },
)
