"""The trained recogniser, for the tests of this folder."""

from trained_runs import digits

__all__ = ["digits"]
