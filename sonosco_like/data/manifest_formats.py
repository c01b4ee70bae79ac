"""Reading a manifest into columns: JSON lines, CSV and Lhotse cuts, which are recognised by their content.

Arrow parses JSON lines in the form that we write, a million rows in about a second. Files that Arrow
refuses, and the other forms, are read row by row: this is slower, but the error can name the problem of each row.
"""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from sonosco_like.data.audio import MOST_SECONDS, is_url
from sonosco_like.errors import DataError, as_sentence, did_you_mean
from sonosco_like.untrusted_files import is_gzip, open_text, read_limited, read_lines

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("audio_filepath", pa.string()),
        ("duration", pa.float64()),
        ("text", pa.string()),
        ("speaker", pa.string()),
        ("offset", pa.float64()),
    ]
)
MOST_PROBLEMS = 20
_LARGEST_TRANSCRIPT = 1 << 20
_CHUNK = 65536


class ManifestRow(NamedTuple):
    """The values of one row in the order of `SCHEMA`; None where the manifest has none."""

    id: str | None
    audio_filepath: str
    duration: float | None
    text: str
    speaker: str | None
    offset: float | None


class BadRowError(ValueError):
    """The problem of a row."""


def read_rows(path: Path, records: Iterable[Any], parse_row: Callable[[Any], ManifestRow]) -> pa.Table:
    """Columns from the records of a file; one error names the bad rows, up to a readable number."""
    problems: list[tuple[int, str]] = []
    rows = _good_rows(records, parse_row, problems)
    batches = []
    while chunk := list(islice(rows, _CHUNK)):
        columns = [pa.array(values, kind) for values, kind in zip(zip(*chunk, strict=True), SCHEMA.types, strict=True)]
        batches.append(pa.record_batch(columns, SCHEMA))
    if problems:
        raise bad_rows_error(path, problems)
    return pa.Table.from_batches(batches, SCHEMA)


_NO_TEXT = "`text` must be the transcript, got nothing"


def bad_rows_error(path: Path, problems: Sequence[tuple[int, str]]) -> DataError:
    """One error for several rows, which are numbered from 1; blank lines and the header are not counted."""
    listed = "\n".join(f"  row {number}: {message}" for number, message in problems[:MOST_PROBLEMS])
    more = "\n  (there may be more)" if len(problems) >= MOST_PROBLEMS else ""
    if all(message == _NO_TEXT for _, message in problems):
        more += "\n`sonosco data manifest` takes the texts from .txt files beside the recordings."
    return DataError(f"The manifest {path} has rows that cannot be used. Correct or remove them:\n{listed}{more}")


def _good_rows(
    records: Iterable[Any], parse_row: Callable[[Any], ManifestRow], problems: list[tuple[int, str]]
) -> Iterator[ManifestRow]:
    for number, record in enumerate(records, 1):
        try:
            yield parse_row(record)
        except BadRowError as error:
            problems.append((number, str(error)))
            if len(problems) == MOST_PROBLEMS:
                return


def parse_json_row(line: bytes) -> ManifestRow:
    """A line in the form that we write."""
    return make_row(parse_object(line))


def parse_cut_row(line: bytes) -> ManifestRow:
    """A line of a Lhotse `CutSet`: a part of one recording with its transcript."""
    cut = parse_object(line)
    try:
        sources = cut["recording"]["sources"]
        if len(sources) != 1 or sources[0]["type"] != "file":
            raise BadRowError("must be a cut of one recording in one audio file; other sources are not read")
        supervisions = cut.get("supervisions") or []
        speakers = {part.get("speaker") for part in supervisions}
        return make_row(
            {
                "id": cut["id"],
                "audio_filepath": sources[0]["source"],
                "duration": cut["duration"],
                "offset": cut.get("start", 0.0),
                "text": " ".join(part.get("text") or "" for part in supervisions).strip(),
                "speaker": speakers.pop() if len(speakers) == 1 else None,
            }
        )
    except KeyError as error:
        raise BadRowError(f"lacks {error}, which each Lhotse `MonoCut` has; mixed cuts are not read") from None
    except (TypeError, AttributeError, IndexError):
        raise BadRowError("is not built like a Lhotse `MonoCut`") from None


def parse_csv_row(cells: list[str], header: list[str], folder: Path, text_is_path: bool) -> ManifestRow:
    """A CSV record whose cells are named by `header`; an empty cell counts as missing."""
    if len(cells) > len(header) or len(cells) < 2:
        raise BadRowError(f"must have 2 to {len(header)} columns ({', '.join(filter(None, header))}), got {len(cells)}")
    values: dict[str, Any] = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()}
    for name in ("duration", "offset"):
        if name in values:
            values[name] = _number(name, values[name])
    values.setdefault("text", "")
    if text_is_path:
        values["text"] = _transcript(folder / values["text"])
    return make_row(values)


def _transcript(path: Path) -> str:
    try:
        return " ".join(read_limited(path, _LARGEST_TRANSCRIPT).decode().split())
    except (OSError, UnicodeDecodeError, DataError) as error:
        raise BadRowError(f"names a transcript that cannot be read: {error}") from None


