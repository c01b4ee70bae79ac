"""Checks before the first batch, for problems that would otherwise appear after hours."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import nn

from sonosco_like.errors import ConfigError, SonoscoError, UsageError, did_you_mean, list_some
from sonosco_like.events import AbstractCallback, epoch_batches
from sonosco_like.metrics import description_of
from sonosco_like.serialization import Snapshot
from sonosco_like.training.foreign_loader import name_of
from sonosco_like.training.loaders import LoaderFromPython
from sonosco_like.training.measures import validation_prefix
from sonosco_like.training.position import ReadThrough
from sonosco_like.training.processes import limit_of

logger = logging.getLogger(__name__)

_SHARE = re.compile(r"\s*[\d.]+\s*dur\s*")
_INSTEAD = {  # what to override here for a method of a trainer, or a module, of another system
    "calculate_eval_batch_loss": "`validate_batch(batch)`",
    "calculate_train_batch_loss": "`forward(batch)` and `compute_loss(output, batch)`",
    "configure_optimizers": "`build_optimizer(parameters)` and `build_scheduler(optimizer)`",
    "create_model": "`build_model(model)`",
    "create_optimizer": "`build_optimizer(parameters)`",
    "create_optimizer_and_scheduler": "`build_optimizer(parameters)` and `build_scheduler(optimizer)`",
    "create_scheduler": "`build_scheduler(optimizer)`",
    "epoch": "`train_epoch(epoch)`",
    "loss": "`compute_loss(output, batch)`",
    "predict_step": "`predict_batch(output, batch, needs)`",
    "prediction_step": "`predict_batch(output, batch, needs)`",
    "step": "`train_batch(batch)`",
    "test_step": "`validate_batch(batch)`",
    "training_step": "`forward(batch)` and `compute_loss(output, batch)`",
    "validation_step": "`validate_batch(batch)`",
}
_MOST_NAMED = 3  # a list of a thousand batches has a thousand problems


def check_settings(trainer: Any) -> None:
    """Refuse numbers and durations that are not valid."""
    for name in ("epochs", "accumulate_gradients"):
        if getattr(trainer, name) < 1:
            raise UsageError(f"`{name}` must be at least 1, got {getattr(trainer, name)}.")
    limit_of(trainer.process_timeout)


def check_methods(trainer: Any) -> None:
    """Refuse methods of a user's trainer that are never called: a field hides them, or only other systems know them."""
    own = [cls for cls in type(trainer).__mro__ if cls.__module__.partition(".")[0] != __package__.partition(".")[0]]
    methods = {name: each for cls in own for name, each in vars(cls).items() if inspect.isfunction(each)}
    called = {name for method in methods.values() for name in inspect.unwrap(method).__code__.co_names}
    fields = {field.name for field in dataclasses.fields(trainer)}
    ours = (each for cls in type(trainer).__mro__ for each in vars(cls).items())
    fields |= {name for name, each in ours if isinstance(each, ReadThrough)}
    fields -= {name for cls in own for name in inspect.get_annotations(cls)}
    for name in methods:
        instead = _INSTEAD.get(name)
        if name in fields or (instead is not None and name not in called):
            why = f"`{name}` is a setting of the trainer" if name in fields else f"no stage is called {name!r}"
            remedy = f"override {instead}" if instead is not None else "give the method another name"
            raise UsageError(f"{type(trainer).__name__}.{name} would never be called: {why}; {remedy}.")


def check_texts(metrics: Iterable[Callable[..., Any]], callbacks: Iterable[Any], decoder: Any) -> None:
    """Refuse metrics and callbacks that read decoded text if the trainer has no decoder."""
    if decoder is not None:
        return
    reading = [description_of(metric).name for metric in metrics if "hypotheses" in description_of(metric).needs]
    listening = (callback for callback in callbacks if isinstance(callback, AbstractCallback))
    reading += [type(callback).__name__ for callback in listening if "hypotheses" in callback.texts_needed()]
    if reading:
        raise UsageError(f"{reading[0]} reads decoded text: the trainer needs a `decoder`, e.g. GreedyCTCDecoder.")


