"""The entry point of `sonosco`, which is also `python -m sonosco_like`."""

import os
import signal
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Run the command line. Ctrl-C has exit code 130 and no traceback, also while the command line is imported."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from sonosco_like.cli import main as run

    run()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"Interrupted.\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
