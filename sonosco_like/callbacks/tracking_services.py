"""Destinations that send what is logged to tracking services: MLflow, and Weights & Biases."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from sonosco_like.callbacks.destination import Destination, RunFile, hyperparameters, numeric_values, optional_package
from sonosco_like.callbacks.measures import families_of, tag_of
from sonosco_like.events import Moment, TrainerContext
from sonosco_like.redaction import mask_arguments
from sonosco_like.serialization import serializable, state
from sonosco_like.untrusted_files import check_writing

_SERVICES = ("databricks", "databricks-uc", "uc")
_ALLOW_FILES = "MLFLOW_ALLOW_FILE_STORE"
_MOST_PARAMETERS, _MOST_METRICS, _LONGEST_VALUE = 100, 1000, 500  # limits of MLflow for one request
_LONGEST = 200  # MLflow's limit is 250; some characters are added to names here
_REFUSED = re.compile(r"[^-\w. /]", re.ASCII)


class Names:
    """The names of the metrics of a run. MLflow uses them as paths, so a name cannot be a file and a folder."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._files = set(taken)
        self._folders = {folder for name in self._files for folder in _folders_of(name)}
        self._known: dict[str, str] = {}

    def of_metric(self, name: str) -> str:
        """The name of a metric, `loss/train`, in a form that MLflow accepts; always the same for one metric."""
        if name not in self._known:
            made = "/".join(map(_path_part, _allowed_name(name).split("/")))
            if made in self._folders:
                made += "_"
            if not self._files.isdisjoint(_folders_of(made)):
                made = made.replace("/", "_")
            self._files.add(made)
            self._folders.update(_folders_of(made))
            self._known[name] = made
        return self._known[name]


def name_of_parameter(path: str) -> str:
    """The path of a setting, `trainer.optimizer.lr`, in a form that MLflow accepts; a changed one ends with a hash."""
    made = _path_part(_REFUSED.sub(_number, path).replace("/", "u002f"))
    return made if made == path and len(made) <= _LONGEST else _with_hash(made, path)


def _allowed_name(name: str) -> str:
    """A name of allowed characters; others become their code, so that different names stay different."""
    name = _REFUSED.sub(_number, name)
    return name if len(name) <= _LONGEST else _with_hash(name, name)


def _number(found: re.Match[str]) -> str:
    return f"u{ord(found.group()):04x}"


def _with_hash(name: str, original: str) -> str:
    mark = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST - 9]}-{mark}"


def _path_part(part: str) -> str:
    """A part of a path that is neither empty nor `.`, and does not begin with `..`, which MLflow refuses."""
    return f"_{part}" if part in ("", ".") or part.startswith("..") else part


def _folders_of(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


@serializable
class MlflowDestination(Destination):
    """Sends every logged number to MLflow; needs `pip install 'sonosco_like[mlflow]'`.

    `tracking_uri` is a server or a database; without one the numbers go to files in the folder `path` of the run
    (MLflow requires the environment variable MLFLOW_ALLOW_FILE_STORE for this, which is set here). `experiment` is the
    name under which MLflow lists the run. A resumed run keeps its id. Points that were sent after the checkpoint are
    not sent again: they are the same, because a resume is exact.
    """

    path: str = "mlruns"
    folder: Path = Path()
    tracking_uri: str | None = None
    experiment: str = "sonosco"
    run_id: str | None = state(None)

    def __post_init__(self) -> None:
        self.run_file = RunFile(self.path, self.folder)
        self._check_writing()
        self._client: Any = None
        self._entities: Any = None
        self._last_steps: dict[str, int] = {}
        self._names = Names()

    def on_attach(self, moment: Moment) -> None:
        """Begin a run in MLflow, or continue it."""
        if self._client is not None:
            return
        self._check_writing()
        tracking = optional_package("mlflow.tracking", type(self).__name__, "mlflow")
        self._entities = optional_package("mlflow.entities", type(self).__name__, "mlflow")
        self._client = tracking.MlflowClient(tracking_uri=self.tracking_uri or self._files(moment.context))
        if self.run_id is None:
            self.run_id = self._new_run(moment.context)
        else:
            self._client.update_run(self.run_id, status="RUNNING")
        names = self._client.get_run(self.run_id).data.metrics
        self._names = Names(names)
        self._last_steps = {name: self._last_step(name) for name in names}

    def _check_writing(self) -> None:
        """Check `tracking_uri`; without a scheme, it is a service of MLflow with a known name, or a path."""
        if self.tracking_uri is not None:
            is_service = self.tracking_uri.partition(":")[0] in _SERVICES and "://" not in self.tracking_uri
            check_writing(f"{self.tracking_uri}://" if is_service else self.tracking_uri, "tracking_uri")

    def on_log(self, moment: Moment) -> None:
        if self._client is None:
            return
        step, now = moment.args["step"], round(time.time() * 1000)
        families = families_of(moment.context)
        values = numeric_values(moment.args["values"]).items()
        tagged = {self._names.of_metric(tag_of(name, families)): value for name, value in values}
        new = {name: value for name, value in tagged.items() if self._last_steps.get(name, -1) < step}
        self._last_steps |= dict.fromkeys(new, step)
        points = [self._entities.Metric(name, value, now, step) for name, value in new.items()]
        for portion in _portions(points, _MOST_METRICS):
            self._client.log_batch(self.run_id, metrics=portion)

    def on_error(self, moment: Moment) -> None:
        """Mark the run as failed."""
        self._finish("FAILED")

    def close(self) -> None:
        self._finish("FINISHED")

    def _finish(self, status: str) -> None:
        if self._client is not None:
            self._client.set_terminated(self.run_id, status)
            self._client = None

    def _files(self, context: TrainerContext) -> str:
        os.environ.setdefault(_ALLOW_FILES, "true")
        return self.run_file.resolve(context).absolute().as_uri()

    def _new_run(self, context: TrainerContext) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found is not None else self._client.create_experiment(self.experiment)
        name = getattr(context.experiment, "name", None)
        run_id = str(self._client.create_run(experiment, run_name=name).info.run_id)
        parameters = {name_of_parameter(key): _one_line(value) for key, value in hyperparameters(context).items()}
        entries = [self._entities.Param(key, value) for key, value in parameters.items()]
        for portion in _portions(entries, _MOST_PARAMETERS):
            self._client.log_batch(run_id, params=portion)
        return run_id

    def _last_step(self, name: str) -> int:
        return max(int(point.step) for point in self._client.get_metric_history(self.run_id, name))


def _portions(entries: list[Any], size: int) -> Iterator[list[Any]]:
    return (entries[start : start + size] for start in range(0, len(entries), size))


def _one_line(value: Any) -> str:
    text = str(value)
    return (text if text.isprintable() else repr(text)[1:-1])[:_LONGEST_VALUE]


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
