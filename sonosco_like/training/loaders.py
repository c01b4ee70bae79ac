"""The loaders of a trainer, ours and foreign ones: how each is positioned, repeated, sharded and saved."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch

from sonosco_like.errors import UsageError, as_sentence, message_of
from sonosco_like.serialization import REGISTRY, serializable
from sonosco_like.training.foreign_loader import LoaderWrapper, ReplayedLoader, SeededBatches, StatefulLoader, name_of
from sonosco_like.training.processes import Processes
from sonosco_like.training.torch_loader import TorchLoader, can_be_placed

logger = logging.getLogger(__name__)

_PLACE = ("state_dict", "load_state_dict")


@runtime_checkable
class SeededLoader(Protocol):
    """A loader whose batches follow from a seed, an epoch and a place, as those of `AudioDataLoader`."""

    used_seed: int

    def take_seed(self, seed: int) -> None:
        """Use the seed of the trainer, if the loader has none of its own."""

    def seek(self, position: int) -> None:
        """Continue with the batch of this number."""


@serializable
class LoaderFromPython:
    """The placeholder in a file for a loader that was made in Python; `kind` is its class."""

    kind: str = ""

    def __iter__(self) -> Iterator[Any]:
        raise UsageError(self.remedy("data"))

    def remedy(self, name: str) -> str:
        """The message about the missing loader, and how to give it again."""
        return (
            f"The {name} of this run was a {self.kind} made in Python, which a file cannot hold. Give it again and "
            f"continue in Python: `trainer = load(CHECKPOINT); trainer.{name} = ...; "
            f"trainer.continue_training()`. Or give the trainer a @serializable function that makes it."
        )


class Loaders:
    """Prepares loaders of any kind for a trainer, and keeps the seed from which their random numbers are drawn."""

    def __init__(self) -> None:
        self._seed: int | None = None
        self._adapted: list[tuple[Any, Any]] = []
        self._saved: dict[str, Any] | None = None

    @property
    def seed(self) -> int:
        """The seed for data without its own seed: the seed of torch when the first batch was prepared."""
        if self._seed is None:
            self._seed = torch.initial_seed()
        return self._seed

    def broadcast_seed(self, processes: Processes) -> None:
        """Give all processes the same seed."""
        if processes.size > 1:
            self._seed = processes.from_first(self.seed)

    def adapt(self, loader: Any, equal_shards: bool = False) -> Any:
        """A loader that can start at any batch and changes no generator; `equal_shards` gives each process as much."""
        if isinstance(loader, SeededLoader):
            loader.take_seed(self.seed)
        known = self.find(loader)
        if known is not loader or _is_ready(loader):
            return known
        adapted = _adapted(loader, self.seed, equal_shards)
        if adapted is not loader:
            self._adapted.append((loader, adapted))
        return adapted

    def find(self, loader: Any) -> Any:
        """The adapted form of a given loader; any other loader as it is."""
        return next((adapted for given, adapted in self._adapted if given is loader), loader)

    def batches(self, loader: Any, epoch: int, position: int = 0) -> Iterator[Any]:
        """The batches of a loader from its position on; `position` is the number of the next one."""
        if isinstance(loader, (list, tuple)):
            return islice(loader, position, None)
        if isinstance(loader, SeededLoader) or getattr(loader, "draws_nothing", False):
            return iter(loader)
        return SeededBatches(loader, self.seed, epoch, position)

    def close(self) -> None:
        """End the workers that loaders keep from one epoch to the next."""
        for _, adapted in self._adapted:
            if isinstance(adapted, TorchLoader):
                adapted.close()

    def state_dict(self, loader: Any, written: Any) -> dict[str, Any]:
        """The seed, and the place in the training data unless it is `written` itself."""
        saves_itself = written is loader and _is_registered(loader)
        place = loader.state_dict() if _has_place(loader) and not saves_itself else None
        return {"seed": self.seed, "place": place}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from a `state_dict`, as soon as the data is prepared."""
        self._saved = content
        self._seed = content.get("seed", self._seed)
        for _, adapted in self._adapted:
            adapted.seed = self.seed

    def restore_position(self, loader: Any, epoch: int, position: int) -> None:
        """Put the training data where it was saved; `epoch` and `position` are where the trainer was."""
        saved, self._saved = self._saved, None
        if saved is None or not _has_place(loader):
            return
        if saved.get("place") is None:
            if isinstance(loader, (ReplayedLoader, TorchLoader)):  # it was another loader when the run was saved
                loader.set_epoch(epoch)
                loader.seek(position)
            return
        try:
            loader.load_state_dict(saved["place"])
        except Exception as error:  # each loader has its own error for a state that is not its own
            raise UsageError(
                f"The training data, {name_of(loader)}, cannot return to its saved position: "
                f"{as_sentence(message_of(error))} Give a loader of the same class as at the start of the run."
            ) from error

    def saved_form(self, value: Any, in_text: bool) -> Any:
        """The value that a file holds for a loader, or for several by name; a placeholder if it was made in Python."""
        if isinstance(value, dict):
            saved = {name: self.saved_form(each, in_text) for name, each in value.items()}
            return value if all(saved[name] is value[name] for name in value) else saved
        given = next((given for given, adapted in self._adapted if adapted is value), value)
        if _is_registered(given) or not _is_made_in_python(given):
            return given
        if isinstance(given, (list, tuple)) and not in_text:  # a folder can hold the batches themselves
            return given
        return LoaderFromPython(kind=_kind(given))


