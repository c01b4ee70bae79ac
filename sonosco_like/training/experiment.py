"""An experiment: a trainer with a name and a seed, and the start and the end of its run in a run folder."""

from __future__ import annotations

import logging
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sonosco_like.data.tools.files import check_writable
from sonosco_like.errors import SonoscoError, StorageError, UsageError, as_sentence, message_of
from sonosco_like.metrics import description_of
from sonosco_like.process import call_on_stop_signal
from sonosco_like.redaction import mask_secrets
from sonosco_like.runs.checkpoints import PARTS, Checkpoints, Run
from sonosco_like.runs.identity import checkpoint_folders, identify, machine_of
from sonosco_like.runs.journal import journal
from sonosco_like.runs.lock import clear_leftovers, only_process
from sonosco_like.runs.remote_copy import RemoteCopy
from sonosco_like.runs.run_folder import CHANGES, CONFIG, ENVIRONMENT, FINAL, LATEST, RUN_ID
from sonosco_like.serialization import Document, Saved, Snapshot, absolute_path, dumps, replace_file, serializable
from sonosco_like.training.changes import Changes, changed_values
from sonosco_like.training.checks import SIZES
from sonosco_like.training.exchange import is_mistake
from sonosco_like.training.initialisation import InitialWeights, initialise, is_worth_validating
from sonosco_like.training.loaders import features_of, tokenizer_of
from sonosco_like.training.provenance import copy_code, describe_environment, origin_of, warn_of_other_bits
from sonosco_like.training.randomness import seed_everything
from sonosco_like.training.trainer import ModelTrainer
from sonosco_like.untrusted_files import check_writing

logger = logging.getLogger(__name__)

_LARGEST_SEED = 2**63 - 1


class RunFailedError(SonoscoError):
    """A run failed; the message explains why, and names the command that continues it."""

    exit_code = 1


