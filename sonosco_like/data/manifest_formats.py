"""Reading a manifest into columns: JSON lines, CSV and Lhotse cuts, told apart by their content.

JSON lines in the form we write are parsed by Arrow, a million rows in about a second. Whatever Arrow refuses, and the
other forms, is read row by row (`manifest_rows`): slower, but able to say what is wrong with each row.
"""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from sonosco_like.data.audio import MOST_SECONDS, is_url
from sonosco_like.data.manifest_rows import SCHEMA, read_rows, row_of_csv, row_of_cut, row_of_json
from sonosco_like.errors import DataError
from sonosco_like.strangers import is_packed, lines_of, open_text

_BOM = b"\xef\xbb\xbf"
_BLOCK = 2 << 20
_CSV_NAMES = {
    "audio_filepath": "audio_filepath", "wav": "audio_filepath", "audio": "audio_filepath", "path": "audio_filepath",
    "text": "text", "txt": "text", "transcript": "text", "sentence": "text",
    "duration": "duration", "speaker": "speaker", "offset": "offset", "id": "id",
}  # fmt: skip
_CSV_POSITIONS = ["audio_filepath", "text", "duration"]


def read_table(path: Path) -> pa.Table:
    """The rows of a manifest with the columns of `SCHEMA`; `duration` is null where the manifest does not say it."""
    try:
        table = _read(path)
        if len(table):
            return table
        raise DataError(f"The manifest {path} has a header and no rows.")
    except FileNotFoundError:
        raise DataError(_not_there(path)) from None
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"The manifest {path} cannot be read: {error}. It must be UTF-8 text, plain or gzip.") from None


def _read(path: Path) -> pa.Table:
    first = next(_lines(path), b"")
    if not first:
        raise DataError(f"The manifest {path} has no rows.")
    if first.startswith(b"["):
        raise DataError(f"The manifest {path} is one JSON list; JSON lines are expected, one object on each line.")
    if not first.startswith(b"{"):
        return _read_csv(path)
    if _is_cut(first):
        return read_rows(path, _lines(path), row_of_cut)
    table = _read_with_arrow(path)
    return table if table is not None else read_rows(path, _lines(path), row_of_json)


def _not_there(path: Path) -> str:
    if is_url(str(path)):
        return f"The manifest {path} is a URL. URLs are not read yet: copy the manifest and its recordings to a disk."
    return f"The manifest {path} does not exist. `sonosco data manifest` makes one from a folder."


def _is_cut(line: bytes) -> bool:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return "audio_filepath" not in row and any(key in row for key in ("recording", "supervisions", "tracks"))


def _read_with_arrow(path: Path) -> pa.Table | None:
    """The table if every row is plainly right, None if the rows need a closer look."""
    # one thread: as fast on a busy machine, a tenth less memory, and no thread pool to fork workers from
    reading = pa_json.ReadOptions(use_threads=False, block_size=_BLOCK)
    parsing = pa_json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
    try:
        with _arrow_stream(path) as stream:
            table = pa_json.read_json(stream, reading, parsing)
        table.validate(full=True)  # the reader itself takes any bytes for UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return table if _is_plainly_right(table) else None


def _is_plainly_right(table: pa.Table) -> bool:
    if len(table) == 0 or table["audio_filepath"].null_count or table["text"].null_count:
        return False
    seconds = np.concatenate([table[name].drop_null().to_numpy() for name in ("duration", "offset")])
    sensible = bool((seconds <= MOST_SECONDS).all() and (seconds >= 0).all())  # NaN is neither
    return sensible and pc.min(pc.binary_length(table["audio_filepath"])).as_py() > 0


def _read_csv(path: Path) -> pa.Table:
    names = [_CSV_NAMES.get(cell.strip().casefold(), "") for cell in next(_records(path), [])]
    has_header = "audio_filepath" in names
    header = names if has_header else _CSV_POSITIONS
    sample = next(_records(path, skip=int(has_header)), [])
    text = sample[header.index("text")] if "text" in header and len(sample) > header.index("text") else ""
    # Sonosco's second column is the path of a text file; the first row tells which of the two it is
    text_is_path = text.strip().lower().endswith(".txt")
    row_of = functools.partial(row_of_csv, header=header, folder=path.parent, text_is_path=text_is_path)
    return read_rows(path, _records(path, skip=int(has_header)), row_of)


def _records(path: Path, skip: int = 0) -> Iterator[list[str]]:
    with open_text(path) as stream:
        lines = (line.removeprefix(_BOM).decode() for line in lines_of(stream, path))
        for number, record in enumerate(record for record in csv.reader(lines) if record):
            if number >= skip:
                yield record


def _lines(path: Path) -> Iterator[bytes]:
    with open_text(path) as stream:
        for line in lines_of(stream, path):
            if stripped := line.removeprefix(_BOM).strip():
                yield stripped


def _arrow_stream(path: Path) -> Any:
    """What Arrow reads from; it would itself unpack whatever a file stands for."""
    return pa.PythonFile(open_text(path), mode="r") if is_packed(path) else pa.input_stream(str(path), compression=None)
