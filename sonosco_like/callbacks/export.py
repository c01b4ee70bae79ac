"""What is left of a training for those who only want to use the model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from torch import nn

from sonosco_like.callbacks.destinations.destination import WritesFiles
from sonosco_like.events import Moment
from sonosco_like.serialization import dumps, save, serializable

logger = logging.getLogger(__name__)

_LOADERS = ("train_data_loader", "val_data_loader", "test_data_loader")


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


@serializable
class ExportForInference(WritesFiles):
    """Writes what is needed for inference when the training ends, and nothing else, to the folder `path` of the run.

    That is the model with its weights (and their moving average, if the trainer keeps one), the decoder, the features,
    the normalization and the tokenizer, in the three files of a checkpoint: about a third of its size with Adam, and no
    name of the training data in it. `sonosco transcribe RUN/inference recording.wav` uses it.
    """

    order: int = 1500
    path: str = "inference"

    def on_attach(self, moment: Moment) -> None:
        """Refuse, before the first batch, a model or a part of it that no file could bring back."""
        dumps(_inference_model(moment.context), state=False)

    def on_training_end(self, moment: Moment) -> None:
        """Write the folder."""
        self.write(moment.context)

    def write(self, context: Any) -> Path:
        """Write the folder as of now; returns where it is."""
        place = self.place(context)
        made = _inference_model(context)
        parts = made.train_data_loader.dataset
        if parts.features is None or parts.tokenizer is None:
            logger.warning(
                "ExportForInference finds no `features` and `tokenizer` in the datasets of this trainer: "
                "the model in %s can be loaded, but nothing can be transcribed with it.", place,
            )  # fmt: skip
        save(made, place)
        return place


def _inference_model(context: Any) -> InferenceModel:
    return InferenceModel(
        model=context.model,
        train_data_loader=HearingLoader(dataset=_hearing_parts(context)),
        decoder=context.decoder,
        averaging=getattr(context, "averaging", None),
    )


def _hearing_parts(context: Any) -> HearingParts:
    """Of the first loader whose dataset has a tokenizer."""
    datasets = (getattr(getattr(context, name, None), "dataset", None) for name in _LOADERS)
    dataset = next((each for each in datasets if getattr(each, "tokenizer", None) is not None), None)
    names = ("features", "normalization", "tokenizer", "cleaner", "max_duration")
    return HearingParts(**{name: getattr(dataset, name, None) for name in names})
