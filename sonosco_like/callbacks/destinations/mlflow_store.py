"""What was logged, in MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from sonosco_like.callbacks.destinations.destination import Destination, WritesFiles, numbers
from sonosco_like.callbacks.destinations.mlflow_names import Names, name_of_parameter
from sonosco_like.callbacks.destinations.optional_package import optional_package
from sonosco_like.callbacks.naming import families_of, tag_of
from sonosco_like.callbacks.run_config import hyperparameters
from sonosco_like.events import Moment
from sonosco_like.permissions import check_writing
from sonosco_like.serialization import serializable, state

_SERVICES = ("databricks", "databricks-uc", "uc")
_ALLOW_FILES = "MLFLOW_ALLOW_FILE_STORE"
_MOST_PARAMETERS, _MOST_METRICS, _LONGEST_VALUE = 100, 1000, 500  # what MLflow takes at once


@serializable
class MlflowDestination(WritesFiles, Destination):
    """Sends every logged number to MLflow; needs `pip install 'sonosco_like[mlflow]'`.

    `tracking_uri` is a server or a database; without one the numbers go to files in the folder `path` of the run, for
    which MLflow's own leave is given (it asks for the environment variable MLFLOW_ALLOW_FILE_STORE). `experiment` is
    what MLflow lists runs under. A resumed run goes on under the id of the first; points that a lost run has sent are
    not sent again: they are the same, because a resume is exact.
    """

    path: str = "mlruns"
    tracking_uri: str | None = None
    experiment: str = "sonosco"
    run_id: str | None = state(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_writing()
        self._client: Any = None
        self._entities: Any = None
        self._last_steps: dict[str, int] = {}
        self._names = Names()

    def on_attach(self, moment: Moment) -> None:
        """Begin a run, or go on with it."""
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
        """Without a scheme, MLflow takes some words for services, and everything else for a path."""
        if self.tracking_uri is not None:
            is_service = self.tracking_uri.partition(":")[0] in _SERVICES and "://" not in self.tracking_uri
            check_writing(f"{self.tracking_uri}://" if is_service else self.tracking_uri, "tracking_uri")

    def on_log(self, moment: Moment) -> None:
        if self._client is None:
            return
        step, now = moment.args["step"], round(time.time() * 1000)
        families = families_of(moment.context)
        values = numbers(moment.args["values"]).items()
        tagged = {self._names.of_metric(tag_of(name, families)): value for name, value in values}
        new = {name: value for name, value in tagged.items() if self._last_steps.get(name, -1) < step}
        self._last_steps |= dict.fromkeys(new, step)
        points = [self._entities.Metric(name, value, now, step) for name, value in new.items()]
        for some in _portions(points, _MOST_METRICS):
            self._client.log_batch(self.run_id, metrics=some)

    def on_error(self, moment: Moment) -> None:
        """Tell that the run failed."""
        self._finish("FAILED")

    def close(self) -> None:
        self._finish("FINISHED")

    def _finish(self, status: str) -> None:
        if self._client is not None:
            self._client.set_terminated(self.run_id, status)
            self._client = None

    def _files(self, context: Any) -> str:
        os.environ.setdefault(_ALLOW_FILES, "true")
        return self.place(context).absolute().as_uri()

    def _new_run(self, context: Any) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found is not None else self._client.create_experiment(self.experiment)
        name = getattr(context.experiment, "name", None)
        run_id = str(self._client.create_run(experiment, run_name=name).info.run_id)
        parameters = {name_of_parameter(key): _one_line(value) for key, value in hyperparameters(context).items()}
        entries = [self._entities.Param(key, value) for key, value in parameters.items()]
        for some in _portions(entries, _MOST_PARAMETERS):
            self._client.log_batch(run_id, params=some)
        return run_id

    def _last_step(self, name: str) -> int:
        return max(int(point.step) for point in self._client.get_metric_history(self.run_id, name))


def _portions(entries: list[Any], size: int) -> Iterator[list[Any]]:
    return (entries[start : start + size] for start in range(0, len(entries), size))


def _one_line(value: Any) -> str:
    text = str(value)
    return (text if text.isprintable() else repr(text)[1:-1])[:_LONGEST_VALUE]
