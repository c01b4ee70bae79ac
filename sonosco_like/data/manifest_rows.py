"""One row of a manifest at a time: what it must hold, and in words what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from sonosco_like.data.audio import MOST_SECONDS
from sonosco_like.errors import DataError, did_you_mean
from sonosco_like.strangers import read_bytes

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


class Row(NamedTuple):
    """The values of one row in the order of `SCHEMA`; None where the manifest does not say."""

    id: str | None
    audio_filepath: str
    duration: float | None
    text: str
    speaker: str | None
    offset: float | None


class BadRowError(ValueError):
    """What is wrong with a row."""


def read_rows(path: Path, records: Iterable[Any], row_of: Callable[[Any], Row]) -> pa.Table:
    """Columns from the records of a file; the bad ones are named together, as far as one can read."""
    problems: list[tuple[int, str]] = []
    rows = _good_rows(records, row_of, problems)
    batches = []
    while chunk := list(islice(rows, _CHUNK)):
        columns = [pa.array(values, kind) for values, kind in zip(zip(*chunk, strict=True), SCHEMA.types, strict=True)]
        batches.append(pa.record_batch(columns, SCHEMA))
    if problems:
        raise bad_rows(path, problems)
    return pa.Table.from_batches(batches, SCHEMA)


def bad_rows(path: Path, problems: Sequence[tuple[int, str]]) -> DataError:
    """One error for several rows, which are numbered from 1; blank lines and the header are not counted."""
    listed = "\n".join(f"  row {number}: {message}" for number, message in problems[:MOST_PROBLEMS])
    more = "\n  (there may be more)" if len(problems) >= MOST_PROBLEMS else ""
    return DataError(f"The manifest {path} has rows that cannot be used. Correct or remove them:\n{listed}{more}")


def _good_rows(records: Iterable[Any], row_of: Callable[[Any], Row], problems: list[tuple[int, str]]) -> Iterator[Row]:
    for number, record in enumerate(records, 1):
        try:
            yield row_of(record)
        except BadRowError as error:
            problems.append((number, str(error)))
            if len(problems) == MOST_PROBLEMS:
                return


def row_of_json(line: bytes) -> Row:
    """A line of our own form."""
    return _row(_parse(line))


def row_of_cut(line: bytes) -> Row:
    """A line of a Lhotse `CutSet`: a part of one recording with what is said in it."""
    cut = _parse(line)
    try:
        sources = cut["recording"]["sources"]
        if len(sources) != 1 or sources[0]["type"] != "file":
            raise BadRowError("must be a cut of one recording in one audio file; other sources are not read")
        supervisions = cut.get("supervisions") or []
        speakers = {part.get("speaker") for part in supervisions}
        return _row(
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


def row_of_csv(cells: list[str], header: list[str], folder: Path, text_is_path: bool) -> Row:
    """A CSV record whose cells are named by `header`; an empty cell says nothing."""
    if len(cells) > len(header) or len(cells) < 2:
        raise BadRowError(f"must have 2 to {len(header)} columns ({', '.join(filter(None, header))}), got {len(cells)}")
    values: dict[str, Any] = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()}
    for name in ("duration", "offset"):
        if name in values:
            values[name] = _number(name, values[name])
    values.setdefault("text", "")
    if text_is_path:
        values["text"] = _transcript(folder / values["text"])
    return _row(values)


def _transcript(path: Path) -> str:
    try:
        return " ".join(read_bytes(path, _LARGEST_TRANSCRIPT).decode().split())
    except (OSError, UnicodeDecodeError, DataError) as error:
        raise BadRowError(f"names a transcript that cannot be read: {error}") from None


def _parse(line: bytes) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except RecursionError:
        raise BadRowError("is nested too deeply") from None
    except ValueError as error:
        raise BadRowError(f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadRowError(f"must be a JSON object, got {_shown(content)}")
    return content


def _row(values: dict[str, Any]) -> Row:
    audio, text = values.get("audio_filepath"), values.get("text")
    if not isinstance(audio, str) or not audio:
        hint = did_you_mean("audio_filepath", values.keys()) if "audio_filepath" not in values else ""
        raise BadRowError(f"`audio_filepath` must be the path of a recording, got {_shown(audio)}{hint}")
    if not isinstance(text, str):
        raise BadRowError(f"`text` must be the transcript, got {_shown(text)}")
    for name in ("audio_filepath", "text", "id", "speaker"):
        _refuse_half_characters(name, values.get(name))
    return Row(
        _name("id", values),
        audio,
        _seconds("duration", values),
        text,
        _name("speaker", values),
        _seconds("offset", values),
    )


def _refuse_half_characters(key: str, value: Any) -> None:
    """JSON can name halves of characters, which no text in UTF-8 can hold."""
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise BadRowError(f"`{key}` holds half of a character, got {_shown(value)}") from None


def _name(key: str, values: dict[str, Any]) -> str | None:
    value = values.get(key)
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadRowError(f"`{key}` must be a text or a whole number, got {_shown(value)}")


def _seconds(key: str, values: dict[str, Any]) -> float | None:
    value = values.get(key)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= MOST_SECONDS:
        said = f"`{key}` must be a number of seconds, not negative and at most {MOST_SECONDS:,.0f}"
        raise BadRowError(f"{said}, got {_shown(value)}")
    return float(value)


def _number(key: str, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise BadRowError(f"`{key}` must be a number of seconds, got {_shown(cell)}") from None


def _shown(value: Any) -> str:
    text = repr(value) if value is not None else "nothing"
    return text if len(text) <= 60 else text[:57] + "..."
