"""What torch says of settings that cannot be, as an error of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sonosco_like.errors import UsageError


@contextmanager
def refusals_explained(what: str) -> Iterator[None]:
    """Have torch's errors in making something say what could not be made."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(f"{what} cannot be made from its settings: {str(error).rstrip('.')}.") from error
