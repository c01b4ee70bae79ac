"""What a run says about itself while it runs: a log for each start, and one small file with its state."""

from __future__ import annotations

import logging
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from sonosco_like.metrics import describe
from sonosco_like.passwords import MaskingFormatter, masked
from sonosco_like.run_folder import LOGS, STATUS, following_name
from sonosco_like.serialization import files
from sonosco_like.version import __version__

logger = logging.getLogger(__name__)

RunState = Literal["running", "finished", "interrupted", "failed"]


@dataclass
class Entry:
    """How a start of a run ended, as far as only its owner knows."""

    interrupted_by: int = 0


@contextmanager
def journal(folder: Path, trainer: Any) -> Iterator[Entry]:
    """Write the log of this start to `logs/`, and to `status.yaml` that the run is running, then how it ended."""
    handler = _log_file(folder / LOGS)
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    entry = Entry()
    _note(handler, f"{shlex.join(sys.argv)} (sonosco_like {__version__}, at step {trainer.global_step})")
    try:
        _write_status(folder, trainer, "running")
        yield entry
        state: RunState = "interrupted" if entry.interrupted_by else "finished"
        _note(handler, f"{state} at step {trainer.global_step}")
        _write_status(folder, trainer, state)
    except BaseException as error:
        _note(handler, f"failed at step {trainer.global_step}", error)
        _write_status(folder, trainer, "failed", f"{type(error).__name__}: {error}")
        raise
    finally:
        logging.getLogger().removeHandler(handler)
        with suppress(OSError):  # on a full disk; what ended the run is worth more
            handler.close()


class _Log(logging.FileHandler):
    """The log of a start. On a full disk it says so once, and the run is not disturbed."""

    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (the name is logging's)
        """Say that a line could not be written, in place of a traceback for each."""
        error = sys.exc_info()[1]
        if not self._failed:
            self._failed = True
            print(f"{self.baseFilename} cannot be written: {error}. The run goes on without.", file=sys.stderr)


def _log_file(folder: Path) -> logging.Handler:
    """Where the log of this start goes: nowhere, with a warning, if there is no place for it."""
    try:
        folder.mkdir(exist_ok=True)
        return _Log(_free_name(folder), mode="x", encoding="utf-8")
    except OSError as error:
        logger.warning("This start writes no log: %s", error)
        return logging.NullHandler()


def _note(handler: logging.Handler, message: str, error: BaseException | None = None) -> None:
    """Write a line to the file alone, whatever the user's logging lets through; of an error its traceback too."""
    level = logging.INFO if error is None else logging.ERROR
    traceback: Any = None if error is None else (type(error), error, error.__traceback__)
    handler.handle(logger.makeRecord(logger.name, level, "", 0, message, (), traceback))


def _write_status(folder: Path, trainer: Any, state: RunState, reason: str = "") -> None:
    """Replace `status.yaml`. A full disk must not stop a run for its sake."""
    status = {
        "state": state,
        "since": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "epoch": trainer.epoch,
        "step": trainer.global_step,
        "epochs": trainer.epochs,
        "lower_is_better": _directions(trainer),
        **({"reason": masked(reason)[:1000]} if reason else {}),
    }
    try:
        files.replace_file(folder / STATUS, yaml.safe_dump(status, sort_keys=False, allow_unicode=True).encode())
    except OSError as error:
        logger.warning("%s could not be written: %s", STATUS, error)


def _directions(trainer: Any) -> dict[str, bool]:
    """Which way each measure is better, so that whoever reads the folder need not know the metrics."""
    return {"loss": True, **{each.name: each.lower_is_better for each in map(describe, trainer.metrics)}}


def _free_name(folder: Path) -> Path:
    name = following_name(time.strftime("%Y-%m-%d_%H-%M-%S"), (path.stem for path in folder.glob("*.log")))
    return folder / f"{name}.log"
