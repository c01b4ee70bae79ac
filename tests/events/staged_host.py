"""A host with stages that is no trainer."""

from __future__ import annotations

from typing import Any

from sonosco_like.events import Listener, Listeners, stage


class Host:
    """Something with two stages, one in the other, and an event of its own."""

    events = ("verified",)

    def __init__(self, *listeners: Listener, rank: int = 0) -> None:
        self.listeners = Listeners(self, rank)
        self.listeners.attach(listeners)

    @stage("outer")
    def outer(self, number: int) -> int:
        return self.inner(number, by=10) + 1

    @stage("inner")
    def inner(self, number: int, by: int = 1) -> int:
        if number < 0:
            raise ValueError("negative")
        return number * by

    def verify(self, **args: Any) -> None:
        self.listeners.fire("verified", **args)
