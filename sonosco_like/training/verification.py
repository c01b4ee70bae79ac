"""The proof that a run can be killed: once whole, once with kills, and not a bit of difference."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonosco_like.errors import SonoscoError
from sonosco_like.serialization import diff
from sonosco_like.training.checkpoints import Checkpoints, step_of

Say = Callable[[str], None]
_CLOCK = ("seconds", "time", "per_second", "heard", "wall")


class VerificationError(SonoscoError):
    """A run that should have come to its end did not."""


@dataclass(frozen=True)
class Verdict:
    """Where the killed run was killed, and how it differs from the whole one."""

    kills: tuple[int, ...]
    steps: int
    differences: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether not a bit differs."""
        return not self.differences


def verify_resume(
    config: Path,
    folder: Path,
    kills: int,
    overrides: Sequence[str] = (),
    modules: Sequence[str] = (),
    say: Say = print,
    seed: int = 0,
) -> Verdict:
    """Train a config once whole and once with so many kills -9 at drawn moments, and compare what they leave."""
    whole, killed = folder / "whole", folder / "killed"
    imports = [part for module in modules for part in ("--import", module)]
    settings = [part for override in overrides for part in ("--set", override)]
    train = ["train", "--config", str(config), *settings, *imports, "--run-dir"]
    for path in (whole, killed):
        shutil.rmtree(path, ignore_errors=True)
    say("training once, unbroken")
    _finish(_start([*train, str(whole)]), whole)
    steps = _last_step(whole)
    drawn = random.Random(seed)
    fell: list[int] = []
    for target in sorted(drawn.randint(1, max(1, steps - 1)) for _ in range(kills)):
        at = _kill_after(_start(_next_command(killed, train, imports)), killed, target, drawn.uniform(0.0, 0.5))
        if at is None:
            break
        fell.append(at)
        say(f"killed after step {at} of {steps}")
    _finish(_start(_next_command(killed, train, imports)), killed)
    return Verdict(tuple(fell), steps, tuple(compare_runs(whole, killed)))


def compare_runs(a: Path, b: Path) -> list[str]:
    """Where two finished runs differ, clocks aside: final trainers, then the rows of their metrics."""
    found = [str(each) for each in diff(a / "final", b / "final") if not _is_clock(each.path)]
    rows = zip(_rows(a), _rows(b), strict=False)
    for line, (left, right) in enumerate(rows, 1):
        for name in left:
            if left[name] != right.get(name):
                found.append(f"metrics.jsonl:{line}: {name}: {left[name]} -> {right.get(name)}")
    lengths = len(_rows(a)), len(_rows(b))
    return found + ([f"metrics.jsonl: {lengths[0]} rows -> {lengths[1]} rows"] if lengths[0] != lengths[1] else [])


def _next_command(folder: Path, train: list[str], imports: list[str]) -> list[str]:
    """Resume the run, or begin it if it was killed before its first checkpoint, or never began."""
    if Checkpoints(folder).newest() is not None:
        return ["resume", str(folder), *imports]
    shutil.rmtree(folder, ignore_errors=True)
    return [*train, str(folder)]


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sonosco_like", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603


def _finish(process: subprocess.Popen[str], folder: Path) -> None:
    said, _ = process.communicate()
    if process.returncode or not (folder / "final").is_dir():
        raise VerificationError(f"The run in {folder} ended with exit code {process.returncode}:\n{said[-2000:]}")


def _kill_after(process: subprocess.Popen[str], folder: Path, step: int, pause: float) -> int | None:
    """Kill a run some time after it saved a step; None if it came to its end before."""
    while process.poll() is None:
        if _last_step(folder) >= step:
            time.sleep(pause)
            break
        time.sleep(0.02)
    process.kill()
    process.communicate()
    return None if (folder / "final").is_dir() else _last_step(folder)


def _last_step(folder: Path) -> int:
    return max((step_of(path) for path in Checkpoints(folder).all()), default=0)


def _rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{name: value for name, value in row.items() if not _is_clock(name)} for row in rows]


def _is_clock(name: str) -> bool:
    return any(word in name for word in _CLOCK)
