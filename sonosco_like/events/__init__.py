"""The callback mechanism: a stage is a method, its start and its end are events, and callbacks are called at events."""

from sonosco_like.events.callback import AbstractCallback, Moment, Scope, Stop, TrainerContext
from sonosco_like.events.duration import (
    Duration,
    Every,
    TrainingLength,
    batches_of,
    describe_place,
    epoch_batches,
    epoch_is_over,
    epochs_done,
    has_lasted,
    share_done,
    whole_share,
)
from sonosco_like.events.event import Event
from sonosco_like.events.hooks import Listener, Pair, take_class_callbacks
from sonosco_like.events.listeners import CallbackError, Listeners, known_events, without_listener
from sonosco_like.events.stages import stage, stages_of

__all__ = [
    "AbstractCallback", "CallbackError", "Duration", "Event", "Every", "Listener", "Listeners", "Moment", "Pair",
    "Scope", "Stop", "TrainerContext", "TrainingLength", "batches_of", "describe_place", "epoch_batches",
    "epoch_is_over", "epochs_done", "has_lasted", "known_events", "share_done", "stage", "stages_of",
    "take_class_callbacks", "whole_share", "without_listener",
]  # fmt: skip
