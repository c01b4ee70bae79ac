"""What is refused before the first batch, because it would fail after hours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from sonosco_like.errors import ConfigError, UsageError, did_you_mean
from sonosco_like.events import AbstractCallback
from sonosco_like.metrics import describe
from sonosco_like.serialization import Snapshot
from sonosco_like.training.measures import validation_prefix

logger = logging.getLogger(__name__)


def check_texts(metrics: Iterable[Callable[..., Any]], callbacks: Iterable[Any], decoder: Any) -> None:
    """Refuse metrics and callbacks that read decoded text where nobody decodes."""
    if decoder is not None:
        return
    reading = [describe(metric).name for metric in metrics if "hypotheses" in describe(metric).needs]
    listening = (callback for callback in callbacks if isinstance(callback, AbstractCallback))
    reading += [type(callback).__name__ for callback in listening if "hypotheses" in callback.texts_needed()]
    if reading:
        raise UsageError(f"{reading[0]} reads decoded text: the trainer needs a `decoder`, e.g. GreedyCTCDecoder.")


def check_measures(
    metrics: Iterable[Callable[..., Any]], callbacks: Iterable[Any], sets: Iterable[str | None], averaged: bool
) -> None:
    """Refuse callbacks that read a measure which nobody computes."""
    described = [describe(metric) for metric in metrics]
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
                raise UsageError(f"{type(callback).__name__} reads {name!r}, which nobody computes{hint}")


def check_serializable(trainer: Any, must: bool) -> None:
    """Save the trainer into nowhere: what could not be saved later is named now."""
    try:
        Snapshot(trainer)
    except ConfigError as error:
        if must:
            raise
        logger.info("This trainer cannot be saved, so checkpoints will be refused: %s", error)


def check_loader(loader: Any) -> None:
    """Tell the owner of foreign data what it must provide for an exact and quick resume."""
    lacking = [name for name in ("set_epoch", "state_dict", "load_state_dict") if not hasattr(loader, name)]
    if lacking:
        logger.info(
            "%s has no %s: a resumed run passes over the batches it has seen, "
            "and is exact only if their order is fixed.",
            type(loader).__name__, ", ".join(lacking),
        )  # fmt: skip


def check_model(model: nn.Module) -> None:
    """Refuse a model that has nothing to learn."""
    if not any(True for _ in model.parameters()):
        raise UsageError(f"{type(model).__name__} has no parameters to train.")
