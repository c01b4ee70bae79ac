"""Train speech recognisers from one YAML file, and resume them bit for bit.

This file is the public surface; its names are imported when they are first used, so that importing it is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from sonosco_like.deferred_imports import PROVIDERS, lazy
from sonosco_like.torchaudio_import import install_stand_in
from sonosco_like.version import __version__

if TYPE_CHECKING:
    from sonosco_like.evaluation import ModelEvaluator
    from sonosco_like.events import AbstractCallback, Event, Moment, Stop, TrainerContext, stage
    from sonosco_like.export import export
    from sonosco_like.inference import load_transcriber
    from sonosco_like.losses import Loss
    from sonosco_like.metrics import metric
    from sonosco_like.serialization import diff, dumps, load, loads, save, serializable, state
    from sonosco_like.training import Experiment, ModelTrainer

__all__ = [
    "AbstractCallback", "Event", "Experiment", "Loss", "ModelEvaluator", "ModelTrainer", "Moment", "Stop",
    "TrainerContext", "__version__", "diff", "dumps", "export", "load", "load_transcriber", "loads", "metric", "save",
    "serializable", "stage", "state",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "evaluation": "ModelEvaluator",
        "events": "AbstractCallback Event Moment Stop TrainerContext stage",
        "export": "export",
        "inference": "load_transcriber",
        "losses": "Loss",
        "metrics": "metric",
        "serialization": "diff dumps load loads save serializable state",
        "training": "Experiment ModelTrainer",
    },
)


def _import_catalog() -> None:
    import_module(f"{__name__}.catalog")


def _import_plugins() -> None:
    from importlib.metadata import entry_points  # it takes as long to import as all the rest of this file

    for plugin in entry_points(group="sonosco_like.plugins"):
        plugin.load()


# A name that is not known yet may be one of ours in a module that was not imported, or one of an installed plugin.
PROVIDERS += [_import_catalog, _import_plugins]

# Other packages, such as transformers, import a torchaudio that they find, and fail where it does.
install_stand_in()
