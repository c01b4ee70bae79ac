"""The parts that a trainer builds from its settings before the first batch; the settings stay as they were given."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from sonosco_like.errors import UsageError, did_you_mean
from sonosco_like.serialization import SAVED_AS
from sonosco_like.training.batches import EpochBatches
from sonosco_like.training.checks import (
    check_data,
    check_measures,
    check_methods,
    check_model,
    check_reduction,
    check_serializable,
    check_shares,
    check_texts,
    fill_sizes,
)
from sonosco_like.training.loaders import Loaders, log_how_it_resumes
from sonosco_like.training.optimization import Optimization, ScheduleLengths, rebuild_schedule
from sonosco_like.training.processes import RankStates


def recompute_activations(model: nn.Module, patterns: Sequence[str]) -> None:
    """Let modules whose names match a pattern drop their activations and compute them again in the backward pass.

    Of modules within each other only the outermost does: it keeps nothing of those inside. A list of modules, which is
    never called itself, stands for its members. Random numbers are drawn again as they were, and statistics that a
    module gathers in its buffers, such as those of batch normalisation, are gathered once: the gradients and the model
    are the same as without.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    matching: list[nn.Module] = []
    for pattern in patterns:
        found = [module for name, module in modules.items() if fnmatchcase(name, pattern)]
        if not found:
            raise UsageError(
                f"`gradient_checkpointing` pattern {pattern!r} matches no part of {type(model).__name__}"
                f"{did_you_mean(pattern, modules) or '.'}"
            )
        matching += [part for module in found for part in _called(module)]
    for module in _outermost(matching):
        module.forward = _Recomputed(module)


class _Recomputed:
    """The forward pass of a module, whose activations are computed again in the backward pass."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._forward = module.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(self._forward, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _held(self._module)


@contextmanager
def _held(module: nn.Module) -> Iterator[None]:
    """Let a module work on copies of its buffers, so that a second forward pass does not change them."""
    own = [(part, dict(part._buffers)) for part in module.modules() if part._buffers]
    for part, buffers in own:
        part._buffers = {name: None if each is None else each.clone() for name, each in buffers.items()}
    try:
        yield
    finally:
        for part, buffers in own:
            part._buffers = buffers


def _called(module: nn.Module) -> Iterator[nn.Module]:
    """The module, or its members if it only contains others and is never called itself."""
    if type(module).forward is not nn.Module.forward:
        yield module
        return
    for member in module.children():
        yield from _called(member)


def _outermost(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The modules that are not inside another one of them, each once."""
    once = list(dict.fromkeys(modules))
    inner = {part for module in once for part in module.modules() if part is not module}
    return [module for module in once if module not in inner]


def choose_device(wanted: torch.device | None, local_rank: int = 0, processes: int = 1) -> torch.device:
    """The chosen device, if this machine has it. With `cuda`, or by default on GPUs, each process has its own GPU."""
    if wanted is None:
        wanted = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted.type == "cuda":
        return _gpu(wanted, local_rank, processes)
    if wanted.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError(_missing(wanted))
    if wanted.type == "mps" and processes > 1:
        raise UsageError("Several processes cannot share one `mps` device: train in one, or with `device: cpu`.")
    if wanted.type not in ("cpu", "mps"):
        _refuse_unknown(wanted)
    return wanted


def _gpu(wanted: torch.device, local_rank: int, processes: int) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if processes > 1 and wanted.index is not None:
        raise UsageError(f"`device: {wanted}` would give all {processes} processes one GPU: `cuda` gives each its own.")
    index = local_rank if wanted.index is None else wanted.index
    if index < count:
        return torch.device("cuda", index)
    if count and processes > 1:
        raise UsageError(f"Process {local_rank} finds no GPU of its own: start at most {count} processes here.")
    raise UsageError(_missing(wanted))


def _refuse_unknown(wanted: torch.device) -> None:
    """Refuse a device that torch does not find on this machine."""
    try:
        torch.empty(0, device=wanted)
    except (RuntimeError, NotImplementedError, AssertionError):
        raise UsageError(_missing(wanted)) from None


def _missing(wanted: torch.device) -> str:
    return f"`device` is {wanted}, which this machine does not have; there is {', '.join(devices_here())}."


def devices_here() -> list[str]:
    """The names of the devices of this machine."""
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]


