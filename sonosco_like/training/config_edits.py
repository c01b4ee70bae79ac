"""What a config changes in a run that was begun already: taken over where it may be, else refused."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sonosco_like.errors import ConfigError, Problem
from sonosco_like.run_folder import CONFIG
from sonosco_like.serialization import dumps, files
from sonosco_like.serialization.context import describe, join_path
from sonosco_like.serialization.document import MAX_BYTES, parse, write
from sonosco_like.serialization.scalars import STR
from sonosco_like.training.change_rules import reason_against
from sonosco_like.training.changes import config_changes
from sonosco_like.training.checkpoints import Checkpoints
from sonosco_like.training.experiment import Experiment, open_run, read_experiment
from sonosco_like.training.identity import read_environment

logger = logging.getLogger(__name__)

Parts = tuple[Any, ...]
_TRAINER = "trainer"
_MOST_NAMED = 30  # entries of a list in a message


def open_with_config(
    folder: Path, config: Path, overrides: Sequence[str], read: Callable[[], Experiment]
) -> tuple[Experiment, int]:
    """The run in a folder with what the experiment that `read` gives changes in it, and the step it is at.

    `overrides` are the settings that were given beside the config. Raises ConfigError for all that may not change.
    """
    given = read()
    text = dumps(given, state=False)
    found = _edits(folder, text)
    if Checkpoints(folder).newest() is None and Checkpoints(folder).final() is None and found:
        experiment, step = open_run(folder)  # which refuses a run of which something is lost
        return _begun_anew(folder, found, read, experiment.started), step
    _refuse(found, given, folder, config)
    settings = [f"{join_path(parts)}={_flow(new)}" for parts, _, new in found if new is not None]
    return open_run(folder, [*settings, *overrides], by_config=True)


def _edits(folder: Path, text: str) -> list[tuple[Parts, Node | None, Node | None]]:
    """Where a config differs from the one that was given for this run before, in what it means."""
    earlier = config_changes(folder)
    if not earlier and files.read_file(folder / CONFIG, MAX_BYTES) == text.encode():
        return []
    before = dumps(read_experiment(folder / CONFIG, earlier), state=False)
    began_in = Path(str(read_environment(folder).get("folder", ".")))
    return list(_differences(parse(before, CONFIG), parse(text, "config"), began_in))


def _begun_anew(
    folder: Path, found: list[tuple[Parts, Node | None, Node | None]], read: Callable[[], Experiment], started: str
) -> Experiment:
    """A run of which nothing was saved begins with the config as it is now."""
    for parts, old, new in found:
        logger.warning("Nothing was saved yet, so this changes: %s: %s -> %s", join_path(parts), _said(old), _said(new))
    experiment = read()
    experiment.folder, experiment.started, experiment.replaces_config = folder, started, True
    return experiment


def _refuse(found: list[tuple[Parts, Node | None, Node | None]], given: Experiment, folder: Path, config: Path) -> None:
    problems = []
    for parts, old, new in found:
        inner = parts[0] == _TRAINER
        reason = reason_against(join_path(parts[1:] if inner else parts), given.trainer if inner else None)
        if reason is not None:
            problems.append(Problem(f"{_said(old)} -> {_said(new)}: {reason}", join_path(parts), str(config)))
    if problems:
        last, place = problems[-1], shlex.quote(str(folder))
        remedy = (
            f"{folder} holds a run of another config. Train this one in a folder of its own: --run-dir {_free(folder)}"
            f" (add --set init_from={place} to begin with the weights of that run), or continue that run as it is: "
            f"sonosco resume {place}"
        )
        problems[-1] = Problem(f"{last.message}\n{remedy}", last.path, last.source)
        raise ConfigError(problems)


def _differences(old: Node, new: Node, began_in: Path) -> Iterator[tuple[Parts, Node | None, Node | None]]:
    """The places where two configs differ: values, and the topmost objects and lists of another form."""
    stack: list[tuple[Parts, Node, Node]] = [((), old, new)]
    seen: set[tuple[int, int]] = set()  # what an alias repeats was compared already
    while stack:
        parts, a, b = stack.pop()
        if (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if isinstance(a, ScalarNode) and isinstance(b, ScalarNode):
            if not _is_same(a, b, began_in):
                yield parts, a, b
        elif isinstance(a, MappingNode) and isinstance(b, MappingNode):
            one, other = _entries(a), _entries(b)
            if "class" in one and "class" in other and one["class"].value != other["class"].value:
                yield (*parts, "class"), one["class"], other["class"]
            elif one.keys() != other.keys():
                yield parts, a, b
            else:
                stack.extend(reversed([((*parts, name), one[name], other[name]) for name in one]))
        elif isinstance(a, SequenceNode) and isinstance(b, SequenceNode) and len(a.value) == len(b.value):
            pairs = zip(a.value, b.value, strict=True)
            stack.extend(reversed([((*parts, place), *pair) for place, pair in enumerate(pairs)]))
        else:
            yield parts, a, b


def _is_same(a: ScalarNode, b: ScalarNode, began_in: Path) -> bool:
    """Whether two values mean the same: 2 and 2.0 do, and two paths to one file."""
    if a.value == b.value:
        return True
    try:
        return STR not in (a.tag, b.tag) and float(a.value) == float(b.value)
    except ValueError:
        pass
    try:
        there, here = (began_in / a.value).resolve(), Path(b.value).resolve()
        return there == here and here.exists()
    except (OSError, ValueError, RuntimeError):  # no path at all
        return False


def _entries(node: MappingNode) -> dict[str, Node]:
    return {str(key.value): value for key, value in node.value}


def _flow(node: Node) -> str:
    """A value as it is written behind `--set path=`."""
    return write(node).removesuffix("...\n").strip()


def _said(node: Node | None) -> str:
    if isinstance(node, SequenceNode):
        more = ", ..." if len(node.value) > _MOST_NAMED else ""
        return f"[{', '.join(map(_named, node.value[:_MOST_NAMED]))}{more}]"
    return "nothing" if node is None else describe(node)


def _named(node: Node) -> str:
    """An entry of a list by its class."""
    entries = _entries(node) if isinstance(node, MappingNode) else {}
    return str(entries["class"].value) if "class" in entries else describe(node)


def _free(folder: Path) -> str:
    """A name near that of a folder which nothing has yet."""
    names = (folder.with_name(f"{folder.name}-{number}") for number in range(2, 10_000))
    return shlex.quote(str(next(path for path in names if not path.exists())))