def check_measures(
    metrics: Iterable[Callable[..., Any]], callbacks: Iterable[Any], sets: Iterable[str | None], averaged: bool
) -> None:
    """Refuse callbacks that read a measure which is not computed."""
    described = [description_of(metric) for metric in metrics]
    names = [each.name for each in described]
    double = next((each for each in names if names.count(each) > 1), None)
    if double is not None:
        raise UsageError(f"Two metrics are called {double!r}, so that one would hide the other: give one a `name`.")
    known = {"loss", "gradient_norm"} | {each.name for each in described if not each.needs}
    for name in sets:
        prefixes = [validation_prefix(name), *([validation_prefix(name, averaged=True)] if averaged else [])]
        known |= {prefix + measure for prefix in prefixes for measure in ("loss", *(each.name for each in described))}
    listening = [callback for callback in callbacks if isinstance(callback, AbstractCallback)]
    known |= {name for callback in listening for name in callback.measures_given()}
    for callback in listening:
        for name in callback.measures_needed():
            if name not in known:
                hint = did_you_mean(name, known) or f"; there are {', '.join(sorted(known))}."
                raise UsageError(f"{type(callback).__name__} reads {name!r}, which is not computed{hint}")


def check_serializable(trainer: Any, must: bool) -> None:
    """Try to save the trainer without writing a file, so that a part that cannot be saved is named now."""
    try:
        Snapshot(trainer)
    except ConfigError as error:
        if must:
            raise
        problems = list_some(error.problems, _MOST_NAMED, "; ")
        logger.warning("This trainer cannot be saved, so checkpoints will be refused: %s", problems)


def check_reduction(trainer: Any) -> None:
    """Warn of a loss that is a sum: it does not add up over the batches of a step."""
    shared = trainer.accumulate_gradients > 1 or trainer.processes.size > 1
    if shared and getattr(trainer.loss, "reduction", None) == "sum":
        logger.warning(
            "The loss %s is a sum over a batch. Batches that share a step are averaged, so that its gradients are not "
            "those of one large batch; give it the reduction 'mean'.", type(trainer.loss).__name__,
        )  # fmt: skip


def check_shares(trainer: Any) -> None:
    """Warn of shares of a training that are counted in epochs, because the number of batches is not known."""
    if epoch_batches(trainer) is not None:
        return
    settings = [("max_duration", trainer.max_duration)]
    for callback in (each for each in trainer.callbacks if isinstance(each, AbstractCallback)):
        fields = dataclasses.fields(callback) if dataclasses.is_dataclass(callback) else ()
        settings += [(f"{type(callback).__name__}.{field.name}", getattr(callback, field.name)) for field in fields]
    shares = [f"{name}: {value}" for name, value in settings if isinstance(value, str) and _SHARE.fullmatch(value)]
    if shares:
        logger.warning(
            "%s: a share of all batches, but %s has no length, so that their number is not known: whole epochs "
            "are counted instead. Give it a __len__, or write epochs (2ep), batches (500ba) or time (90min).",
            ", ".join(shares), name_of(trainer.train_data_loader),
        )  # fmt: skip


def loaders_of(trainer: Any) -> dict[str, Any]:
    """The loaders of a trainer: `train`, then `val` or `val <name>` for each set, then `test`, if it has them."""
    named = {f"val {name}" if name else "val": loader for name, loader in trainer.validation_sets.items()}
    loaders = {"train": trainer.train_data_loader, **named, "test": trainer.test_data_loader}
    return {name: loader for name, loader in loaders.items() if loader is not None or name == "train"}


