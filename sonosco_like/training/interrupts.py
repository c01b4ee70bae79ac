"""SIGINT and SIGTERM: the batch under way is finished and saved; a second signal leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def on_interrupt(react: Callable[[str], None]) -> Iterator[list[int]]:
    """Call `react` with the name of the first signal; yields a list that will hold its number.

    The second one ends the process as if nobody had listened; what is on disk is whole at any moment.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        received.append(number)
        react(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
