"""The proof that a run can be killed: once whole, once with kills, and not a bit of difference."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from yaml.nodes import MappingNode, Node, SequenceNode

from sonosco_like.errors import SonoscoError, UsageError
from sonosco_like.permissions import places_allowed
from sonosco_like.run_folder import FINAL, step_of
from sonosco_like.serialization import files
from sonosco_like.serialization.document import MAX_BYTES, parse
from sonosco_like.serialization.overrides import apply_overrides
from sonosco_like.training.checkpoints import Checkpoints
from sonosco_like.training.comparison import FirstDifference, compare_runs, first_difference, last_step_of, steps_of
from sonosco_like.training.witness import StepWitness

Say = Callable[[str], None]
_WITNESS = f"{{class: {StepWitness.__name__}}}"
_LONGEST_PAUSE = 0.5  # seconds, so that kills also fall into saves, validations and the fetching of batches


class VerificationError(SonoscoError):
    """A run that should have come to its end did not."""

    exit_code = 1


@dataclass(frozen=True)
class Verdict:
    """Where the killed run was killed, and how it differs from the whole one."""

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
    say: Say = print,
    seed: int = 0,
) -> Verdict:
    """Train a config once whole and once with so many kills -9 at drawn moments, and compare what they leave."""
    whole, killed = folder / "whole", folder / "killed"
    imports = [part for module in (StepWitness.__module__, *modules) for part in ("--import", module)]
    imports += [part for place in places_allowed() for part in ("--allow-write", place)]
    settings = [part for override in (*overrides, _witnessed(config, overrides)) for part in ("--set", override)]
    train = ["train", "--config", str(config), *settings, *imports, "--run-dir"]
    folder.mkdir(parents=True, exist_ok=True)
    for path in (whole, killed):
        shutil.rmtree(path, ignore_errors=True)
    say("training once, unbroken")
    with _Process([*train, str(whole)], folder / "whole.log") as process:
        process.finish(whole)
    steps = steps_of(whole)
    drawn = random.Random(seed)
    fell: list[int] = []
    for target in _targets(drawn, kills, steps):
        with _Process(_next_command(killed, train, imports), folder / "killed.log") as process:
            at = process.kill_after(killed, target, drawn.uniform(0.0, _LONGEST_PAUSE))
        if at is None:
            break
        fell.append(at)
        say(f"killed after step {at} of {steps}; {_kept(killed)}")
    with _Process(_next_command(killed, train, imports), folder / "killed.log") as process:
        process.finish(killed)
    return Verdict(tuple(fell), steps, tuple(compare_runs(whole, killed)), first_difference(whole, killed))


class _Process:
    """A `sonosco` command under way, its output in a file: a pipe that nobody reads would hold it up.

    It does not outlive the `with` it is used in.
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
        """Wait for the end of a run. Raises VerificationError if it did not come to its own."""
        self._popen.wait()
        self._refuse_failure(folder)
        if not (folder / FINAL).is_dir():
            raise VerificationError(f"The run in {folder} ended without leaving {folder / FINAL}.")

    def kill_after(self, folder: Path, step: int, pause: float) -> int | None:
        """Kill a run some time after it has done a step itself; returns which was its last, None if it had ended."""
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
        """Raise with what was said if the command ended by itself and not well."""
        if self._popen.poll():
            said = self._log.read_text(errors="replace")[-2000:]
            raise VerificationError(f"The run in {folder} ended with exit code {self._popen.returncode}:\n{said}")


def _witnessed(config: Path, overrides: Sequence[str]) -> str:
    """The override that adds a witness behind the callbacks of a config."""
    if not config.is_file():
        raise UsageError(f"There is no config file {config}.")
    root = apply_overrides(parse(files.read_file(config.resolve(), MAX_BYTES), str(config)), overrides)
    callbacks = _child(_child(root, "trainer"), "callbacks")
    if isinstance(callbacks, SequenceNode):
        return f"trainer.callbacks[{len(callbacks.value)}]={_WITNESS}"
    return f"trainer.callbacks=[{_WITNESS}]"


def _child(node: Node | None, name: str) -> Node | None:
    entries = node.value if isinstance(node, MappingNode) else ()
    return next((value for key, value in entries if key.value == name), None)


def _next_command(folder: Path, train: list[str], imports: list[str]) -> list[str]:
    """Resume the run, or begin it if it was killed before its first checkpoint, or never began."""
    if Checkpoints(folder).newest() is not None:
        return ["resume", str(folder), *imports]
    shutil.rmtree(folder, ignore_errors=True)
    return [*train, str(folder)]


def _targets(drawn: random.Random, kills: int, steps: int) -> list[int]:
    """The steps after which to kill; different ones, as far as there are so many."""
    possible = range(1, max(2, steps))
    return sorted(drawn.sample(possible, kills) if kills <= len(possible) else drawn.choices(possible, k=kills))


def _kept(folder: Path) -> str:
    saved = _last_saved(folder)
    return f"its last checkpoint is of step {saved}" if saved else "it had no checkpoint yet, and begins again"


def _last_saved(folder: Path) -> int:
    return max(map(step_of, Checkpoints(folder).all()), default=0)
