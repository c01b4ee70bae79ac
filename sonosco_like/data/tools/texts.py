"""Text files of strangers."""

from __future__ import annotations

from pathlib import Path

from sonosco_like.errors import DataError
from sonosco_like.strangers import read_bytes

_LARGEST = 1 << 28


def read_text(path: Path, errors: str = "strict") -> str:
    """The content of a file in UTF-8; what cannot be read as that is a `DataError` that names it."""
    try:
        return read_bytes(path, _LARGEST).decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}). Convert it first.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
