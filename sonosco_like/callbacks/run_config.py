"""The config of a run, for whoever shows it: as text, and as a flat table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sonosco_like.callbacks.destinations.destination import Plain
from sonosco_like.errors import ConfigError
from sonosco_like.passwords import masked, masked_value
from sonosco_like.run_folder import CONFIG
from sonosco_like.serialization import dumps
from sonosco_like.serialization.document import parse
from sonosco_like.serialization.scalars import BOOL, FLOAT, INT, NULL, kind_of, read_float, read_int

_LEFT_OUT = ("callbacks",)  # they watch a run; what is learned does not depend on them
_READ: dict[str, Callable[[str], Plain]] = {INT: read_int, FLOAT: read_float, BOOL: lambda text: text.lower() == "true"}


def config_text(context: Any) -> str | None:
    """The YAML of the run, without passwords; None if it has parts without a YAML."""
    text = _yaml(context)
    return None if text is None else masked(text)


def _yaml(context: Any) -> str | None:
    """The file in the folder of a run, else what the trainer would be written as."""
    if context.experiment is not None:
        file = Path(context.experiment.folder) / CONFIG
        if file.exists():
            return file.read_text(encoding="utf-8")
    try:
        return dumps(context, state=False)
    except ConfigError:
        return None


def hyperparameters(context: Any) -> dict[str, Plain]:
    """The numbers, texts and truth values of the config of a run by their path, `optimizer.lr`; none without YAML."""
    text = _yaml(context)
    return {} if text is None else dict(_flat(parse(text, "config"), ()))


def _flat(node: Node, path: tuple[str, ...]) -> Iterator[tuple[str, Plain]]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if key.value not in _LEFT_OUT:
                yield from _flat(value, (*path, key.value))
    elif isinstance(node, SequenceNode):
        for place, item in enumerate(node.value):
            yield from _flat(item, (*path, str(place)))
    elif isinstance(node, ScalarNode) and kind_of(node) != NULL:
        convert = _READ.get(kind_of(node), str)
        value = convert(node.value)
        yield ".".join(path), masked_value(path[-1] if path else "", value) if isinstance(value, str) else value