def tokenizer_of(*loaders: Any) -> Any:
    """The tokenizer of the first dataset that has one, or None."""
    found = (getattr(getattr(loader, "dataset", None), "tokenizer", None) for loader in loaders)
    return next((tokenizer for tokenizer in found if tokenizer is not None), None)


def features_of(loader: Any) -> Any:
    """The features of the dataset of a loader, or None."""
    return getattr(getattr(loader, "dataset", None), "features", None)


def made(loader: Any) -> Any:
    """The loader; if a function was given, the loader that it makes."""
    return loader() if _is_function(loader) else loader


def log_how_it_resumes(loader: Any, saved: bool) -> None:
    """Log, once, how a resumed run treats a foreign loader."""
    if isinstance(loader, TorchLoader):
        loader.check_order()
    if isinstance(loader, ReplayedLoader):
        logger.info(
            "%s cannot save its position, because it has no %s. A resumed run reads the earlier batches again and "
            "skips them. It is exact only if the loader gives the same batches each time.",
            name_of(loader), " or ".join(_PLACE),
        )  # fmt: skip
    if saved and not _is_registered(getattr(loader, "loader", loader)):
        logger.info(
            "%s was made in Python, so checkpoints cannot hold it. Give it again when you resume this run.",
            name_of(loader),
        )


def _adapted(loader: Any, seed: int, equal_shards: bool) -> Any:
    if _has_place(loader):
        return loader if hasattr(loader, "set_epoch") else StatefulLoader(loader, seed)
    return TorchLoader(loader, seed, equal_shards) if can_be_placed(loader) else ReplayedLoader(loader, seed)


def _is_ready(loader: Any) -> bool:
    ready = (list, tuple, dict, str, bytes, SeededLoader, LoaderFromPython, LoaderWrapper)
    return loader is None or isinstance(loader, ready) or not hasattr(type(loader), "__iter__")


def _has_place(loader: Any) -> bool:
    return all(hasattr(loader, name) for name in _PLACE)


def _is_made_in_python(value: Any) -> bool:
    is_data = hasattr(type(value), "__iter__") and not isinstance(value, (str, bytes, dict))
    return is_data or _is_function(value)


def _is_registered(value: Any) -> bool:
    defined = value.func if isinstance(value, functools.partial) else value
    return REGISTRY.registration_of(defined if inspect.isroutine(defined) else type(defined)) is not None


def _is_function(value: Any) -> bool:
    return inspect.isroutine(value) or isinstance(value, functools.partial)


def _kind(loader: Any) -> str:
    return f"{type(loader).__module__}.{type(loader).__qualname__}".removeprefix("builtins.")