def check_is_loader(name: str, loader: Any) -> None:
    """Refuse a value in a config that is not a loader, and iterables that are not batches."""
    if loader is None:
        raise UsageError(f"There is no {name} data: the trainer needs a `{name}_data_loader`.")
    if isinstance(loader, dict):
        raise UsageError(f"The {name} data is a mapping and no loader: it lacks `class: AudioDataLoader`.")
    if isinstance(loader, LoaderFromPython):
        raise UsageError(loader.remedy(f"{name.partition(' ')[0]}_data_loader"))
    if isinstance(loader, (str, bytes, Path)):
        raise UsageError(
            f"The {name} data is {str(loader)!r} and no loader: give an AudioDataLoader whose dataset has its manifest."
        )


def check_data(trainer: Any) -> None:
    """Refuse data that cannot be read or does not fit the model; each manifest is read once, and kept."""
    for name, loader in loaders_of(trainer).items():
        check_is_loader(name, loader)
        dataset = getattr(loader, "dataset", None)
        for problem in unequal_sizes(trainer, dataset):
            raise UsageError(problem)
        usable = getattr(dataset, "usable", None)  # raises what validation would find after the first epoch
        if usable is not None and trainer.processes.is_first:
            from sonosco_like.training.speech_checks import warn_of_texts  # it needs our data, which is there now

            warn_of_texts(trainer, dataset, is_training=name == "train")


SIZES = {"vocabulary_size": "tokenizer", "features": "features"}  # of a model, and the part of its data each follows


def fill_sizes(model: Any, loader: Any) -> None:
    """Give a model of ours the sizes that were left out: those of the training data."""
    if not hasattr(model, "take_sizes") or model.is_built:
        return
    dataset = getattr(loader, "dataset", None)
    sizes = {name: _size_for(model, name, dataset, part) for name, part in SIZES.items()}
    model.take_sizes(**sizes)


def _size_for(model: Any, name: str, dataset: Any, part: str) -> int:
    given: int = getattr(model, name)
    if given:
        return given
    try:
        size = _size(dataset, part)
    except SonoscoError as error:
        raise UsageError(f"`model.{name}` follows from the {part} of the training data, but {error}") from error
    if not isinstance(size, int):
        raise UsageError(
            f"`model.{name}` is left out, and the training data has no {part} it could follow from: give a number."
        )
    return size


def unequal_sizes(trainer: Any, dataset: Any) -> list[str]:
    """What does not fit between the model and its data, with the remedy and with the lines of the config."""
    problems = []
    for name, what, has in (
        ("vocabulary_size", "The tokenizer has {} labels", "the model writes {}"),
        ("features", "The data has {} features per frame", "the model takes {}"),
    ):
        size, given = _size(dataset, SIZES[name]), getattr(trainer.model, name, None)
        if isinstance(size, int) and isinstance(given, int) and size != given:
            data_line, model_line = trainer.parts.lines_of_sizes.get(name, ("", ""))
            of_training = _size(getattr(trainer.train_data_loader, "dataset", None), SIZES[name])
            data_line = data_line if size == of_training else ""
            remedy = f"leave `model.{name}` out, or set it to {size}"
            problems.append(f"{what.format(size)}{data_line}, but {has.format(given)}{model_line}: {remedy}.")
    return problems


def _size(dataset: Any, part: str) -> Any:
    return getattr(getattr(dataset, part, None), "size", None)


def check_is_model(model: Any) -> None:
    """Refuse what cannot be trained at all."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"`model` must be a torch.nn.Module, got {_kind(model)}.")


def check_optimizer(optimizer: Any) -> None:
    """Refuse a value that is not an optimizer, or is only its class."""
    if isinstance(optimizer, type) or not (hasattr(optimizer, "step") and hasattr(optimizer, "zero_grad")):
        raise UsageError(
            f"`optimizer` must be an optimizer such as AdamW(lr=0.001), in a config {{class: AdamW, lr: 0.001}}, "
            f"got {_kind(optimizer)}."
        )


def check_model(model: nn.Module) -> None:
    """Refuse a model without parameters that can be trained."""
    if not any(True for _ in model.parameters()):
        raise UsageError(f"{type(model).__name__} has no parameters to train.")


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return repr(value) if value is None or isinstance(value, str) else f"a {type(value).__name__}"
