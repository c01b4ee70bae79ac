"""The state that differs between processes: the random generators, and the position in the data."""

from __future__ import annotations

import logging
from typing import Any

import torch

from sonosco_like.errors import UsageError
from sonosco_like.training.consensus import from_plain, to_plain
from sonosco_like.training.processes import Processes
from sonosco_like.training.randomness import generator_states, restore_generators

logger = logging.getLogger(__name__)


class RankStates:
    """Gathers the states of all processes in the checkpoint of the first one, and gives them back on a resume.

    The same number of processes goes on bit for bit. Another number goes on with the utterances of the epoch that
    no process has seen, if the loader knows them (`load_shares`).
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._others: list[dict[str, Any]] = []  # generators of the processes but the first, at the last gathering
        self._places: list[dict[str, Any]] | None = None  # states of the loader of each process, then
        self._restored: dict[str, Any] | None = None
        self._saved_by = 0  # processes that wrote what was loaded, until the loader has been put in its place

    def gather(self, loader: Any) -> None:
        """Gather the states of the processes, before the first one saves them."""
        if self._processes.size == 1:
            return
        own = {"generators": to_plain(generator_states()), "place": _place_of(loader)}
        found = self._processes.gather(own)
        self._others = [from_plain(each["generators"]) for each in found[1:]]
        places = [from_plain(each["place"]) for each in found]
        self._places = places if all(place is not None for place in places) else None

    def state_dict(self) -> dict[str, Any]:
        """The generators of all processes; with several processes, also their positions in the data."""
        places = {"places": self._places} if self._places is not None else {}
        return {"generators": [generator_states(), *self._others], **places}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Restore the generators of this process; its loader follows when it is ready."""
        generators, rank = content["generators"], self._processes.rank
        self._saved_by, self._places = len(generators), content.get("places")
        restore_generators(generators[rank if rank < len(generators) else 0])
        if rank >= len(generators):  # a newcomer must not draw what the first one draws
            torch.manual_seed((int(torch.randint(2**62, ())) + rank) % 2**63)
        self._restored = generator_states()

    def restore_generators(self) -> None:
        """Restore the loaded states of the generators again, before the first batch."""
        restored, self._restored = self._restored, None
        if restored is not None:
            restore_generators(restored)

    def resume(self, loader: Any) -> None:
        """Move the loader of this process to the saved position."""
        before, self._saved_by = self._saved_by, 0
        places, self._places = self._places, None
        if before == self._processes.size:
            if places is not None:
                loader.load_state_dict(places[self._processes.rank])
        elif before:
            if places is None and hasattr(loader, "state_dict"):
                places = [loader.state_dict()] * before
            how = _go_on(loader, places or [], self._processes.size)
            if self._processes.is_first:
                logger.warning(
                    "This was saved by %d processes and is continued by %d: %s. The run is not the one it would have "
                    "been.", before, self._processes.size, how,
                )  # fmt: skip


def _place_of(loader: Any) -> Any:
    if not (hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")):
        return None
    try:
        return to_plain(loader.state_dict())
    except UsageError as error:
        logger.warning("The place of %s is saved for the first process only: %s", type(loader).__name__, error)
        return None


def _go_on(loader: Any, places: list[dict[str, Any]], size: int) -> str:
    """Continue the epoch with another number of processes; returns a sentence on how exact that is."""
    if hasattr(loader, "load_shares"):
        loader.load_shares(places)
        return "the epoch goes on with the utterances that none of them had seen"
    positions = [place["position"] for place in places if isinstance(place.get("position"), int)]
    if hasattr(loader, "seek") and places and len(positions) == len(places):
        loader.seek(sum(positions) // size)
        return "the epoch goes on after as many batches in all"
    return f"{type(loader).__name__} goes on after as many batches of each process, so data is repeated or left out"
