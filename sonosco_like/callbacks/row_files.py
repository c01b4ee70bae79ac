"""Files with one row per logged step; after a resume they equal the files of an uninterrupted run."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from sonosco_like.callbacks.destination import Destination, Plain, RunFile, plain_values
from sonosco_like.events import Moment
from sonosco_like.runs.run_folder import METRICS
from sonosco_like.serialization import replace_file, serializable, state
from sonosco_like.untrusted_files import MAX_LINE_BYTES

_MOST_DIGITS = 20
PLACE = ("step", "epoch", "seconds")  # every row begins with these; logged values of these names are left out


@serializable
class RowFile(Destination, ABC):
    """Writes one row per step; values that are logged later at the same step are added to the row.

    The last row is part of the state. A resumed run keeps the rows before it, drops the rows that were written after
    the checkpoint, and continues from there.
    """

    path: str
    folder: Path = Path()
    row: dict[str, Plain] = state({})

    def __post_init__(self) -> None:
        self.run_file = RunFile(self.path, self.folder)
        self._file: BinaryIO | None = None
        self._start = 0

    @abstractmethod
    def encode_row(self, row: dict[str, Plain]) -> bytes:
        """The bytes of a row in the file."""

    @abstractmethod
    def read_rows(self, path: Path, before: int) -> bytes:
        """The content of a file up to the first row of step `before` or later, or the first incomplete row."""

    def on_attach(self, moment: Moment) -> None:
        """Open the file, and drop the rows that were written after the checkpoint."""
        if self._file is not None:
            return
        path = self.run_file.resolve(moment.context)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = int(self.row.get("step", moment.context.global_step))
        self._replace(path, self.read_rows(path, before) if path.exists() else self.start_file())
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
        """Flush the rows to disk: a checkpoint that survives a power failure must not refer to lost rows."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def start_file(self) -> bytes:
        """The content of a new file."""
        return b""

    def _replace(self, path: Path, content: bytes) -> None:
        """Replace the file atomically by this content, and open it for the next row."""
        self.close()
        replace_file(path, content)
        self._file = path.open("r+b")
        self._start = self._file.seek(0, os.SEEK_END)

    def _write_row(self) -> None:
        assert self._file is not None
        self._file.seek(self._start)
        self._file.write(self.encode_row(self.row))
        self._file.truncate()
        self._file.flush()


@serializable
class MetricsFile(RowFile):
    """Writes a JSON object per logged step: `step`, `epoch`, `seconds` of training, then the logged values.

    JSON has no NaN and no infinite numbers; they become the texts "NaN", "Infinity" and "-Infinity". After a resume the
    file is that of an uninterrupted run, except `seconds` and other measured times.
    """

    path: str = METRICS

    def encode_row(self, row: dict[str, Plain]) -> bytes:
        finite = {name: _finite(value) for name, value in row.items()}
        return json.dumps(finite, ensure_ascii=False, allow_nan=False).encode() + b"\n"

    def read_rows(self, path: Path, before: int) -> bytes:
        kept: list[bytes] = []
        with path.open("rb") as file:
            while _is_row_before(line := file.readline(MAX_LINE_BYTES), before):
                kept.append(line)
        return b"".join(kept)


def _finite(value: Plain) -> Plain:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _is_row_before(line: bytes, step: int) -> bool:
    try:
        return line.endswith(b"\n") and bool(json.loads(line)["step"] < step)
    except (ValueError, KeyError, TypeError):
        return False


@serializable
class CsvFile(RowFile):
    """Writes a line per logged step below a line of column names; separated by tabs if `path` ends in `.tsv`.

    A value that is logged for the first time gets a new column; the whole file is written again for it.
    """

    path: str = "metrics.csv"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._columns: list[str] = []

    def encode_row(self, row: dict[str, Plain]) -> bytes:
        return self._lines([[str(row.get(column, "")) for column in self._columns]])

    def read_rows(self, path: Path, before: int) -> bytes:
        rows = self._read(path, before)
        self._columns = list(dict.fromkeys([column for row in rows for column in row] + list(self.row)))
        return self._table(rows)

    def start_file(self) -> bytes:
        self._columns = list(self.row)
        return self._table([])

    def _write_row(self) -> None:
        new = [column for column in self.row if column not in self._columns]
        if new:
            path = self._path()
            rows = self._read(path, int(self.row["step"]))
            self._columns += new
            self._replace(path, self._table(rows))
        super()._write_row()

    def _path(self) -> Path:
        assert self._file is not None
        return Path(self._file.name)

    def _read(self, path: Path, before: int) -> list[dict[str, str]]:
        """The rows of steps before `before`, with the cells that are not empty."""
        with path.open("rb") as file:
            text = (line.decode(errors="replace") for line in iter(lambda: file.readline(MAX_LINE_BYTES), b""))
            lines = csv.reader(text, delimiter=self._delimiter)
            columns = next(lines, [])
            rows = []
            for cells in lines:
                whole = bool(cells) and len(cells) == len(columns) and _is_step(cells[0])
                if not whole or int(cells[0]) >= before:
                    break
                rows.append({column: cell for column, cell in zip(columns, cells, strict=True) if cell})
        return rows

    def _table(self, rows: Iterable[dict[str, str]]) -> bytes:
        body = [[row.get(column, "") for column in self._columns] for row in rows]
        return self._lines([self._columns, *body]) if self._columns else b""

    def _lines(self, lines: Iterable[list[str]]) -> bytes:
        text = io.StringIO()
        csv.writer(text, delimiter=self._delimiter, lineterminator="\n").writerows(lines)
        return text.getvalue().encode()

    @property
    def _delimiter(self) -> str:
        return "\t" if self.path.endswith(".tsv") else ","


def _is_step(cell: str) -> bool:
    return cell.isdecimal() and len(cell) < _MOST_DIGITS
