"""A folder with the trained recogniser, for this package or for another program, written when the training ends."""

from __future__ import annotations

import logging
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from sonosco_like.callbacks.destination import RunFile
from sonosco_like.decoding import default_decoder
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment, TrainerContext
from sonosco_like.inference.exporters import exporter_named
from sonosco_like.inference.recogniser import AVERAGED, LAST, SavedParts, TrainedRecogniser, read_recogniser
from sonosco_like.models import SpeechModel
from sonosco_like.models.adapters import without_adapters
from sonosco_like.serialization import Saved, dumps, save, serializable

logger = logging.getLogger(__name__)


@serializable
class ExportForInference(AbstractCallback):
    """Writes a `TrainedRecogniser` to the folder `path` of the run when the training ends.

    It is the recogniser that `sonosco transcribe RUN` uses: that of the best checkpoint if ModelCheckpoint ranks them,
    otherwise that of the end of the training. Its weights are the moving average, if the trainer keeps one, unless the
    plain weights were ranked. The folder has the three files of a checkpoint, about a third of its size with Adam, and
    no name of the training data. `sonosco transcribe RUN/inference recording.wav` uses the folder. Without a speech
    model, or without datasets that have features and a tokenizer, only the model is written.

    With a `format`, the folder is that of `sonosco export`, for use without this package: graphs for onnxruntime
    (`onnx`), sherpa-onnx (`sherpa`) or torch (`torch-export`). It is compared with the recogniser on the validation
    manifest, and a warning lists texts that differ. A model that the format cannot represent is refused at the start.
    """

    order: int = 1500
    path: str = "inference"
    format: Literal["recogniser", "onnx", "sherpa", "torch-export"] = "recogniser"
    folder: Path = Path()
    ranks: list[int] | None = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.run_file = RunFile(self.path, self.folder)

    def on_attach(self, moment: Moment) -> None:
        """Refuse a model that cannot be saved, before the first batch."""
        self.run_file.resolve(moment.context)
        exportable = _exportable(moment.context, LAST)
        dumps(exportable, state=False)
        if self.format != "recogniser":
            exporter_named(self.format).check(_require_recogniser(exportable))

    def on_training_end(self, moment: Moment) -> None:
        """Write the folder."""
        self.write(moment.context)

    def write(self, context: TrainerContext) -> Path:
        """Write the folder now, and return its path."""
        place = self.run_file.resolve(context)
        averaging = getattr(context, "averaging", None)
        best = _best_checkpoint(context)
        if best is not None:
            saved = Saved(best)
            found = _model_of(saved) if _dataset_of(context) is None else read_recogniser(saved)
            self._save(found, place, context)
        elif averaging is not None and averaging.weights:
            with averaging.applied(context.model):
                self._save(_exportable(context, AVERAGED), place, context)
        else:
            self._save(_exportable(context, LAST), place, context)
        return place

    def _save(self, value: Any, place: Path, context: TrainerContext) -> None:
        if self.format != "recogniser":
            manifests = getattr(getattr(context.val_data_loader, "dataset", None), "manifests", [None])
            wrong = exporter_named(self.format).write(_require_recogniser(value), place, manifests[0])
            if wrong:
                logger.warning("%s does not have the texts of the recogniser:\n%s", place, "\n".join(wrong))
            return
        if not isinstance(value, TrainedRecogniser):
            logger.warning(
                "ExportForInference finds no `features` and `tokenizer` in the datasets of this trainer, or no "
                "speech model: the model in %s can be loaded, but nothing can be transcribed with it.", place,
            )  # fmt: skip
            save(without_adapters(value), place)
            return
        save(replace(value, model=without_adapters(value.model)), place)


def _require_recogniser(value: Any) -> TrainedRecogniser:
    if not isinstance(value, TrainedRecogniser):
        raise UsageError(
            "A `format` needs a speech model, and a dataset with `features` and a `tokenizer`, as AudioDataset has."
        )
    return value


def _best_checkpoint(context: TrainerContext) -> Path | None:
    """The best checkpoint of the run; None if checkpoints are not ranked."""
    checkpoints = getattr(context.experiment, "checkpoints", None)
    if checkpoints is None:
        return None
    context.saver.wait()
    best: Path | None = checkpoints.best()
    return best


def _model_of(saved: Saved) -> nn.Module:
    parts = SavedParts(saved)
    model: nn.Module = parts.read({"model": nn.Module})["model"]
    if averaged := parts.averaged_weights():
        model.load_state_dict(averaged)
    return model


def _exportable(context: TrainerContext, weights: str) -> Any:
    """The recogniser of a trainer, or its model if it trains no recogniser."""
    dataset = _dataset_of(context)
    if dataset is None:
        return context.model
    optional = {name: getattr(dataset, name, None) for name in ("normalization", "cleaner", "max_duration")}
    return TrainedRecogniser(
        features=dataset.features,
        model=context.model,
        decoder=context.decoder or default_decoder(context.model),
        tokenizer=dataset.tokenizer,
        weights=weights,
        **optional,
    )


def _dataset_of(context: TrainerContext) -> Any:
    """The first dataset with features and a tokenizer; None if there is none, or the model is no SpeechModel."""
    loaders = (context.train_data_loader, context.val_data_loader, context.test_data_loader)
    datasets = (getattr(loader, "dataset", None) for loader in loaders if isinstance(context.model, SpeechModel))
    needed = ("features", "tokenizer")
    return next((each for each in datasets if all(getattr(each, name, None) is not None for name in needed)), None)
