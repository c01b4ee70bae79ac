"""What was logged, as a table for spreadsheets: comma- or tab-separated."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from sonosco_like.callbacks.destinations.destination import Plain
from sonosco_like.callbacks.destinations.rows import RowFile
from sonosco_like.serialization import serializable
from sonosco_like.strangers import LONGEST_LINE

_MOST_DIGITS = 20


@serializable
class CsvFile(RowFile):
    """Writes a line per logged step below a line of column names; separated by tabs if `path` ends in `.tsv`.

    A value that is logged for the first time gets a new column, for which the file is written anew.
    """

    path: str = "metrics.csv"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._columns: list[str] = []

    def encoded(self, row: dict[str, Plain]) -> bytes:
        return self._lines([[str(row.get(column, "")) for column in self._columns]])

    def kept(self, path: Path, before: int) -> bytes:
        rows = self._read(path, before)
        self._columns = list(dict.fromkeys([column for row in rows for column in row] + list(self.row)))
        return self._table(rows)

    def kept_of_nothing(self) -> bytes:
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
            text = (line.decode(errors="replace") for line in iter(lambda: file.readline(LONGEST_LINE), b""))
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