@serializable
class Experiment:
    """The root of a config, which `sonosco train` trains.

    `corpus`, if given, is prepared before the first batch. `init_from` is a run or checkpoint whose weights the model
    starts with. `remote` is a URL that fsspec knows, such as `s3://bucket/runs/las`: a thread copies the run folder to
    it, and `sonosco resume` can continue the run from it.
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
        self.run = Run(self.name, Path(), self.seed)
        self.changes: Changes | None = None
        self.replaces_config = False
        self._failure: Exception | None = None

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.run.folder

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints in the run folder."""
        return self.run.checkpoints

    def use_folder(self, folder: Path, started: str = "", is_resumed: bool = False) -> None:
        """Make a folder the run folder; `started` is the time at which the run began."""
        self.run = Run(self.name, folder, self.seed, started=started, is_resumed=is_resumed)

    def start(self, folder: str | Path) -> int:
        """Train from the beginning, into a new folder. Returns the signal that interrupted the training, or 0."""
        self.use_folder(absolute_path(folder), time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        with self.trainer.processes.reporting_failures():
            return self._start(Path(folder)) if self.trainer.processes.is_first else self._train_along()

    def _start(self, folder: Path) -> int:
        refuse_unusable_folder(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_process(self.folder):
            clear_leftovers(self.folder)
            self.run.id = identify(self.folder)
            self.trainer.experiment = self.run
            self._write_config()
            about = {"started": self.run.started, RUN_ID: self.run.id, **describe_environment(sys.argv, self.seed)}
            replace_file(self.folder / ENVIRONMENT, dumps(about).removeprefix("!dict\n").encode())
            return self._train(self.trainer.start_training, is_new=True)

    def resume(self) -> int:
        """Continue the training from the newest intact checkpoint of the folder."""
        with self.trainer.processes.reporting_failures():
            return self._resume() if self.trainer.processes.is_first else self._train_along()

    def _resume(self) -> int:
        with only_process(self.folder):
            clear_leftovers(self.folder)
            self.run.id = identify(self.folder)
            if self.replaces_config:
                self._write_config()
                (self.folder / CHANGES).unlink(missing_ok=True)
            if self.changes is not None:
                self.changes.record()
            self.checkpoints.repair()
            return self._train(self.trainer.continue_training)

    def _write_config(self) -> None:
        text = dumps(self, state=False)
        holds_password = mask_secrets(text) != text
        replace_file(self.folder / CONFIG, text.encode(), private=holds_password)
        if holds_password:
            logger.warning(
                "The config holds a password. %s and the checkpoints keep it, readable by you alone, because the run "
                "needs it. It is safer in an environment variable, or in the service's own file.", CONFIG,
            )  # fmt: skip

    def _train(self, train: Callable[[], None], is_new: bool = False) -> int:
        trainer = self.trainer
        trainer.experiment = self.run
        begun_at = trainer.global_step
        directions = {each.name: each.lower_is_better for each in map(description_of, trainer.metrics)}
        try:
            log = journal(self.folder, trainer, directions)
            with RemoteCopy(self.folder, self.remote) as remote, log as end:
                trainer.saver.listeners = [self._point_latest, remote.saved]
                end.interrupted_by = self._prepare_and_train(train)
        except Exception as error:
            failure = self._failure or error  # on a full disk the journal fails too, and its error would hide the first
            if trainer.global_step == begun_at and is_mistake(failure):
                if is_new:  # nothing was trained, so a corrected config may use the same folder
                    (self.folder / CONFIG).unlink(missing_ok=True)
                raise UsageError(str(failure)) from failure
            raise RunFailedError(self._failure_message(failure)) from failure
        return end.interrupted_by

    def _train_along(self) -> int:
        """Train in a process other than the first; such a process writes no files and logs nothing."""
        self.trainer.experiment = self.run
        self._initialise()
        with call_on_stop_signal(self._interrupt) as received:
            self.trainer.continue_training()
            return self._agree_on_signal(received)

    def _prepare_and_train(self, train: Callable[[], None]) -> int:
        try:
            self._warn_of_other_bits()
            self._copy_code()
            self._initialise()
            return self._train_and_save(train)
        except Exception as error:
            self._failure = error
            raise

    def _initialise(self) -> None:
        if self.init_from is not None and self.trainer.global_step == 0:
            trainer = self.trainer
            loader = trainer.train_data_loader
            matching = initialise(trainer.model, self.init_from, tokenizer_of(loader), features_of(loader))
            trainer.observations.untouched.is_wanted = is_worth_validating(trainer.model, self.init_from, matching)
        elif self.trainer.global_step == 0 and getattr(self.trainer.model, "adapters", None) is not None:
            logger.warning("`adapters` freeze weights that are drawn from the seed: give `init_from` a trained model.")

    def _warn_of_other_bits(self) -> None:
        """Warn if this machine is not like the one that computed the checkpoint."""
        saved = self.changes.checkpoint if self.changes is not None else None
        if saved is not None:
            before = machine_of(saved, self.folder)
            warn_of_other_bits(before, self.trainer.parts.device, f"sonosco resume {_quoted(self.folder)}")

    def _copy_code(self) -> None:
        try:
            copy_code(self.folder, self.trainer.global_step)
        except OSError as error:  # the copy is only for people
            logger.warning("The code of this start could not be copied: %s", error)

    def _train_and_save(self, train: Callable[[], None]) -> int:
        with call_on_stop_signal(self._interrupt) as received:
            train()
            signal = self._agree_on_signal(received)
            if signal:
                self._refuse_unsaved(self.trainer.global_step)
            elif not _holds_end(self.checkpoints.final(), self.trainer):
                Snapshot(self.trainer, origin=origin_of(self.trainer)).write(self.folder / FINAL)
        return signal

    def _agree_on_signal(self, received: list[int]) -> int:
        """The signal that interrupted the training of all processes, whichever of them received it."""
        processes = self.trainer.processes
        signals: list[int] = processes.gather(received[0] if received else 0)
        processes.end()
        return max(signals)

    def _interrupt(self, name: str) -> None:
        self.run.interrupted = True
        self.trainer.save_checkpoint()
        self.trainer.stop_training(f"interrupted by {name}")
        with suppress(RuntimeError):  # the signal may have interrupted another write to the same stream
            logger.warning("%s: saving after this batch, then stopping. A second signal stops at once.", name)

    def _point_latest(self, path: Path) -> None:
        if path.parent == self.checkpoints.folder:
            self.checkpoints.point(LATEST, path)

    def _refuse_unsaved(self, step: int) -> None:
        """Raise StorageError if the checkpoint of the interrupted step could not be written."""
        if self.checkpoints.path_of(step) in self.trainer.saver.failed:
            raise StorageError("the run was interrupted, and its last step could not be saved.")

    def _failure_message(self, error: Exception) -> str:
        what, step = as_sentence(message_of(error)), self.trainer.global_step
        return f"The run failed at step {step}: {what} Continue with: sonosco resume {_quoted(self.folder)}"


def read_config(config: Path, overrides: Iterable[str] = ()) -> Document:
    """Read a config file and apply overrides such as `trainer.epochs=3`."""
    if not config.is_file():
        reason = "is a folder" if config.is_dir() else "is not a regular file" if config.exists() else "does not exist"
        raise UsageError(f"There is no config file {config}: it {reason}.")
    return Document.read(config.resolve(), overrides, source=str(config))


def build_experiment(config: Document) -> Experiment:
    """Build the experiment of a config; its seed is set first, because building a model draws its weights."""
    seed = config.get("seed")
    if type(seed) is int and not 0 <= seed <= _LARGEST_SEED:
        raise UsageError(f"`seed` must be from 0 to {_LARGEST_SEED}, got {seed}.")
    seed_everything(seed if type(seed) is int else Experiment.seed)
    experiment = config.build(Experiment)
    experiment.trainer.parts.take_lines(_lines_of_sizes(config))
    return experiment


def _lines_of_sizes(config: Document) -> dict[str, tuple[str, str]]:
    """Where the sizes of the data and those of the model are in a config, for messages."""
    data = ("trainer", "train_data_loader", "dataset")
    return {
        name: (_in_file(config, (*data, part)), _in_file(config, ("trainer", "model", name)))
        for name, part in SIZES.items()
    }


def _in_file(config: Document, path: tuple[str, ...]) -> str:
    source, line = config.place(path)
    if line is None:
        return " (by default)"
    return f" ({source})" if source.startswith("--") else f" ({source}:{line})"


def read_experiment(config: Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read a config file and build its experiment."""
    return build_experiment(read_config(config, overrides))


def refuse_unusable_folder(folder: Path) -> None:
    """Raise UsageError if a new run cannot use a folder: it holds a run already, or it cannot be written."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file. Give the run a folder that is new or empty.")
    if (folder / CONFIG).exists():
        raise UsageError(f"{folder} holds a run already. Continue it with: sonosco resume {_quoted(folder)}")
    if checkpoint_folders(folder) or (folder / FINAL).exists():
        raise UsageError(f"{folder} holds checkpoints of a run whose {CONFIG} is gone. Give this run another folder.")
    check_writable(folder / CONFIG)


def _holds_end(final: Path | None, trainer: Any) -> bool:
    """Whether `final/` already holds this trainer: at the same step, with the same settings and weights.

    A finished run that is resumed is then left unchanged, even if callbacks have changed their state.
    """
    saved = Saved(final) if final is not None else None
    if saved is None or saved.origin is None or saved.origin.step != trainer.global_step:
        return False
    if changed_values(saved.leaves(), Document.of(trainer).leaves(), []):
        return False
    parts = {name: part for name in PARTS if (part := getattr(trainer, name, None)) is not None}
    return all(_equal(saved.state(name, "state_dict") or {}, part.state_dict()) for name, part in parts.items())


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[name], b[name]) for name in a)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a.cpu(), b.cpu())
    return bool(a == b)


def _quoted(folder: Path) -> str:
    return shlex.quote(str(folder))
