"""One callback mechanism: a stage is a method, its start and its end are events, a callback hears events."""

from sonosco_like.events.callback import AbstractCallback
from sonosco_like.events.duration import Duration
from sonosco_like.events.event import Event
from sonosco_like.events.listening import CallbackError, Listener, close, known_events, listen, listen_anew
from sonosco_like.events.moment import Moment, Scope, Stop
from sonosco_like.events.overriding import stages_of
from sonosco_like.events.own_hooks import ListsCallbacks
from sonosco_like.events.pairs import Pair
from sonosco_like.events.progress import batches_of, epoch_batches, has_lasted, share_done
from sonosco_like.events.stages import Hooks, fire, stage

__all__ = [
    "AbstractCallback", "CallbackError", "Duration", "Event", "Hooks", "Listener", "ListsCallbacks", "Moment", "Pair",
    "Scope", "Stop", "batches_of", "close", "epoch_batches", "fire", "has_lasted", "known_events", "listen",
    "listen_anew", "share_done", "stage", "stages_of",
]  # fmt: skip
