"""How far a training has come. A share of it (`0.3dur`) is one of its batches, for everybody who counts."""

from __future__ import annotations

from typing import Any

from sonosco_like.events.duration import Duration


def has_lasted(duration: Duration, context: Any) -> bool:
    """Whether a training has come as far as a duration says."""
    share = share_done(context) if duration.unit == "dur" else 0.0
    return duration.reached(context.epoch, context.global_step, context.seconds, share)


def share_done(context: Any) -> float:
    """How much of all epochs is done, from 0 to 1; in whole epochs if nobody knows how many batches one has."""
    batches = epoch_batches(context)
    under_way = context.batches_done / batches if batches else 0.0
    return float((context.epoch + under_way) / context.epochs)


def epoch_batches(context: Any) -> int | None:
    """The batches of an epoch of this training, if that is known: of its data, or fewer if a callback limits them."""
    limits = [getattr(callback, "train_batches", None) for callback in context.callbacks]
    known = [batches_of(context.train_data_loader), *limits]
    return min((batches for batches in known if batches is not None), default=None)


def batches_of(loader: Any) -> int | None:
    """The batches of an epoch, if the loader knows."""
    try:
        return len(loader)
    except TypeError:
        return None
