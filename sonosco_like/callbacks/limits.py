"""Shorter epochs and validations, for a quick look at whether everything works."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable


@serializable
class LimitBatches(AbstractCallback):
    """Ends each epoch after `train_batches` batches, and each validation after `validation_batches`; null is no limit.

    An epoch that is limited ends like any other, with its validation. The next one has the batches that it would have
    had anyway.
    """

    train_batches: int | None = 10
    validation_batches: int | None = 10

    def __post_init__(self) -> None:
        for name in ("train_batches", "validation_batches"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise UsageError(f"`{name}` must be at least 1 batch, or null for no limit, got {limit}.")

    def on_fetch_start(self, moment: Moment) -> None:
        """Have no batch follow the last one."""
        if self.train_batches is not None and moment.context.batches_done >= self.train_batches:
            moment.args["batches"] = iter(())

    def on_validation_start(self, moment: Moment) -> None:
        """Have the validation see the beginning of its data only."""
        if self.validation_batches is not None:
            moment.args["loader"] = _Beginning(moment.args["loader"], self.validation_batches)


class _Beginning:
    """A loader that ends early and is otherwise the one it is made of."""

    def __init__(self, loader: Any, batches: int) -> None:
        self._loader = loader
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._loader), self._batches)

    def __len__(self) -> int:
        return min(len(self._loader), self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
