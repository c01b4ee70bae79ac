"""SIGINT, SIGTERM and SIGHUP: the batch under way is finished and saved; a second signal leaves at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from sonosco_like.interrupts import HANGUP, STOPPING, leave_at_once


@contextmanager
def on_interrupt(react: Callable[[str], None]) -> Iterator[list[int]]:
    """Call `react` with the name of the first signal; yields a list that will hold its number.

    The second one ends the process and its workers there and then; what is on disk is whole at any moment.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if received and number == HANGUP:  # the system and the shell each send one when a terminal is closed
            return
        if received:
            name = signal.Signals(number).name
            leave_at_once(number, f"{name} once more: left at once. `sonosco resume` goes on from the last checkpoint.")
        received.append(number)
        react(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in _signals()}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signals() -> list[signal.Signals]:
    """The signals to listen to; a hangup only if `nohup` did not ask to ignore it."""
    return [number for number in STOPPING if number != HANGUP or signal.getsignal(number) is not signal.SIG_IGN]
