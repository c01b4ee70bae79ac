"""Files with one row per logged step, which after a resume are those of a run that was never stopped."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import BinaryIO

from sonosco_like.callbacks.destinations.destination import Destination, Plain, WritesFiles, plain_values
from sonosco_like.events import Moment
from sonosco_like.serialization import files, serializable, state

PLACE = ("step", "epoch", "seconds")  # every row begins with these; a logged value of that name is left out


@serializable
class RowFile(WritesFiles, Destination, ABC):
    """Writes one row per step; what is logged later at the same step joins the row, which is then written anew.

    The last row is part of the state, as it was when the state was saved. A resumed run keeps the rows before it,
    drops whatever a lost run wrote after it, and goes on from there.
    """

    row: dict[str, Plain] = state({})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._file: BinaryIO | None = None
        self._start = 0

    @abstractmethod
    def encoded(self, row: dict[str, Plain]) -> bytes:
        """A row as it stands in the file."""

    @abstractmethod
    def kept(self, path: Path, before: int) -> bytes:
        """The beginning of a file up to the first row of step `before`, or the first torn row."""

    def on_attach(self, moment: Moment) -> None:
        """Open the file, without what was written after the state that is continued from."""
        if self._file is not None:
            return
        path = self.place(moment.context)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = int(self.row.get("step", moment.context.global_step))
        self._replace(path, self.kept(path, before) if path.exists() else self.kept_of_nothing())
        if self.row:
            self._write_row()

    def on_log(self, moment: Moment) -> None:
        values = plain_values(moment.args["values"])
        if self._file is None or not values:
            return
        step = moment.args["step"]
        if self.row.get("step") != step:
            self._start = self._file.seek(0, os.SEEK_END)
            self.row = {"step": step, "epoch": moment.args["epoch"], "seconds": round(moment.context.seconds, 3)}
        self.row = {**self.row, **{name: value for name, value in values.items() if name not in PLACE}}
        self._write_row()

    def on_checkpoint_start(self, moment: Moment) -> None:
        """A checkpoint that survives a power failure must not know of rows that do not."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def kept_of_nothing(self) -> bytes:
        """What a file without rows begins with."""
        return b""

    def _replace(self, path: Path, content: bytes) -> None:
        """Let the file hold just this, at no moment less, and be ready to write the next row."""
        self.close()
        files.replace_file(path, content)
        self._file = path.open("r+b")
        self._start = self._file.seek(0, os.SEEK_END)

    def _write_row(self) -> None:
        assert self._file is not None
        self._file.seek(self._start)
        self._file.write(self.encoded(self.row))
        self._file.truncate()
        self._file.flush()
