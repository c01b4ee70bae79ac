"""The log of each start of a run, and `status.yaml` with the state of the run."""

from __future__ import annotations

import logging
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from sonosco_like.errors import as_sentence
from sonosco_like.redaction import MaskingFormatter, mask_secrets
from sonosco_like.runs.run_folder import LOGS, STATUS, following_name
from sonosco_like.serialization import replace_file
from sonosco_like.version import __version__

logger = logging.getLogger(__name__)

RunState = Literal["running", "finished", "interrupted", "failed"]


@dataclass
class RunEnd:
    """The signal that ended a start of a run, or 0; the code that trains sets it."""

    interrupted_by: int = 0


@contextmanager
def journal(folder: Path, trainer: Any, lower_is_better: Mapping[str, bool]) -> Iterator[RunEnd]:
    """Write the log of this start to `logs/`, and the state of the run to `status.yaml` when it starts and ends.

    `lower_is_better` holds the direction of each measure for readers of the folder, which do not know the metrics.
    """
    handler = _log_file(folder / LOGS)
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    end = RunEnd()
    directions = {"loss": True, **lower_is_better}
    _note(handler, f"{shlex.join(sys.argv)} (sonosco_like {__version__}, at step {trainer.global_step})")
    try:
        _write_status(folder, trainer, directions, "running")
        yield end
        state: RunState = "interrupted" if end.interrupted_by else "finished"
        _note(handler, f"{state} at step {trainer.global_step}")
        _write_status(folder, trainer, directions, state)
    except BaseException as error:
        _note(handler, f"failed at step {trainer.global_step}", error)
        _write_status(folder, trainer, directions, "failed", f"{type(error).__name__}: {error}")
        raise
    finally:
        logging.getLogger().removeHandler(handler)
        with suppress(OSError):  # on a full disk; the error that ended the run matters more
            handler.close()


class _LogFile(logging.FileHandler):
    """The log of a start. If it cannot be written, it prints one line, and the run goes on."""

    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (the name is logging's)
        """Print one line for all failures, instead of a traceback for each."""
        error = sys.exc_info()[1]
        if not self._failed:
            self._failed = True
            print(
                f"{self.baseFilename} cannot be written: {as_sentence(error)} The run goes on without this log.",
                file=sys.stderr,
            )


def _log_file(folder: Path) -> logging.Handler:
    """The handler that writes the log of this start; one that writes nothing, after a warning, if that fails."""
    try:
        folder.mkdir(exist_ok=True)
        return _LogFile(_free_name(folder), mode="x", encoding="utf-8")
    except OSError as error:
        logger.warning("This start writes no log: %s", error)
        return logging.NullHandler()


def _note(handler: logging.Handler, message: str, error: BaseException | None = None) -> None:
    """Write a line, with the traceback of an error, to the file alone, whatever level the user's logging has."""
    level = logging.INFO if error is None else logging.ERROR
    traceback: Any = None if error is None else (type(error), error, error.__traceback__)
    handler.handle(logger.makeRecord(logger.name, level, "", 0, message, (), traceback))


def _write_status(folder: Path, trainer: Any, directions: dict[str, bool], state: RunState, reason: str = "") -> None:
    """Replace `status.yaml`; if the disk is full, warn and go on."""
    status = {
        "state": state,
        "since": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "epoch": trainer.epoch,
        "step": trainer.global_step,
        "epochs": trainer.epochs,
        "lower_is_better": directions,
        **({"reason": mask_secrets(reason)[:1000]} if reason else {}),
    }
    try:
        replace_file(folder / STATUS, yaml.safe_dump(status, sort_keys=False, allow_unicode=True).encode())
    except OSError as error:
        logger.warning("%s could not be written: %s", STATUS, error)


def _free_name(folder: Path) -> Path:
    name = following_name(time.strftime("%Y-%m-%d_%H-%M-%S"), (path.stem for path in folder.glob("*.log")))
    return folder / f"{name}.log"
