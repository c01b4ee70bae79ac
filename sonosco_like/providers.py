"""Who knows further definitions, asked when a name in a file is first missed.

A list of its own, so that `import sonosco_like` can add to it without importing the room that reads it.
"""

from __future__ import annotations

from collections.abc import Callable

PROVIDERS: list[Callable[[], None]] = []
"""Functions that import definitions; each is called once."""
