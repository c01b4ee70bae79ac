"""The config of a run, as text and as a flat table, for callbacks that show it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sonosco_like.callbacks.media import Plain
from sonosco_like.errors import ConfigError
from sonosco_like.events import TrainerContext
from sonosco_like.redaction import mask_secrets, mask_setting
from sonosco_like.runs.run_folder import CONFIG
from sonosco_like.serialization import Document, dumps

_LEFT_OUT = ("callbacks",)  # callbacks are no hyperparameters


def config_text(context: TrainerContext) -> str | None:
    """The YAML of the run, without passwords; None if a part of the trainer cannot be written as YAML."""
    text = _yaml(context)
    return None if text is None else mask_secrets(text)


def _yaml(context: TrainerContext) -> str | None:
    """The config file in the run folder; without one, the YAML of the trainer."""
    if context.experiment is not None:
        file = Path(context.experiment.folder) / CONFIG
        if file.exists():
            return file.read_text(encoding="utf-8")
    try:
        return dumps(context, state=False)
    except ConfigError:
        return None


def hyperparameters(context: TrainerContext) -> dict[str, Plain]:
    """The numbers, texts and truth values of the config by path, `optimizer.lr`; empty if there is no YAML."""
    text = _yaml(context)
    return {} if text is None else dict(_flat(Document.parse(text, "config").get(), ()))


def _flat(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Plain]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _LEFT_OUT:
                yield from _flat(inner, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _flat(item, (*path, str(place)))
    elif value is not None:
        yield ".".join(path), mask_setting(path[-1] if path else "", value) if isinstance(value, str) else value
