"""Normalizers bring reference and hypothesis into one form before they are compared.

An error rate depends on them, so it is comparable only with rates of the same normalizer in the same version.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from collections.abc import Callable
from dataclasses import dataclass

from sonosco_like.data.text import TextCleaner
from sonosco_like.errors import MissingPackageError, UsageError, did_you_mean
from sonosco_like.records import UNKNOWN_TEXT

_PACKAGE = "whisper-normalizer"
_CLASSES = {"basic": "BasicTextNormalizer", "english": "EnglishTextNormalizer"}
_AROUND_UNKNOWN = re.compile(rf"(\s*{UNKNOWN_TEXT}\s*)")


@dataclass(frozen=True)
class Normalizer:
    """A rule for texts, with the name and the version under which results are reported.

    Without a `rule`, references are as the data loader gives them, cleaned as in training.
    """

    name: str
    version: str
    rule: Callable[[str], str] | None = None

    def __call__(self, text: str) -> str:
        """The text in the form of this normalizer."""
        return text if self.rule is None else self.rule(text)

    def __str__(self) -> str:
        return f"{self.name} ({self.version})"

    def as_dict(self) -> dict[str, str]:
        """Name and version as plain data for JSON."""
        return {"name": self.name, "version": self.version}


_OWN = "sonosco_like 1"  # count it up when the form of `training` or `none` changes
TRAINING = Normalizer("training", _OWN)
NONE = Normalizer("none", _OWN, str)
NAMES = (TRAINING.name, NONE.name, *_CLASSES)


def find_normalizer(name: str) -> Normalizer:
    """The normalizer with a name.

    `training` is the form of the training; `none` leaves texts as they are; `basic` and `english` are those of Whisper.
    """
    if name in _CLASSES:
        return _of_whisper(name)
    for known in (TRAINING, NONE):
        if name == known.name:
            return known
    hint = did_you_mean(name, NAMES)
    raise UsageError(f"There is no normalizer {name!r}{hint or '.'} Choose one of {', '.join(NAMES)}.")


def training_normalizer(cleaner: TextCleaner | None) -> Normalizer:
    """The normalizer `training` for texts from elsewhere: it cleans them as the texts of a training were cleaned."""

    def clean(text: str) -> str:  # a cleaner would remove the mark of unknown characters as punctuation
        parts = _AROUND_UNKNOWN.split(text)
        return "".join(part if cleaner is None or UNKNOWN_TEXT in part else cleaner(part) for part in parts)

    return Normalizer(TRAINING.name, TRAINING.version, clean)


def _of_whisper(name: str) -> Normalizer:
    try:
        module = importlib.import_module(f"whisper_normalizer.{name}")
    except ModuleNotFoundError:
        raise MissingPackageError(
            f"The normalizer {name!r} needs the package {_PACKAGE}. "
            f"Install it with: pip install 'sonosco_like[normalizers]'"
        ) from None
    rule = getattr(module, _CLASSES[name])()
    return Normalizer(name, f"{_PACKAGE} {importlib.metadata.version(_PACKAGE)}", lambda text: rule(text).strip())
