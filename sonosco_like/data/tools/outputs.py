"""Never writing over what is there, unless told to."""

from __future__ import annotations

from pathlib import Path

from sonosco_like.errors import UsageError


def claim_file(path: Path, force: bool) -> None:
    """Refuse a file that exists, unless forced."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; a name for a file is needed.")
    if path.exists() and not force:
        raise UsageError(f"The file {path} exists. Choose another name, or write over it with --force.")
