"""The version, in one place; `setup.py` reads this file as text."""

__version__ = "0.1.0"
