"""Which settings of a run may change when it is resumed, and why the others may not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.errors import ConfigError
from sonosco_like.optim import CyclicLR, OneCycleLR
from sonosco_like.optim.schedules import Schedule
from sonosco_like.serialization.context import Reader, Writer, join_path
from sonosco_like.serialization.definition import type_hints
from sonosco_like.serialization.document import parse
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.text import decode
from sonosco_like.serialization.types import converter_for

_ABSENT = "(absent)"
_CANNOT = "cannot change when a run is resumed:"

_ALLOWED = re.compile(
    r"epochs|max_duration|test_step|clip_grads|clip_values|device"
    r"|optimizer\.(lr|weight_decay|betas\[\d\]|eps|momentum|dampening|alpha|rho|momentum_decay)"
    r"|callbacks\[\d+\]\.(?!class$).+"
    r"|decoder\.(?!class$).+"
    r"|(train|val|test)_data_loader(\.\w+)?\.(num_workers|prefetch|pin_memory|dataset\.manifest)"
    r"|(val|test)_data_loader(\.\w+)?\.sampler\.batch_(size|seconds)"
)

_REASONS = [
    (r"(.*\.)?class", "what the run has learned is of the former class."),
    (r"model\b.*", "the weights of the checkpoint are those of the former model."),
    (r".*\.tokenizer\b.*", "the labels the model writes are those of the former tokenizer."),
    (r".*\.(features|normalization|cleaner)\b.*", "the model has learned from data prepared in the former way."),
    (r".*\.seed", "the order of the data and everything random follow from it."),
    (r"train_data_loader\.sampler\b.*", "the place in the epoch is counted in the former batches."),
    (r"train_data_loader\b.*", "the rest of the run would be on other data than its history says."),
    (r"accumulate_gradients|precision", "the checkpoint may hold gradients and scales made in the former way."),
    (r"scheduler\b.*", "this schedule keeps its settings in its state; only those given by a formula can change."),
    (r"optimizer\b.*", "the moments of the optimizer were made in the former way."),
    (r"callbacks\b.*", "callbacks are restored by their place in the list; none can be added, removed or replaced."),
]
_OUTER_REASONS = [
    (r"seed", "the order of the data and everything random follow from it."),
    (r"init_from\b.*", "first weights are taken at the start of a run only."),
    (r"(name|corpus|remote)\b.*", "it is read from config.yaml in the folder of the run; change it there."),
    (r"trainer\b.*", "give the settings of the trainer one by one, such as trainer.epochs=20."),
]


def reason_against(path: str, trainer: Any) -> str | None:
    """Why a setting may not change, or None if it may.

    Paths are those within the trainer, which has the change already; without a trainer, those of the experiment.
    """
    if trainer is None:
        known = _said(path, _OUTER_REASONS)
        return known or "is no setting of an experiment; those of the trainer begin with `trainer.`"
    if path == "optimizer.lr" and (owner := _owner_of_rates(trainer.scheduler)):
        return f"{_CANNOT} {owner} computes learning rates from its own settings, not from the optimizer's."
    if path.startswith("scheduler.") and not path.endswith(".class") and isinstance(trainer.scheduler, Schedule):
        return None
    if _ALLOWED.fullmatch(path):
        return None
    return _said(path, _REASONS) or f"{_CANNOT} the results so far were made with the former value."


def as_written(root: Node) -> Node:
    """The config of an experiment with the values beside its trainer as they would be saved: 2 minutes are 2.0.

    The trainer is left as it is, for building it takes long; so is what cannot be read, which others refuse.
    """
    if not isinstance(root, MappingNode):
        return root
    entry = REGISTRY.find("Experiment")
    hints = type_hints(entry.target) if entry is not None else {}
    hints = {name: hint for name, hint in hints.items() if name != "trainer"}
    found = [(key, _rewritten(value, hints.get(key.value))) for key, value in root.value]
    return MappingNode(root.tag, found, root.start_mark, root.end_mark)


def _rewritten(node: Node, hint: Any) -> Node:
    if hint is None:
        return node
    try:
        writer = Writer("Experiment", with_state=False)
        written = converter_for(hint).encode(decode(node, hint, Reader("--set")), writer)
        writer.raise_problems()
    except ConfigError:
        return node
    return written


def changed_leaves(old: str | Node, new: str | Node, paths: list[str]) -> dict[str, tuple[str, str]]:
    """Values that differ between two graphs, by path, as (old, new).

    What only one of them has is a change if it is under one of `paths`; else another version of a class wrote it.
    """
    before = _leaves(parse(old, "before") if isinstance(old, str) else old)
    after = _leaves(parse(new, "after") if isinstance(new, str) else new)
    found = {}
    for path in dict.fromkeys([*before, *after]):
        values = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if values[0] != values[1] and (_ABSENT not in values or path.startswith(tuple(paths))):
            found[path] = values
    return found


def _said(path: str, reasons: list[tuple[str, str]]) -> str | None:
    return next((f"{_CANNOT} {reason}" for pattern, reason in reasons if re.fullmatch(pattern, path)), None)


def _owner_of_rates(scheduler: Any) -> str | None:
    if isinstance(scheduler, (OneCycleLR, CyclicLR)):
        return type(scheduler).__name__
    return next(filter(None, map(_owner_of_rates, getattr(scheduler, "schedulers", ()))), None)


def _leaves(root: Node) -> dict[str, str]:
    """Scalars by path; a node that occurs twice is listed under its first path only."""
    found: dict[str, str] = {}
    seen: set[int] = set()
    stack: list[tuple[tuple[Any, ...], Node]] = [((), root)]
    while stack:
        parts, node = stack.pop()
        if isinstance(node, ScalarNode) or not node.value:
            found[join_path(parts)] = node.value if isinstance(node, ScalarNode) else "{}"
        elif id(node) not in seen:
            seen.add(id(node))
            stack.extend(reversed([((*parts, part), child) for part, child in _children(node)]))
    return found


def _children(node: Node) -> Iterator[tuple[Any, Node]]:
    if isinstance(node, MappingNode):
        yield from ((str(key.value), value) for key, value in node.value)
    else:
        yield from enumerate(node.value)