def parse_object(line: bytes) -> dict[str, Any]:
    """All keys of a line of JSON lines."""
    try:
        content = json.loads(line)
    except RecursionError:
        raise BadRowError("is nested too deeply") from None
    except ValueError as error:
        raise BadRowError(f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadRowError(f"must be a JSON object, got {_short_repr(content)}")
    return content


def make_row(values: dict[str, Any]) -> ManifestRow:
    """The checked values of the keys that we know."""
    audio, text = values.get("audio_filepath"), values.get("text")
    if not isinstance(audio, str) or not audio:
        hint = did_you_mean("audio_filepath", values.keys()) if "audio_filepath" not in values else ""
        raise BadRowError(f"`audio_filepath` must be the path of a recording, got {_short_repr(audio)}{hint}")
    if not isinstance(text, str):
        raise BadRowError(_NO_TEXT if text is None else f"`text` must be the transcript, got {_short_repr(text)}")
    for name in ("audio_filepath", "text", "id", "speaker"):
        refuse_half_characters(name, values.get(name))
    return ManifestRow(
        _text_or_number("id", values),
        audio,
        _seconds("duration", values),
        text,
        _text_or_number("speaker", values),
        _seconds("offset", values),
    )


def refuse_half_characters(key: str, value: Any) -> None:
    """Refuse halves of characters, which JSON can name and UTF-8 cannot hold."""
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise BadRowError(f"`{key}` holds half of a character, got {_short_repr(value)}") from None


def _text_or_number(key: str, values: dict[str, Any]) -> str | None:
    value = values.get(key)
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadRowError(f"`{key}` must be a text or a whole number, got {_short_repr(value)}")


def _seconds(key: str, values: dict[str, Any]) -> float | None:
    value = values.get(key)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= MOST_SECONDS:
        expected = f"`{key}` must be a number of seconds, not negative and at most {MOST_SECONDS:,.0f}"
        raise BadRowError(f"{expected}, got {_short_repr(value)}")
    return float(value)


def _number(key: str, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise BadRowError(f"`{key}` must be a number of seconds, got {_short_repr(cell)}") from None


def _short_repr(value: Any) -> str:
    text = repr(value) if value is not None else "nothing"
    return text if len(text) <= 60 else text[:57] + "..."


_BOM = b"\xef\xbb\xbf"
_BLOCK = 2 << 20
_CSV_NAMES = {
    "audio_filepath": "audio_filepath", "wav": "audio_filepath", "audio": "audio_filepath", "path": "audio_filepath",
    "text": "text", "txt": "text", "transcript": "text", "sentence": "text",
    "duration": "duration", "speaker": "speaker", "offset": "offset", "id": "id",
}  # fmt: skip
_CSV_POSITIONS = ["audio_filepath", "text", "duration"]


def read_table(path: Path) -> pa.Table:
    """The rows of a manifest with the columns of `SCHEMA`; `duration` is null where the manifest has none."""
    try:
        table = _read(path)
        if len(table):
            return table
        raise DataError(f"The manifest {path} has a header and no rows.")
    except FileNotFoundError:
        raise DataError(_missing_file_message(path)) from None
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"The manifest {path} cannot be read: {as_sentence(error)} It must be UTF-8 text, plain or gzip."
        ) from None


def _read(path: Path) -> pa.Table:
    first = next(lines_of(path), b"")
    if not first:
        raise DataError(f"The manifest {path} has no rows.")
    if first.startswith(b"["):
        raise DataError(f"The manifest {path} is one JSON list; JSON lines are expected, one object on each line.")
    if not first.startswith(b"{"):
        return _read_csv(path)
    if _is_cut(first):
        return read_rows(path, lines_of(path), parse_cut_row)
    table = _read_with_arrow(path)
    return table if table is not None else read_rows(path, lines_of(path), parse_json_row)


def _missing_file_message(path: Path) -> str:
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
    """The table if every row is certainly right, None if the rows must be read one by one."""
    # one thread: as fast on a busy machine, a tenth less memory, and no thread pool to fork workers from
    reading = pa_json.ReadOptions(use_threads=False, block_size=_BLOCK)
    parsing = pa_json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
    try:
        with _arrow_stream(path) as stream:
            table = pa_json.read_json(stream, reading, parsing)
        table.validate(full=True)  # the reader does not check that the bytes are UTF-8
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return table if _is_certainly_right(table) else None


def _is_certainly_right(table: pa.Table) -> bool:
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
    # in Sonosco's form the second column is the path of a text file; the first row shows whether it is
    text_is_path = text.strip().lower().endswith(".txt")
    parse_row = functools.partial(parse_csv_row, header=header, folder=path.parent, text_is_path=text_is_path)
    return read_rows(path, _records(path, skip=int(has_header)), parse_row)


def _records(path: Path, skip: int = 0) -> Iterator[list[str]]:
    with open_text(path) as stream:
        lines = (line.removeprefix(_BOM).decode() for line in read_lines(stream, path))
        for number, record in enumerate(record for record in csv.reader(lines) if record):
            if number >= skip:
                yield record


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a manifest that are not blank."""
    with open_text(path) as stream:
        for line in read_lines(stream, path):
            if stripped := line.removeprefix(_BOM).strip():
                yield stripped


def _arrow_stream(path: Path) -> Any:
    """The stream that Arrow reads; Arrow itself would unpack any file without a limit."""
    return pa.PythonFile(open_text(path), mode="r") if is_gzip(path) else pa.input_stream(str(path), compression=None)