def parameters_to_learn(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The named parameters of a model without those that its `adapters`, if it has any, froze for good."""
    frozen: Set[str] = getattr(getattr(model, "adapters", None), "frozen", frozenset())
    return ((name, parameter) for name, parameter in model.named_parameters() if name not in frozen)


_PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
_NO_AUTOCAST = nullcontext()  # one for all batches
_LOADERS = ("train_data_loader", "val_data_loader", "test_data_loader")


class Assembly:
    """The parts that are built from the settings of a trainer, once. Only this class assigns its attributes.

    `model` is on its `device`, `network` is the model as it is called: compiled, where that is wanted. `built` holds
    what the settings of the same names read as from then on (`BuiltSetting`). `ranks` is what each process has alone.
    `optimization`, the optimizer with all that surrounds its step, is there when they are built.
    """

    optimization: Optimization

    def __init__(self, trainer: Any) -> None:
        fill_sizes(trainer.model, trainer.train_data_loader)
        self._trainer = trainer
        self.built: dict[str, Any] = {}
        self.device = torch.device("cpu")
        self.model: nn.Module = trainer.model
        self.network: Any = trainer.model
        self.loaders = Loaders()
        self.ranks = RankStates(trainer.processes)
        self.lengths = ScheduleLengths()
        self.lines_of_sizes: dict[str, tuple[str, str]] = {}  # where the config has those of the data, of the model
        self._tokenizer: Any = None
        self._autocast_type: torch.dtype | None = None

    @property
    def is_built(self) -> bool:
        """Whether model, optimizer and schedule are made."""
        return "optimization" in vars(self)

    def build(self) -> None:
        """Build the model, its optimizer and its schedule once, when the training begins or a state is restored."""
        if self.is_built:
            return
        trainer = self._trainer
        check_methods(trainer)
        trainer.listeners.attach(trainer.callbacks)
        self.device = choose_device(trainer.device, trainer.processes.local_rank, trainer.processes.size)
        self._take_model(trainer.build_model(trainer.model))
        check_model(self.model)
        recompute_activations(self.model, trainer.gradient_checkpointing)
        try:
            self.built["optimizer"] = trainer.build_optimizer(parameters_to_learn(self.model))
            if self.lengths.are_known(trainer.scheduler):  # else it waits for the data, whose length it needs
                self.built["scheduler"] = trainer.build_scheduler(self.built["optimizer"])
        except Exception:  # also a Stop: a run that continues builds again
            self.built.pop("optimizer", None)
            self.built.pop("scheduler", None)
            raise
        self._autocast_type = _PRECISIONS[trainer.precision]
        scaler = torch.amp.GradScaler(self.device.type) if trainer.precision == "float16" else None
        optimizer, scheduler = self.built["optimizer"], self.built.get("scheduler")
        self.optimization = Optimization(self.model, optimizer, scheduler, scaler, trainer.processes)

    def prepare(self) -> None:
        """Refuse settings that would fail after hours; then prepare the data and the network."""
        trainer, processes = self._trainer, self._trainer.processes
        trainer.used_weights.give_back()
        check_texts(trainer.metrics, trainer.callbacks, trainer.decoder)
        check_measures(trainer.metrics, trainer.callbacks, trainer.validation_sets, trainer.averaging is not None)
        self._prepare_data()
        self._count_schedule()
        check_shares(trainer)
        check_reduction(trainer)
        log_how_it_resumes(trainer.train_data_loader, saved=trainer.experiment is not None)
        if trainer.position.global_step == 0:
            processes.offset_seed()
            check_serializable(trainer, must=trainer.experiment is not None)
        if trainer.sync_batch_norm:
            self._take_model(processes.sync_batch_norm(self.model))
        self.network = torch.compile(self.model, backend=trainer.compile) if trainer.compile else self.model
        processes.broadcast_model(self.model)
        trainer.guard.arm()
        self.ranks.restore_generators()  # loaders or callbacks that were made since then may have drawn from them

    def batches(self) -> EpochBatches:
        """The remaining batches of the epoch."""
        trainer, loader = self._trainer, self._trainer.train_data_loader
        epoch = trainer.position.epoch
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        batches = self.loaders.batches(loader, epoch, trainer.position.batches_done)
        return EpochBatches(batches, loader, trainer.position, trainer.processes)

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision in which the network computes."""
        return torch.autocast(self.device.type, self._autocast_type) if self._autocast_type else _NO_AUTOCAST

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the data, which turns labels into text. Raises UsageError if there is none."""
        if self._tokenizer is None:
            self._tokenizer = self._trainer.build_tokenizer()
        if self._tokenizer is not None:
            return self._tokenizer
        raise UsageError("A metric reads decoded text, but no data loader has a tokenizer to make text of labels.")

    def take_lines(self, lines: dict[str, tuple[str, str]]) -> None:
        """Know the lines of the config that messages about unequal sizes name."""
        self.lines_of_sizes = lines

    def forget_built(self, setting: str) -> None:
        """Drop the part that was built from the old value of a setting."""
        self.built.pop(setting, None)

    def saved_form(self, setting: str) -> Any:
        """The value that a file holds for a setting: the given one, or a placeholder for a loader made in Python."""
        given = vars(self._trainer)[setting]
        in_text = self._trainer.experiment is not None
        return self.loaders.saved_form(given, in_text) if setting in _LOADERS else given

    def state_dict(self) -> dict[str, Any]:
        """The state of the built parts, of the data and of the random generators."""
        place = self.loaders.state_dict(self._trainer.train_data_loader, self.saved_form("train_data_loader"))
        lengths = {"schedule_lengths": self.lengths.state_dict()} if self.lengths.state_dict() else {}
        return {"optimization": self.optimization.state_dict(), **self.ranks.state_dict(), "data": place, **lengths}

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self.lengths.load_state_dict(content.get("schedule_lengths", {}))
        self.build()
        self.optimization.load_state_dict(content["optimization"], self._trainer.accumulate_gradients)
        self.loaders.load_state_dict(content.get("data", {}))
        self.ranks.load_state_dict(dict(content))

    def _count_schedule(self) -> None:
        """Build the schedule if it had to wait for the data, or if its lengths differ from those of the checkpoint."""
        trainer, optimization = self._trainer, self.optimization
        if self.lengths.count(self.saved_form("scheduler"), trainer):
            old = self.built.pop("scheduler", None)  # so that the stage sees what was given
            self.built["scheduler"] = rebuild_schedule(trainer, old, optimization.schedule_steps)
            optimization.use_schedule(self.built["scheduler"])

    def _take_model(self, model: nn.Module) -> None:
        self.model = self.network = self.built["model"] = model

    def _prepare_data(self) -> None:
        trainer = self._trainer
        self.loaders.broadcast_seed(trainer.processes)
        self._prepare_loader("train_data_loader", "train")
        if isinstance(trainer.val_data_loader, dict):
            loaders = trainer.val_data_loader.items()
            self.built["val_data_loader"] = {name: self._ready(f"val_{name}", each) for name, each in loaders}
        else:
            self._prepare_loader("val_data_loader", "val")
        self._prepare_loader("test_data_loader", "test")
        self._tokenizer = trainer.build_tokenizer()
        check_data(trainer)
        position = trainer.position
        self.loaders.restore_position(trainer.train_data_loader, position.epoch, position.batches_done)
        self.ranks.resume(trainer.train_data_loader)

    def _prepare_loader(self, setting: str, name: str) -> None:
        loader = getattr(self._trainer, setting)
        if loader is not None:
            self.built[setting] = self._ready(name, loader)

    def _ready(self, name: str, loader: Any) -> Any:
        return self._trainer.create_loader(name, self._trainer.build_data(name, loader))


class BuiltSetting:
    """A setting of a trainer. Reading it gives the part that was built from it, as soon as that exists.

    The given value stays in the dictionary of the trainer, and a file holds it. An assignment replaces it.
    """

    def __init__(self, field: dataclasses.Field[Any]) -> None:
        self._name, self._default = field.name, field.default

    def __get__(self, trainer: Any, owner: type) -> Any:
        if trainer is None:
            if self._default is dataclasses.MISSING:
                raise AttributeError(self._name)  # a dataclass asks its base for the default
            return self._default
        held = vars(trainer)
        if self._name not in held:
            raise AttributeError(f"{owner.__name__} has no {self._name!r} any more.")
        parts = held.get("parts")
        return held[self._name] if parts is None else parts.built.get(self._name, held[self._name])

    def __set__(self, trainer: Any, value: Any) -> None:
        vars(trainer)[self._name] = value
        if "parts" in vars(trainer):
            trainer.parts.forget_built(self._name)

    def __delete__(self, trainer: Any) -> None:
        del vars(trainer)[self._name]


BUILT = {"built": True}  # metadata of a setting that is read as what was built of it
BUILT_FROM = {**BUILT, SAVED_AS: lambda trainer, name: trainer.parts.saved_form(name)}  # a file holds what was given


def let_settings_be_built(cls: type) -> type:
    """Give the marked settings of a trainer class a `BuiltSetting`."""
    for field in dataclasses.fields(cls):
        if "built" in field.metadata:
            setattr(cls, field.name, BuiltSetting(field))
    return cls
