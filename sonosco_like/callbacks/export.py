"""What is left of a training for those who only want to use the model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from torch import nn

from sonosco_like.callbacks.destinations.destination import WritesFiles
from sonosco_like.events import Moment
from sonosco_like.inference.parts import LOADERS, read_parts
from sonosco_like.inference.saved import SavedTrainer
from sonosco_like.serialization import dumps, save, serializable

logger = logging.getLogger(__name__)

_PARTS = ("features", "normalization", "tokenizer", "cleaner", "max_duration")


@serializable
class HearingParts:
    """What turns recordings into the features of a model, and its labels into text."""

    features: Any = None
    normalization: Any = None
    tokenizer: Any = None
    cleaner: Any = None
    max_duration: float | None = None


@serializable
class HearingLoader:
    """Stands where a trainer has its data loader."""

    dataset: HearingParts


@serializable
class InferenceModel:
    """A trained model with what it needs to hear; each part stands where a saved trainer has it."""

    model: nn.Module
    train_data_loader: HearingLoader
    decoder: Any = None
    averaging: Any = None
    weights: str = "last"


@serializable
class ExportForInference(WritesFiles):
    """Writes what is needed for inference when the training ends, and nothing else, to the folder `path` of the run.

    It hears what the run hears: of the best checkpoint if ModelCheckpoint ranks them, else of the end of the training,
    it takes the model with the weights it is used with (their moving average, if the trainer keeps one and the best
    was not found by the plain ones), the decoder, the features, the normalization and the tokenizer. These are in the
    three files of a checkpoint, about a third of its size with Adam, with no name of the training data in it.
    `sonosco transcribe RUN/inference recording.wav` uses it.
    """

    order: int = 1500
    path: str = "inference"

    def on_attach(self, moment: Moment) -> None:
        """Refuse, before the first batch, a model or a part of it that no file could bring back."""
        dumps(_of_trainer(moment.context, "last"), state=False)

    def on_training_end(self, moment: Moment) -> None:
        """Write the folder."""
        self.write(moment.context)

    def write(self, context: Any) -> Path:
        """Write the folder as of now; returns where it is."""
        place = self.place(context)
        best = _best_checkpoint(context)
        if best is not None:
            self._save(_of_checkpoint(best), place)
        elif (averaging := getattr(context, "averaging", None)) is not None and averaging.weights:
            with averaging.applied(context.model):
                self._save(_of_trainer(context, "averaged"), place)
        else:
            self._save(_of_trainer(context, "last"), place)
        return place

    def _save(self, made: InferenceModel, place: Path) -> None:
        parts = made.train_data_loader.dataset
        if parts.features is None or parts.tokenizer is None:
            logger.warning(
                "ExportForInference finds no `features` and `tokenizer` in the datasets of this trainer: "
                "the model in %s can be loaded, but nothing can be transcribed with it.", place,
            )  # fmt: skip
        save(made, place)


def _best_checkpoint(context: Any) -> Path | None:
    """The checkpoint that the run is used with, if it is another than its end."""
    checkpoints = getattr(context.experiment, "checkpoints", None)
    if checkpoints is None:
        return None
    context.saver.wait()
    best: Path | None = checkpoints.best()
    return best


def _of_checkpoint(folder: Path) -> InferenceModel:
    parts = read_parts(SavedTrainer(folder))
    hearing = HearingParts(**{name: getattr(parts, name) for name in _PARTS})
    loader = HearingLoader(dataset=hearing)
    return InferenceModel(model=parts.model, train_data_loader=loader, decoder=parts.decoder, weights=parts.weights)


def _of_trainer(context: Any, weights: str) -> InferenceModel:
    loader = HearingLoader(dataset=_hearing_parts(context))
    return InferenceModel(model=context.model, train_data_loader=loader, decoder=context.decoder, weights=weights)


def _hearing_parts(context: Any) -> HearingParts:
    """Of the first loader whose dataset has a tokenizer."""
    datasets = (getattr(getattr(context, name, None), "dataset", None) for name in LOADERS)
    dataset = next((each for each in datasets if getattr(each, "tokenizer", None) is not None), None)
    return HearingParts(**{name: getattr(dataset, name, None) for name in _PARTS})
