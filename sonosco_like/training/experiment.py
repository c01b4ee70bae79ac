"""An experiment: a trainer with a name, a seed and a folder in which everything of a run is found again."""

from __future__ import annotations

import logging
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.errors import SonoscoError, StorageError, UsageError
from sonosco_like.inference.checkpoints import folders_of_checkpoints, own_final
from sonosco_like.links import refuse_links
from sonosco_like.passwords import masked
from sonosco_like.permissions import check_writing
from sonosco_like.run_folder import CHANGES, CONFIG, ENVIRONMENT, FINAL, LATEST, RUN_ID, WRITTEN
from sonosco_like.serialization import Snapshot, dumps, files, loads
from sonosco_like.serialization.definition import serializable
from sonosco_like.serialization.document import MAX_BYTES, parse
from sonosco_like.serialization.overrides import apply_overrides
from sonosco_like.serialization.scalars import INT, kind_of, read_int
from sonosco_like.training.agreement import is_mistake
from sonosco_like.training.changes import Changes
from sonosco_like.training.checkpoints import Checkpoints
from sonosco_like.training.code_copy import copy_code
from sonosco_like.training.devices import choose_device
from sonosco_like.training.ending import holds_the_end
from sonosco_like.training.environment import describe_environment, warn_of_other_bits
from sonosco_like.training.fetching import fetch_run
from sonosco_like.training.identity import identify, machine_of, origin_of, read_environment
from sonosco_like.training.initialisation import InitialWeights, initialise
from sonosco_like.training.interrupts import on_interrupt
from sonosco_like.training.journal import journal
from sonosco_like.training.leftovers import clear_leftovers
from sonosco_like.training.lock import only_process
from sonosco_like.training.processes import Processes
from sonosco_like.training.randomness import seed_everything
from sonosco_like.training.remote import RemoteCopy, is_url
from sonosco_like.training.trainer import ModelTrainer

logger = logging.getLogger(__name__)

_LARGEST_SEED = 2**63 - 1


class RunFailedError(SonoscoError):
    """A run ended before its time; says why, and how it is continued."""

    exit_code = 1


