"""Ctrl-C, SIGTERM and SIGHUP at any moment of a command: one sentence, exit code 130, 143 or 129, nothing left behind.

The first signal is an exception, so that what a command began is cleared away. A second one leaves at once; so does the
first in the midst of an import, where an exception may be swallowed, or taken for a package that is not there.
"""

from __future__ import annotations

import atexit
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

from sonosco_like.interrupts import HANGUP, STOPPING, leave_at_once

_SENTENCES = {signal.SIGINT: "Interrupted.", signal.SIGTERM: "Terminated."}
_received: list[int] = []
_said: list[int] = []


def listen() -> None:
    """Hear signals from now on; those that whoever started us told us to ignore are ignored on."""
    _received.clear()
    _said.clear()
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _hear)
    sys.unraisablehook = _hear_swallowed
    atexit.register(_ignore_from_now_on)  # before anything else registers, so that it is called last


def stop_listening() -> None:
    """The work is done: whatever still holds up the end of the process, a signal ends it."""
    for number in STOPPING:
        if signal.getsignal(number) is _hear:
            signal.signal(number, _leave)


def _ignore_from_now_on() -> None:
    """Python gives signals back their deadly defaults at its very end, which would change the exit code."""
    for number in STOPPING:
        if signal.getsignal(number) in (_hear, _leave):
            signal.signal(number, signal.SIG_IGN)


def interrupted_by() -> int:
    """The number of the signal that was heard, or 0."""
    return _received[0] if _received else 0


def say_interrupted(number: int) -> int:
    """Say it, once; the exit code is returned."""
    sentence = _sentence(number)
    if sentence:
        print(sentence, file=sys.stderr, flush=True)
    return 128 + number


def _hear(number: int, frame: FrameType | None) -> None:
    if _received and number == HANGUP:  # the system and the shell each send one when a terminal is closed
        return
    if _received or _is_importing(frame):
        _leave(number, frame)
    _received.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    leave_at_once(number, _sentence(number))


def _sentence(number: int) -> str:
    """What is to be said of a signal: nothing, if it was said already."""
    if _said:
        return ""
    _said.append(number)
    return _SENTENCES.get(signal.Signals(number), f"Ended by {signal.Signals(number).name}.")


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _hear_swallowed(unraisable: Any) -> None:
    """A signal that came while an object was deleted, where Python drops exceptions with a traceback."""
    if _received and isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit):
        _leave(_received[0], None)
    sys.__unraisablehook__(unraisable)
