"""Manifests with predictions: the texts that recognisers gave, in columns `pred_text` and `pred_text_*`.

NeMo and its tools write and read this form. Other columns are kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonosco_like.data.manifest import Manifest, derived_id, write_manifest
from sonosco_like.data.manifest_formats import (
    MOST_PROBLEMS,
    BadRowError,
    bad_rows_error,
    lines_of,
    make_row,
    parse_object,
    refuse_half_characters,
)
from sonosco_like.errors import DataError

PREDICTION = "pred_text"


@dataclass(frozen=True, slots=True)
class PredictedUtterance:
    """One row: the reference, and the text of each recogniser that gave one, by column."""

    id: str
    reference: str
    predictions: Mapping[str, str]
    duration: float
    speaker: str | None


def is_prediction(column: str) -> bool:
    """Whether a column holds what a recogniser wrote."""
    return column == PREDICTION or column.startswith(f"{PREDICTION}_")


def is_manifest(path: Path) -> bool:
    """Whether a path is, or is meant to be, a manifest in JSON lines; NeMo calls them .json."""
    if path.suffix in (".jsonl", ".gz"):
        return True
    return path.is_file() and b'"audio_filepath"' in next(_lines(path), b"")


def has_predictions(path: Path) -> bool:
    """Whether a manifest seems to have a column with predictions; a quick look."""
    return any(f'"{PREDICTION}'.encode() in line for line in lines_of(path))


def prediction_columns(rows: Sequence[PredictedUtterance]) -> list[str]:
    """The names of the columns with predictions, in the order of the file."""
    return list(dict.fromkeys(name for row in rows for name in row.predictions))


def read_predictions(path: Path) -> list[PredictedUtterance]:
    """All rows of a manifest in JSON lines; one `DataError` names every bad row. No audio is opened."""
    rows: list[PredictedUtterance] = []
    places: dict[str, int] = {}
    problems: list[tuple[int, str]] = []
    for number, line in enumerate(_lines(path), 1):
        try:
            row = _parse_row(line)
            if places.setdefault(row.id, number) != number:
                raise BadRowError(f"has the same id as row {places[row.id]}: {row.id!r}. Give each row its own `id`")
            rows.append(row)
        except BadRowError as error:
            problems.append((number, str(error)))
            if len(problems) == MOST_PROBLEMS:
                break
    if problems:
        raise bad_rows_error(path, problems)
    return rows


def _lines(path: Path) -> Iterator[bytes]:
    try:
        yield from lines_of(path)
    except (OSError, EOFError) as error:
        raise DataError(f"The manifest {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def _parse_row(line: bytes) -> PredictedUtterance:
    values = parse_object(line)
    row = make_row(values)
    predictions = {name: text for name, text in values.items() if is_prediction(name) and text is not None}
    for name, text in predictions.items():
        if not isinstance(text, str):
            raise BadRowError(f"`{name}` must be a text, got {text!r:.60}")
        refuse_half_characters(name, text)
    id = row.id or derived_id(row.audio_filepath, row.offset or 0.0)
    return PredictedUtterance(id, row.text, predictions, row.duration or 0.0, row.speaker)


def write_predictions(path: Path, manifest: Path, predictions: Mapping[str, str]) -> Path:
    """Write a manifest again with the column `pred_text`: for each utterance its prediction, by id.

    An utterance without a prediction keeps its row and gets no `pred_text`. Ids are written, because those that are
    derived from paths change where the new file is in another folder.
    """
    utterances = Manifest.read(manifest)
    others = _other_columns(manifest)
    columns = (_with_prediction(next(others, {}), predictions.get(each.id)) for each in utterances)
    return write_manifest(path, utterances, columns)


def _with_prediction(columns: dict[str, Any], text: str | None) -> dict[str, Any]:
    columns.pop(PREDICTION, None)
    return columns if text is None else {**columns, PREDICTION: text}


def _other_columns(manifest: Path) -> Iterator[dict[str, Any]]:
    """All columns of each row of a manifest in JSON lines; nothing for other forms."""
    for line in lines_of(manifest):
        if not line.startswith(b"{"):
            return
        try:
            row: dict[str, Any] = json.loads(line, parse_constant=lambda name: None, parse_float=_finite)
        except RecursionError:
            raise DataError(f"The manifest {manifest} has a row that is nested too deeply to be copied.") from None
        if "audio_filepath" not in row:  # a Lhotse cut
            return
        yield row


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None