@serializable
class Experiment:
    """What `sonosco train` runs.

    `corpus` is prepared before the first batch, if there is one. `init_from` is a run or checkpoint whose weights the
    model begins with. `remote` is a URL (`s3://bucket/runs/las`, or any other that fsspec knows) to which checkpoints
    and what belongs to them are copied in the background, and from which `sonosco resume` continues the run.
    """

    name: str
    trainer: ModelTrainer
    seed: int = 1234
    corpus: Any = None
    init_from: InitialWeights | Path | None = None
    remote: str | None = None

    def __post_init__(self) -> None:
        if not self.name or set(self.name) & set("/\\"):
            raise UsageError(f"`name` becomes part of a folder's name: give one without slashes, got {self.name!r}.")
        if not self.name.isprintable():
            raise UsageError(f"`name` holds characters that cannot be printed; leave them out, got {self.name!r}.")
        if self.remote is not None:
            check_writing(self.remote, "remote")
        self.folder = Path()
        self.id = ""
        self.started = ""
        self.interrupted = False
        self.replaces_config = False
        self.changes: Changes | None = None
        self._failure: Exception | None = None

    def start(self, folder: str | Path) -> int:
        """Train from the beginning, into a new folder. Returns the signal that interrupted it, or 0."""
        self.folder = files.absolute(folder)
        with self.trainer.processes.told():
            return self._start(folder) if self.trainer.processes.is_first else self._train_along()

    def _start(self, folder: str | Path) -> int:
        self._refuse_taken(Path(folder))
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_process(self.folder):
            clear_leftovers(self.folder)
            self.id = identify(self.folder)
            self.started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            self.trainer.experiment = self  # whose config is written
            self._write_config(dumps(self, state=False))
            environment = {"started": self.started, RUN_ID: self.id, **describe_environment(sys.argv, self.seed)}
            files.replace_file(self.folder / ENVIRONMENT, dumps(environment).removeprefix("!dict\n").encode())
            return self._train(self.trainer.start_training, is_new=True)

    def _write_config(self, text: str) -> None:
        holds_password = masked(text) != text
        files.replace_file(self.folder / CONFIG, text.encode(), private=holds_password)
        if holds_password:
            logger.warning(
                "The config holds a password. %s and the checkpoints keep it, readable by you alone, because the run "
                "needs it; better give it in the environment or in a file of the service's own.", CONFIG,
            )  # fmt: skip

    def resume(self) -> int:
        """Train on from the newest intact checkpoint of the folder."""
        with self.trainer.processes.told():
            return self._resume() if self.trainer.processes.is_first else self._train_along()

    def _resume(self) -> int:
        with only_process(self.folder):
            clear_leftovers(self.folder)
            self.id = identify(self.folder)
            if self.replaces_config:
                self._write_config(dumps(self, state=False))
                (self.folder / CHANGES).unlink(missing_ok=True)
            if self.changes is not None:
                self.changes.record()
            self.checkpoints.repair()
            return self._train(self.trainer.continue_training)

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints in the folder."""
        return Checkpoints(self.folder)

    def _refuse_taken(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file. Give the run a folder that is new or empty.")
        if (folder / CONFIG).exists():
            raise UsageError(f"{folder} holds a run already. Continue it with: sonosco resume {_quoted(folder)}")
        if folders_of_checkpoints(folder) or (folder / FINAL).exists():
            raise UsageError(
                f"{folder} holds checkpoints of a run whose {CONFIG} is gone. Give this run another folder."
            )

    def _train(self, train: Callable[[], None], is_new: bool = False) -> int:
        trainer = self.trainer
        trainer.experiment = self
        begun_at = trainer.global_step
        try:
            with RemoteCopy(self.folder, self.remote) as remote, journal(self.folder, trainer) as entry:
                trainer.saver.listeners = [self._point_latest, remote.saved]
                entry.interrupted_by = self._prepare_and_train(train)
        except Exception as error:
            failure = self._failure or error  # the journal of a run that failed on a full disk fails as well
            if trainer.global_step == begun_at and is_mistake(failure):
                if is_new:  # nothing was trained, so that the corrected config may have the folder
                    (self.folder / CONFIG).unlink(missing_ok=True)
                raise UsageError(str(failure)) from failure
            raise RunFailedError(self._said_of(failure)) from failure
        return entry.interrupted_by

    def _train_along(self) -> int:
        """What every process but the first does: the same training, without a word or a file."""
        self.trainer.experiment = self
        if self.init_from is not None and self.trainer.global_step == 0:
            initialise(self.trainer.model, self.init_from)
        with on_interrupt(self._interrupt) as received:
            self.trainer.continue_training()
            return self._signal(received)

    def _signal(self, received: list[int]) -> int:
        """The signal that interrupted the training of all, also if another process was the one to receive it."""
        processes = self.trainer.processes
        signals: list[int] = processes.gather(received[0] if received else 0)
        processes.end()
        return max(signals)

    def _prepare_and_train(self, train: Callable[[], None]) -> int:
        try:
            self._warn_of_other_bits()
            self._keep_code()
            if self.init_from is not None and self.trainer.global_step == 0:
                initialise(self.trainer.model, self.init_from)
            return self._train_and_save(train)
        except Exception as error:
            self._failure = error
            raise

    def _warn_of_other_bits(self) -> None:
        """Say what computes this run from now on, if it is not what computed its checkpoint."""
        saved = self.changes.checkpoint if self.changes is not None else None
        if saved is not None:
            before = machine_of(saved, self.folder)
            warn_of_other_bits(before, self.trainer._device, f"sonosco resume {_quoted(self.folder)}")

    def _keep_code(self) -> None:
        try:
            copy_code(self.folder, self.trainer.global_step)
        except OSError as error:  # no run depends on it
            logger.warning("The code of this start could not be kept: %s", error)

    def _train_and_save(self, train: Callable[[], None]) -> int:
        with on_interrupt(self._interrupt) as received:
            train()
            signal = self._signal(received)
            if signal:
                self._refuse_unsaved(self.trainer.global_step)
            elif not holds_the_end(self.checkpoints.final(), self.trainer):
                Snapshot(self.trainer, origin=origin_of(self.trainer)).write(self.folder / FINAL)
        return signal

    def _interrupt(self, name: str) -> None:
        self.interrupted = True
        self.trainer.save_checkpoint()
        self.trainer.stop_training(f"interrupted by {name}")
        with suppress(RuntimeError):  # the signal may have come in the midst of another line
            logger.warning("%s: saving after this batch, then leaving. Once more leaves at once.", name)

    def _point_latest(self, path: Path) -> None:
        if path.parent == self.checkpoints.folder:
            self.checkpoints.point(LATEST, path)

    def _refuse_unsaved(self, step: int) -> None:
        """An interrupted run that says it was saved must have been."""
        if self.checkpoints.path_of(step) in self.trainer.saver.failed:
            raise StorageError("it was interrupted, and this step could not be saved.")

    def _said_of(self, error: Exception) -> str:
        what = str(error) if isinstance(error, SonoscoError) else f"{type(error).__name__}: {error}"
        step = self.trainer.global_step
        return (
            f"The run failed at step {step}: {what.rstrip('.')}; continue with: sonosco resume {_quoted(self.folder)}"
        )


def read_experiment(config: Path, overrides: Iterable[str] = ()) -> Experiment:
    """The experiment of a config file, its weights drawn from its seed.

    Models are built while the file is read, so the seed has to be known before.
    """
    if not config.is_file():
        said = "is no file that could be read as a config" if config.exists() else "does not exist"
        raise UsageError(f"There is no config file {config}: it {said}.")
    text = files.read_file(config.resolve(), MAX_BYTES)
    overrides = list(overrides)
    seed_everything(_seed(apply_overrides(parse(text, str(config)), overrides)))
    return loads(text, Experiment, source=str(config), overrides=overrides)


def open_run(
    run: str | Path, overrides: Iterable[str] = (), into: Path | None = None, by_config: bool = False
) -> tuple[Experiment, int]:
    """The experiment of a run at its newest intact checkpoint, and the step of that.

    `run` is a run folder, or the URL of a remote copy, which is fetched to the folder `into`, or to `runs/<its name>`.
    `by_config` says that the overrides are what was changed in the config itself.
    """
    if is_url(str(run)):
        run = _fetched_for_all(str(run), into)
    folder = files.absolute(run)
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{run} is not a run folder: it has no {CONFIG}.")
    refuse_links(folder, WRITTEN)
    newest = Checkpoints(folder).newest() or Checkpoints(folder).final()
    if newest is None:
        _refuse_to_begin_again(folder)
        logger.warning(
            "%s has no checkpoint yet: it begins again from its %s, with weights drawn from its seed, and not with any "
            "that a program put into the model.", folder, CONFIG,
        )  # fmt: skip
    changes = Changes(folder, newest, overrides, by_config)
    experiment = read_experiment(folder / CONFIG, changes.for_config())
    experiment.folder, experiment.changes = folder, changes
    experiment.started = str(read_environment(folder).get("started", ""))
    if newest is not None:
        wanted, processes = experiment.trainer.device, experiment.trainer.processes
        choose_device(wanted, processes.local_rank, processes.size)  # or the state would be said not to fit
        experiment.trainer = changes.load()
    return experiment, experiment.trainer.global_step


def _fetched_for_all(url: str, into: Path | None) -> Path:
    """The folder to which the first process has fetched a run, also in the others, which wait for it."""
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


def _quoted(folder: Path) -> str:
    return shlex.quote(str(folder))


def _refuse_to_begin_again(folder: Path) -> None:
    """A run of which something was saved, but nothing can be used, is left as it is."""
    if Checkpoints(folder).all() or own_final(folder) is not None:
        raise StorageError(
            f"Nothing that was saved in {folder} can be read any more, and nothing of it was changed now. Restore the "
            "checkpoints from a copy, or begin a new run in another folder."
        )
    if folders_of_checkpoints(folder) or (folder / FINAL).exists():
        raise UsageError(f"Nothing that was saved in {folder} is of this run. Move it elsewhere, and resume again.")


def _seed(node: Node) -> int:
    entries = node.value if isinstance(node, MappingNode) else []
    for key, value in entries:
        if key.value == "seed" and isinstance(value, ScalarNode) and kind_of(value) == INT:
            seed = read_int(value.value)
            if not 0 <= seed <= _LARGEST_SEED:
                raise UsageError(f"`seed` must be from 0 to {_LARGEST_SEED}, got {seed}.")
            return seed
    return Experiment.seed
