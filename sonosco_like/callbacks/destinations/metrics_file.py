"""`metrics.jsonl`: what was logged, as one JSON object per step."""

from __future__ import annotations

import json
import math
from pathlib import Path

from sonosco_like.callbacks.destinations.destination import Plain
from sonosco_like.callbacks.destinations.rows import RowFile
from sonosco_like.run_folder import METRICS
from sonosco_like.serialization import serializable
from sonosco_like.strangers import LONGEST_LINE


@serializable
class MetricsFile(RowFile):
    """Writes a JSON object per logged step: `step`, `epoch`, `seconds` of training, then what was logged.

    JSON knows no infinite numbers; they are the texts "NaN", "Infinity" and "-Infinity". After a resume the file is
    that of an unbroken run but for `seconds` and other readings of the clock.
    """

    path: str = METRICS

    def encoded(self, row: dict[str, Plain]) -> bytes:
        finite = {name: _finite(value) for name, value in row.items()}
        return json.dumps(finite, ensure_ascii=False, allow_nan=False).encode() + b"\n"

    def kept(self, path: Path, before: int) -> bytes:
        kept: list[bytes] = []
        with path.open("rb") as file:
            while _is_row_before(line := file.readline(LONGEST_LINE), before):
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
