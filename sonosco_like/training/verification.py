"""Proving exact resume: a config is trained once unbroken and once with kills, and not a bit may differ."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sonosco_like.errors import SonoscoError, UsageError, list_some
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.runs.run_folder import FINAL, METRICS, STEP_CHECKSUMS, step_of
from sonosco_like.serialization import Document, diff, serializable
from sonosco_like.untrusted_files import allowed_places

_CLOCK = re.compile(r"(.*_)?(seconds?|time|wall|clock|elapsed|remaining)|seconds_.*")
_MACHINE = re.compile(r".*memory.*|(data_)?wait(ing)?(_.*)?|run_id")  # values that depend on the machine or the run
_FILES = re.compile(r"\btfevents\b")  # names and sizes of event files hold the time; their points are compared
_PARTS = re.compile(r"[^.\[\]'/]+")
_MOST_NAMED = 5
_END = 2**20  # bytes at the end of the file that hold its last rows


@dataclass(frozen=True)
class FirstDifference:
    """The first step after which two runs differed, and the names of the values that differed."""

    step: int
    epoch: int
    names: tuple[str, ...]
    before_any_kill: bool

    def __str__(self) -> str:
        return f"step {self.step} (epoch {self.epoch + 1}): {list_some(self.names, _MOST_NAMED)}"


def compare_runs(a: Path, b: Path) -> list[str]:
    """The differences between two finished runs: of their final trainers, then of the rows of their metrics."""
    found = [str(each) for each in diff(a / FINAL, b / FINAL) if not is_clock(each.path)]
    left, right = list(_metrics(a)), list(_metrics(b))
    for line, rows in enumerate(zip(left, right, strict=False), 1):
        for name in dict.fromkeys([*rows[0], *rows[1]]):
            values = [row.get(name, "(absent)") for row in rows]
            if values[0] != values[1]:
                found.append(f"metrics.jsonl:{line}: step {rows[0].get('step')}: {name}: {values[0]} -> {values[1]}")
    if len(left) != len(right):
        found.append(f"metrics.jsonl: {len(left)} rows -> {len(right)} rows")
    return found


def first_difference(whole: Path, killed: Path) -> FirstDifference | None:
    """The first step whose rows differ in the checksums of an unbroken run and of a killed run.

    A step that was lost in a kill and trained again has several rows, and each of them is compared.
    """
    expected = {row["step"]: row for row in _rows(whole / STEP_CHECKSUMS)}
    rows = list(_rows(killed / STEP_CHECKSUMS))
    for row in sorted(rows, key=lambda row: int(row["step"])):
        names = tuple(_differing_names(expected.get(row["step"], {}), row))
        if names:
            return FirstDifference(row["step"], row["epoch"], names, row["process"] == rows[0]["process"])
    return None


def steps_of(run: Path) -> int:
    """The number of steps that a run has trained, by its checksums."""
    return max((int(row["step"]) for row in _rows(run / STEP_CHECKSUMS)), default=0)


def last_step_of(run: Path, process: int) -> int:
    """The last step that a process has trained, by the end of its checksums; 0 if there is none."""
    path = run / STEP_CHECKSUMS
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END))
        rows = _parse_rows(file.read().decode(errors="replace"))
    return max((int(row["step"]) for row in rows if row["process"] == process), default=0)


def is_clock(path: str) -> bool:
    """Whether the value at a path comes from the clock or the machine, or belongs to a file named after the time."""
    if _FILES.search(path):
        return True
    parts = _PARTS.findall(path) if ".state_dict" not in path else []
    return any(_CLOCK.fullmatch(part) or _MACHINE.fullmatch(part) for part in parts)


def _differing_names(expected: dict[str, Any], row: dict[str, Any]) -> Iterator[str]:
    """The names of the values that differ between two rows of a step, in the order in which a batch computes them."""
    names = {"loss": "the loss", "rates": "the learning rate", "random": "the random generator"}
    yield from (text for name, text in names.items() if expected.get(name) != row[name])
    weights = expected.get("weights", {})
    yield from (f"the weights {name}" for name, value in row["weights"].items() if weights.get(name) != value)


def _metrics(folder: Path) -> Iterator[dict[str, Any]]:
    for row in _rows(folder / METRICS):
        yield {name: value for name, value in row.items() if not is_clock(name)}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    return _parse_rows(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else iter(())


def _parse_rows(text: str) -> Iterator[dict[str, Any]]:
    """The rows of JSON lines, without those that a kill has torn."""
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


_LONGEST_PAUSE = 0.5  # seconds, so that kills also fall into saves, validations and waits for a batch
_LONGEST_OUTPUT = 2000  # characters of a failed command in a message


@serializable(also=("StepWitness",))
class StepChecksums(AbstractCallback):
    """Writes a row with checksums of all weights to `step_checksums.jsonl` in the run folder after every batch.

    `sonosco verify-resume` adds it to both of its runs. The rows of every start stay, also those of steps that were
    lost and trained again; each row holds the id of its process.
    """

    order: int = 500

    def on_batch_end(self, moment: Moment) -> None:
        """Write a row."""
        context = moment.context
        row = {
            "step": context.global_step,
            "epoch": context.epoch,
            "process": os.getpid(),
            "loss": float(context.performance_measures.get("loss", float("nan"))).hex(),
            "random": _checksum(torch.get_rng_state()),
            "rates": [float(group["lr"]).hex() for group in context.optimizer.param_groups],
            "weights": _checksums(context.model.state_dict()),
        }
        assert context.experiment is not None, "verify-resume trains in a run folder"
        with (context.experiment.folder / STEP_CHECKSUMS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _checksums(values: dict[str, Any]) -> dict[str, int]:
    return {name: _checksum(value) for name, value in values.items() if isinstance(value, Tensor)}


def _checksum(tensor: Tensor) -> int:
    content: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return zlib.crc32(content)


class VerificationError(SonoscoError):
    """A run that should have finished failed."""

    exit_code = 1


@dataclass(frozen=True)
class Verdict:
    """The steps after which the second run was killed, and its differences from the unbroken run."""

    kills: tuple[int, ...]
    steps: int
    differences: tuple[str, ...]
    first: FirstDifference | None = None

    @property
    def is_exact(self) -> bool:
        """Whether not a bit differs."""
        return not self.differences and self.first is None


def verify_resume(
    config: Path,
    folder: Path,
    kills: int,
    overrides: Sequence[str] = (),
    modules: Sequence[str] = (),
    report: Callable[[str], None] = print,
    seed: int = 0,
) -> Verdict:
    """Train a config once unbroken and once with `kills` SIGKILLs at random moments, and compare both runs.

    `report` is called with one line for each step of the proof.
    """
    whole, killed = folder / "whole", folder / "killed"
    imports = [part for module in (StepChecksums.__module__, *modules) for part in ("--import", module)]
    imports += [part for place in allowed_places() for part in ("--allow-write", place)]
    settings = [
        part for override in (*overrides, _checksum_override(config, overrides)) for part in ("--set", override)
    ]
    train = ["train", "--config", str(config), *settings, *imports, "--run-dir"]
    folder.mkdir(parents=True, exist_ok=True)
    for path in (whole, killed):
        shutil.rmtree(path, ignore_errors=True)
    report("training once, unbroken")
    with _Process([*train, str(whole)], folder / "whole.log") as process:
        process.finish(whole)
    steps = steps_of(whole)
    generator = random.Random(seed)
    killed_after: list[int] = []
    for target in _draw_steps(generator, kills, steps):
        with _Process(_next_command(killed, train, imports), folder / "killed.log") as process:
            step = process.kill_after(killed, target, generator.uniform(0.0, _LONGEST_PAUSE))
        if step is None:
            break
        killed_after.append(step)
        report(f"killed after step {step} of {steps}; {_describe_last_checkpoint(killed)}")
    with _Process(_next_command(killed, train, imports), folder / "killed.log") as process:
        process.finish(killed)
    return Verdict(tuple(killed_after), steps, tuple(compare_runs(whole, killed)), first_difference(whole, killed))


class _Process:
    """A running `sonosco` command; leaving the `with` block kills it.

    Its output goes to a file, because a full pipe would block it.
    """

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            command = [sys.executable, "-m", "sonosco_like", *arguments]
            self._popen = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *error: object) -> None:
        self._popen.kill()
        self._popen.wait()

    def finish(self, folder: Path) -> None:
        """Wait for the end of a run. Raises VerificationError if the run did not finish."""
        self._popen.wait()
        self._refuse_failure(folder)
        if not (folder / FINAL).is_dir():
            raise VerificationError(f"The run in {folder} ended without writing {folder / FINAL}.")

    def kill_after(self, folder: Path, step: int, pause: float) -> int | None:
        """Kill a run `pause` seconds after it has trained a step; returns its last step, or None if it had ended."""
        while self._popen.poll() is None:
            if last_step_of(folder, self._popen.pid) >= max(step, _last_saved(folder) + 1):
                time.sleep(pause)
                break
            time.sleep(0.02)
        self._refuse_failure(folder)
        self._popen.kill()
        self._popen.wait()
        return None if (folder / FINAL).is_dir() else last_step_of(folder, self._popen.pid)

    def _refuse_failure(self, folder: Path) -> None:
        """Raise VerificationError with the end of the output if the command has failed."""
        if self._popen.poll():
            output = self._log.read_text(errors="replace")[-_LONGEST_OUTPUT:]
            raise VerificationError(f"The run in {folder} ended with exit code {self._popen.returncode}:\n{output}")


def _checksum_override(config: Path, overrides: Sequence[str]) -> str:
    """The override that appends a StepChecksums to the callbacks of a config."""
    if not config.is_file():
        raise UsageError(f"There is no config file {config}.")
    added = f"{{class: {StepChecksums.__name__}}}"
    callbacks = Document.read(config.resolve(), overrides, source=str(config)).get("trainer.callbacks")
    if isinstance(callbacks, list):
        return f"trainer.callbacks[{len(callbacks)}]={added}"
    return f"trainer.callbacks=[{added}]"


def _next_command(folder: Path, train: list[str], imports: list[str]) -> list[str]:
    """The command that resumes the run, or starts it if it has no checkpoint yet."""
    if Checkpoints(folder).newest() is not None:
        return ["resume", str(folder), *imports]
    shutil.rmtree(folder, ignore_errors=True)
    return [*train, str(folder)]


def _draw_steps(generator: random.Random, kills: int, steps: int) -> list[int]:
    """The steps after which to kill, all different if there are enough steps."""
    possible = range(1, max(2, steps))
    return sorted(generator.sample(possible, kills) if kills <= len(possible) else generator.choices(possible, k=kills))


def _describe_last_checkpoint(folder: Path) -> str:
    saved = _last_saved(folder)
    return f"its last checkpoint is of step {saved}" if saved else "it has no checkpoint yet, and starts again"


def _last_saved(folder: Path) -> int:
    return max(map(step_of, Checkpoints(folder).all()), default=0)
