"""How measures are shown to people: `val_word_error_rate` is `wer/val` in TensorBoard and 12.3 % in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sonosco_like.metrics import describe

TRAINING = "train"
_SHORT = {"word_error_rate": "wer", "character_error_rate": "cer", "sentence_error_rate": "ser"}
_ALWAYS_MEASURED = ("loss", "gradient_norm")


def number_among(one: Any, alike: Sequence[Any]) -> int:
    """Which of several callbacks of a kind one is, from 0: what two of them write must not have one name."""
    return next((number for number, other in enumerate(alike) if other is one), 0)


def families_of(context: Any) -> list[str]:
    """What the trainer measures on one set of data or another: the loss, the gradients, its metrics."""
    return [*_ALWAYS_MEASURED, *(describe(metric).name for metric in context.metrics)]


def family_and_set(name: str, families: Iterable[str]) -> tuple[str, str] | None:
    """`val_loss` is of the family `loss` on the set `val`, `loss` on the set `train`; None for other logged values."""
    behind = [family for family in families if name == family or name.endswith(f"_{family}")]
    if not behind or "/" in name:
        return None
    family = max(behind, key=len)
    return family, name.removesuffix(family).rstrip("_") or TRAINING


def short_name(name: str) -> str:
    """`val_word_error_rate` as `val_wer`, as everybody in the field says."""
    for long, short in _SHORT.items():
        if name.endswith(long):
            return name.removesuffix(long) + short
    return name


def tag_of(name: str, families: Iterable[str]) -> str:
    """The name under which curves that belong together stand together: `loss/train`, `loss/val`, `wer/val`."""
    found = family_and_set(name, families)
    return name if found is None else f"{short_name(found[0])}/{found[1]}"


def is_rate(name: str) -> bool:
    """Whether a measure is a share of errors, which people read in percent."""
    return name.endswith(tuple(_SHORT))


def shown(name: str, value: Any) -> str:
    """A value as text: error rates in percent, other numbers with four digits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if is_rate(name):
        return f"{100 * value:.1f} %"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
