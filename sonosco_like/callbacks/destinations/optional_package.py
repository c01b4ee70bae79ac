"""Packages that only some users want."""

from __future__ import annotations

import importlib
from typing import Any

from sonosco_like.errors import MissingPackageError


def optional_package(name: str, wanted_by: str, extra: str) -> Any:
    """A package that is imported when it is used. Raises MissingPackageError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{wanted_by} needs the package {name.partition('.')[0]}, which cannot be imported ({error}). "
            f"Install it with: pip install 'sonosco_like[{extra}]'"
        ) from error
