"""What was logged, in Weights & Biases."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from sonosco_like.callbacks.destinations.destination import Destination, WritesFiles, numbers
from sonosco_like.callbacks.destinations.optional_package import optional_package
from sonosco_like.callbacks.naming import families_of, tag_of
from sonosco_like.callbacks.run_config import hyperparameters
from sonosco_like.events import Moment
from sonosco_like.passwords import masked_command
from sonosco_like.permissions import check_writing
from sonosco_like.serialization import serializable, state


@serializable
class WandbDestination(WritesFiles, Destination):
    """Sends every logged number to Weights & Biases; needs `pip install 'sonosco_like[wandb]'`.

    `project` is what Weights & Biases lists runs under. `mode` is `offline` unless told otherwise: nothing is uploaded
    until `wandb sync` is called on what is in the folder `path`. A resumed run goes on under the id of the first.

    Weights & Biases keeps what it is given in memory for a while, and loses it when a run is killed. Therefore an
    offline run has what it logged in its state, and writes all of it anew when it is resumed; the records of former
    starts are set aside as `replaced-...`. An online run resumes as Weights & Biases does: steps that the server has
    are ignored when they are sent again, and what was lost on the way to it stays lost.
    """

    finished: ClassVar[str] = "*run-*"  # of each start, with links to the logs of Weights & Biases itself
    path: str = "wandb"
    project: str = "sonosco"
    mode: Literal["offline", "online"] = "offline"
    run_id: str | None = state(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode == "online":
            check_writing(f"wandb://{self.project}", "mode: online")
        self._run: Any = None
        self._sent: dict[int, dict[str, float]] = {}

    def on_attach(self, moment: Moment) -> None:
        """Begin a run, or go on with it."""
        if self._run is not None:
            return
        wandb = optional_package("wandb", type(self).__name__, "wandb")
        context = moment.context
        folder = self.place(context)
        folder.mkdir(parents=True, exist_ok=True)
        self.run_id = self.run_id or secrets.token_hex(4)
        if self.mode == "offline":
            _set_aside(folder, self.run_id)
        with _command_masked():
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
        values = {tag_of(name, families): value for name, value in numbers(moment.args["values"]).items()}
        self._run.log(values, step)
        if self.mode == "offline":
            self._sent.setdefault(step, {}).update(values)

    def on_error(self, moment: Moment) -> None:
        """Tell that the run failed."""
        self._finish(exit_code=1)

    def close(self) -> None:
        self._finish(exit_code=0)

    def state_dict(self) -> dict[str, Any]:
        """What an offline run has sent, curve by curve."""
        names = dict.fromkeys(name for values in self._sent.values() for name in values)
        return {name: self._packed(name) for name in names}

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Be ready to send this again."""
        rows: dict[int, dict[str, float]] = {}
        for name, curve in content.items():
            for step, value in zip(curve["steps"].tolist(), curve["values"].tolist(), strict=True):
                rows.setdefault(step, {})[name] = value
        self._sent = dict(sorted(rows.items()))

    def _packed(self, name: str) -> dict[str, torch.Tensor]:
        points = [(step, values[name]) for step, values in self._sent.items() if name in values]
        steps, values = zip(*points, strict=True)
        return {"steps": torch.tensor(steps), "values": torch.tensor(values, dtype=torch.float64)}

    def _finish(self, exit_code: int) -> None:
        if self._run is not None:
            self._run.finish(exit_code=exit_code)
            self._run = None


@contextmanager
def _command_masked() -> Iterator[None]:
    """Weights & Biases notes down the command line by itself; it is shown one without passwords."""
    usual, sys.argv = sys.argv, masked_command(sys.argv)
    try:
        yield
    finally:
        sys.argv = usual


def _set_aside(folder: Path, run_id: str) -> None:
    """Keep `wandb sync` from finding what former starts of a run have written."""
    for written in folder.glob(f"wandb/offline-run-*-{run_id}"):
        written.rename(written.with_name(f"replaced-{written.name}"))
