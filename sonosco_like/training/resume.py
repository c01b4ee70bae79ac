"""Opening a run to continue it from its newest checkpoint, with the changes of a config or of `--set`."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sonosco_like.errors import ConfigError, Problem, SonoscoError, StorageError, UsageError
from sonosco_like.runs.checkpoints import Checkpoints, own_final
from sonosco_like.runs.fetching import fetch_run
from sonosco_like.runs.identity import checkpoint_folders, read_environment
from sonosco_like.runs.remote_copy import is_url
from sonosco_like.runs.run_folder import CONFIG, FINAL, WRITTEN
from sonosco_like.serialization import Document, absolute_path, field_types, join_path, read_file
from sonosco_like.training.assembly import choose_device
from sonosco_like.training.changes import Changes, config_changes, reason_against
from sonosco_like.training.experiment import Experiment, build_experiment, read_config
from sonosco_like.training.processes import Processes
from sonosco_like.untrusted_files import refuse_links

logger = logging.getLogger(__name__)

Parts = tuple[Any, ...]
_TRAINER = "trainer"
_LOADER_SEED = re.compile(r"trainer\.\w+_data_loader(\.\w+)?\.seed")
_MOST_NAMED = 30  # entries of a list in a message


def open_run(
    run: str | Path, overrides: Iterable[str] = (), into: Path | None = None, by_config: bool = False
) -> tuple[Experiment, int]:
    """The experiment of a run at its newest intact checkpoint, and the step of that checkpoint.

    `run` is a run folder, or the URL of a remote copy, which is fetched to the folder `into`, or to `runs/<its name>`.
    `by_config` means that the overrides are edits of the config file itself.
    """
    if is_url(str(run)):
        run = _fetch_for_all(str(run), into)
    folder = absolute_path(run)
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{run} is not a run folder: it has no {CONFIG}.")
    refuse_links(folder, WRITTEN)
    newest = Checkpoints(folder).newest() or Checkpoints(folder).final()
    if newest is None:
        _refuse_to_begin_again(folder)
        logger.warning(
            "%s has no checkpoint yet: it starts again from its %s, with weights drawn from its seed; weights that a "
            "program loaded into the model are lost.", folder, CONFIG,
        )  # fmt: skip
    changes = Changes(folder, newest, overrides, by_config)
    config = read_config(folder / CONFIG, changes.for_config())
    experiment = build_experiment(config)
    experiment.use_folder(folder, started=_started(folder), is_resumed=True)
    experiment.changes = changes
    if newest is not None:
        wanted, processes = experiment.trainer.device, experiment.trainer.processes
        choose_device(
            wanted, processes.local_rank, processes.size
        )  # first, because loading would report a wrong device as damaged state
        outer = {name: kind for name, kind in field_types(Experiment).items() if name != _TRAINER}
        experiment.trainer = changes.load(config, outer)
    return experiment, experiment.trainer.global_step


def open_with_config(
    folder: Path, config: Path, overrides: Sequence[str], read: Callable[[], Experiment]
) -> tuple[Experiment, int]:
    """The experiment of a run with the changes of an edited config, and the step of the run.

    `read` builds the experiment of the edited config; `overrides` are settings from the command line. Raises
    ConfigError with every change that is not allowed.
    """
    given = read()
    after = Document.of(given)
    before = _config_of_run(folder, after)
    differing = _differences(before.get(), after.get(), _began_in(folder))
    found = [parts for parts in differing if not _leaves_seed_open(after, parts)]
    if Checkpoints(folder).newest() is None and Checkpoints(folder).final() is None and found:
        _, step = open_run(folder)  # it refuses a run that has lost its checkpoints
        for parts in found:
            old, new = _describe(before, parts), _describe(after, parts)
            logger.warning(
                "The run has no checkpoint yet, so the config changes: %s: %s -> %s", join_path(parts), old, new
            )
        experiment = read()
        experiment.use_folder(folder, started=_started(folder), is_resumed=True)
        experiment.replaces_config = True
        return experiment, step
    problems = []
    for parts in found:
        inner = parts[0] == _TRAINER
        reason = reason_against(join_path(parts[1:] if inner else parts), given.trainer if inner else None)
        if reason is not None:
            change = f"{_describe(before, parts)} -> {_describe(after, parts)}"
            problems.append(Problem(f"{change}: {reason}", join_path(parts), str(config)))
    if problems:
        raise _refusal(problems, folder)
    settings = [f"{join_path(parts)}={after.text(parts).strip()}" for parts in found]
    return open_run(folder, [*settings, *overrides], by_config=True)


def _leaves_seed_open(given: Document, parts: Parts) -> bool:
    """Whether a config names no seed for a loader: the run keeps the one that it has, as older runs do."""
    return bool(_LOADER_SEED.fullmatch(join_path(parts))) and given.get(parts) is None


def _config_of_run(folder: Path, given: Document) -> Document:
    """The config of a run with the edits that earlier resumes recorded; `given` itself if it is the same."""
    edits = config_changes(folder)
    if not edits and read_file(folder / CONFIG) == given.text().encode():
        return given
    return Document.of(read_config(folder / CONFIG, edits).build(Experiment))


def _refusal(problems: list[Problem], folder: Path) -> ConfigError:
    last, place = problems[-1], shlex.quote(str(folder))
    remedy = (
        f"{folder} holds a run of another config. Train this config in another folder: --run-dir {_free_name(folder)}"
        f" (add --set init_from={place} to start with the weights of that run), or continue that run as it is: "
        f"sonosco resume {place}"
    )
    return ConfigError([*problems[:-1], Problem(f"{last.message}\n{remedy}", last.path, last.source)])


def _differences(old: Any, new: Any, began_in: Path) -> Iterator[Parts]:
    """The paths at which two configs differ: of values, and of the topmost objects and lists that do not match."""
    stack: list[tuple[Parts, Any, Any]] = [((), old, new)]
    seen: set[tuple[int, int]] = set()  # aliases refer to pairs that were compared before
    while stack:
        parts, a, b = stack.pop()
        if isinstance(a, (dict, list)):
            if (id(a), id(b)) in seen:
                continue
            seen.add((id(a), id(b)))
        if isinstance(a, dict) and isinstance(b, dict):
            if "class" in a and "class" in b and a["class"] != b["class"]:
                yield (*parts, "class")
            elif a.keys() != b.keys():
                yield parts
            else:
                stack.extend(reversed([((*parts, name), a[name], b[name]) for name in a]))
        elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            stack.extend(reversed([((*parts, place), *pair) for place, pair in enumerate(zip(a, b, strict=True))]))
        elif not _is_same(a, b, began_in):
            yield parts


def _is_same(a: Any, b: Any, began_in: Path) -> bool:
    """Whether two values mean the same, as 2 and 2.0 do, or two paths to one file."""
    if isinstance(a, str) and isinstance(b, str):
        return a == b or _is_one_file(a, b, began_in)
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b or (a != a and b != b))


def _is_one_file(a: str, b: str, began_in: Path) -> bool:
    try:
        there, here = (began_in / a).resolve(), Path(b).resolve()
        return there == here and here.exists()
    except (OSError, ValueError, RuntimeError):  # not a path
        return False


def _describe(document: Document, parts: Parts) -> str:
    """The value at a path, for messages; a list is shown as the classes of its entries."""
    value = document.get(parts)
    if not isinstance(value, list):
        return document.describe(parts)
    names = [
        str(each["class"]) if isinstance(each, dict) and "class" in each else document.describe((*parts, place))
        for place, each in enumerate(value[:_MOST_NAMED])
    ]
    return f"[{', '.join([*names, '...'] if len(value) > _MOST_NAMED else names)}]"


def _free_name(folder: Path) -> str:
    """The name of a folder with a number after it, such as `las-2`, that does not exist yet."""
    names = (folder.with_name(f"{folder.name}-{number}") for number in range(2, 10_000))
    return shlex.quote(str(next(path for path in names if not path.exists())))


def _started(folder: Path) -> str:
    return str(read_environment(folder).get("started", ""))


def _began_in(folder: Path) -> Path:
    return Path(str(read_environment(folder).get("folder", ".")))


def _fetch_for_all(url: str, into: Path | None) -> Path:
    """The folder to which the first process has fetched a run; the other processes wait for it."""
    processes = Processes()
    folder, failure = "", None
    if processes.is_first:
        try:
            folder = str(fetch_run(url, into))
        except SonoscoError as error:
            failure = error
    folder = processes.from_first(folder)
    if not folder:
        raise failure or UsageError(f"{url} could not be fetched by the first process.")
    return Path(folder)


def _refuse_to_begin_again(folder: Path) -> None:
    """Raise if the run folder holds checkpoints, none of which can be used, since a new start would replace them."""
    if Checkpoints(folder).all() or own_final(folder) is not None:
        raise StorageError(
            f"Every checkpoint in {folder} is damaged. Nothing was changed. Restore the checkpoints from a copy, or "
            "start a new run in another folder."
        )
    if checkpoint_folders(folder) or (folder / FINAL).exists():
        raise UsageError(f"Every checkpoint in {folder} is of another run. Move them elsewhere, and resume again.")
