"""Sends logged numbers to Weights & Biases."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from sonosco_like.callbacks.destination import Destination, RunFile, hyperparameters, numeric_values, optional_package
from sonosco_like.callbacks.measures import families_of, tag_of
from sonosco_like.events import Moment
from sonosco_like.redaction import mask_arguments
from sonosco_like.serialization import serializable, state
from sonosco_like.untrusted_files import check_writing

_RUNS = "*run-*"  # the folder of each start, which links to the logs of Weights & Biases


@serializable
class WandbDestination(Destination):
    """Sends every logged number to Weights & Biases; needs `pip install 'sonosco_like[wandb]'`.

    `project` is the name under which Weights & Biases lists the run. `mode: offline` uploads nothing until `wandb sync`
    is called on the folder `path`. A resumed run keeps its id.

    Weights & Biases keeps values in memory for a while, and loses them when a run is killed. Therefore an offline run
    has all values in its state, and writes all of them again when it is resumed; the records of earlier starts are
    renamed to `replaced-...`. An online run resumes as Weights & Biases does: the server ignores steps that it already
    has, and values that did not reach it are lost.
    """

    path: str = "wandb"
    folder: Path = Path()
    project: str = "sonosco"
    mode: Literal["offline", "online"] = "offline"
    run_id: str | None = state(None)

    def __post_init__(self) -> None:
        self.run_file = RunFile(self.path, self.folder, unsearched=_RUNS)
        if self.mode == "online":
            check_writing(f"wandb://{self.project}", "mode: online")
        self._run: Any = None
        self._sent: dict[int, dict[str, float]] = {}

    def on_attach(self, moment: Moment) -> None:
        """Begin a run in Weights & Biases, or continue it."""
        if self._run is not None:
            return
        wandb = optional_package("wandb", type(self).__name__, "wandb")
        context = moment.context
        folder = self.run_file.resolve(context)
        folder.mkdir(parents=True, exist_ok=True)
        self.run_id = self.run_id or secrets.token_hex(4)
        if self.mode == "offline":
            _set_aside(folder, self.run_id)
        with _masked_command_line():
            self._run = wandb.init(
                project=self.project,
                name=getattr(context.experiment, "name", None),
                id=self.run_id,
                resume="allow" if self.mode == "online" else None,
                mode=self.mode,
                dir=str(folder),
                config=hyperparameters(context),
                settings=wandb.Settings(silent=True, console="off"),
            )
        for step, values in self._sent.items():
            self._run.log(values, step)

    def on_log(self, moment: Moment) -> None:
        if self._run is None:
            return
        step, families = moment.args["step"], families_of(moment.context)
        values = {tag_of(name, families): value for name, value in numeric_values(moment.args["values"]).items()}
        self._run.log(values, step)
        if self.mode == "offline":
            self._sent.setdefault(step, {}).update(values)

    def on_error(self, moment: Moment) -> None:
        """Mark the run as failed."""
        self._finish(exit_code=1)

    def close(self) -> None:
        self._finish(exit_code=0)

    def state_dict(self) -> dict[str, Any]:
        """The values that an offline run has sent, by curve."""
        names = dict.fromkeys(name for values in self._sent.values() for name in values)
        return {name: self._pack_curve(name) for name in names}

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Keep the values, to send them again."""
        rows: dict[int, dict[str, float]] = {}
        for name, curve in content.items():
            for step, value in zip(curve["steps"].tolist(), curve["values"].tolist(), strict=True):
                rows.setdefault(step, {})[name] = value
        self._sent = dict(sorted(rows.items()))

    def _pack_curve(self, name: str) -> dict[str, torch.Tensor]:
        points = [(step, values[name]) for step, values in self._sent.items() if name in values]
        steps, values = zip(*points, strict=True)
        return {"steps": torch.tensor(steps), "values": torch.tensor(values, dtype=torch.float64)}

    def _finish(self, exit_code: int) -> None:
        if self._run is not None:
            self._run.finish(exit_code=exit_code)
            self._run = None


@contextmanager
def _masked_command_line() -> Iterator[None]:
    """Hide the passwords of the command line, which Weights & Biases records."""
    usual, sys.argv = sys.argv, mask_arguments(sys.argv)
    try:
        yield
    finally:
        sys.argv = usual


def _set_aside(folder: Path, run_id: str) -> None:
    """Rename the records of earlier starts of a run, so that `wandb sync` does not find them."""
    for written in folder.glob(f"wandb/offline-run-*-{run_id}"):
        written.rename(written.with_name(f"replaced-{written.name}"))
