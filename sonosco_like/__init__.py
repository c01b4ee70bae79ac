"""Train speech recognisers from one YAML file, and resume them bit for bit.

This file is the public surface; everything it offers is fetched when it is first used, so that importing it is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sonosco_like.providers import PROVIDERS
from sonosco_like.torchaudio_import import install_stand_in
from sonosco_like.version import __version__

if TYPE_CHECKING:
    from sonosco_like.evaluation import ModelEvaluator
    from sonosco_like.events import AbstractCallback, Event, Stop
    from sonosco_like.inference import load_transcriber
    from sonosco_like.serialization import diff, dumps, load, loads, save, serializable, state
    from sonosco_like.training import Experiment, ModelTrainer

__all__ = [
    "AbstractCallback", "Event", "Experiment", "ModelEvaluator", "ModelTrainer", "Stop", "__version__",
    "diff", "dumps", "load", "load_transcriber", "loads", "save", "serializable", "state",
]  # fmt: skip

_HOMES = {
    **dict.fromkeys(["AbstractCallback", "Event", "Stop"], "events"),
    **dict.fromkeys(["diff", "dumps", "load", "loads", "save", "serializable", "state"], "serialization"),
    **dict.fromkeys(["Experiment", "ModelTrainer"], "training"),
    "ModelEvaluator": "evaluation",
    "load_transcriber": "inference",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _import_catalog() -> None:
    import_module(f"{__name__}.catalog")


def _import_plugins() -> None:
    from importlib.metadata import entry_points  # it takes as long to import as all the rest of this file

    for plugin in entry_points(group="sonosco_like.plugins"):
        plugin.load()


# A name that is not known yet may be one of ours whose room was not imported, or one of an installed plugin.
PROVIDERS += [_import_catalog, _import_plugins]

# Other packages, such as transformers, import a torchaudio that they find, and fail where it does.
install_stand_in()
