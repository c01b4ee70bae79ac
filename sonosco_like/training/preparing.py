"""What happens before the first batch: parts are built, listeners attached, mistakes found."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from sonosco_like.events import Event, Moment, fire, listen, stage
from sonosco_like.training.activations import recompute_activations
from sonosco_like.training.checks import (
    check_data,
    check_is_model,
    check_measures,
    check_methods,
    check_model,
    check_optimizer,
    check_reduction,
    check_serializable,
    check_shares,
    check_texts,
)
from sonosco_like.training.data_stages import DataStages
from sonosco_like.training.devices import choose_device
from sonosco_like.training.last_good import LastGood
from sonosco_like.training.loaders import say_how_it_resumes
from sonosco_like.training.optimization import Optimization
from sonosco_like.training.undoing import Undo

logger = logging.getLogger(__name__)

READING = {"batch_end", "validation_end", "epoch_end", "log"}  # where averages of training are read


class Preparing(DataStages):
    """The part of ModelTrainer that makes a run ready."""

    def _build(self) -> None:
        """Make the model, its optimizer and its schedule; once, whether training begins or a state is restored."""
        if self._optimization is not None:
            return
        check_methods(self)
        self.hooks, self.seconds_in_callbacks = listen(self, self.callbacks, self.processes.rank)
        self._device = choose_device(self.device, self.processes.local_rank, self.processes.size)
        self.model = self.build_model(self.model)
        check_model(self.model)
        recompute_activations(self.model, self.gradient_checkpointing)
        planned = {"optimizer": self.optimizer, "scheduler": self.scheduler}
        try:
            self.optimizer = self.build_optimizer(self.model.named_parameters())
            self.scheduler = self.build_scheduler(self.optimizer)
        except Exception:  # also a Stop: whoever trains on builds again
            self.optimizer, self.scheduler = planned["optimizer"], planned["scheduler"]
            raise
        self._original_fields |= planned
        scaler = torch.amp.GradScaler(self._device.type) if self.precision == "float16" else None
        self._optimization = Optimization(self.model, self.optimizer, self.scheduler, scaler, self.processes)

    @stage("build_model")
    def build_model(self, model: nn.Module) -> nn.Module:
        """The model on its device, ready to learn."""
        check_is_model(model)
        return model.to(self._device).train()

    @stage("build_optimizer")
    def build_optimizer(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Any:
        """The optimizer of the named parameters, frozen ones too."""
        is_record = hasattr(self.optimizer, "build") and not isinstance(self.optimizer, type)
        optimizer = self.optimizer.build(parameters) if is_record else self.optimizer
        check_optimizer(optimizer)
        return optimizer

    @stage("build_scheduler", may_be_none=True)
    def build_scheduler(self, optimizer: Any) -> Any:
        """The schedule of an optimizer, if there is one."""
        return self.scheduler.build(optimizer) if hasattr(self.scheduler, "build") else self.scheduler

    def _listen(self) -> None:
        self._listening = True
        self.hooks, self.seconds_in_callbacks = listen(self, self.callbacks, self.processes.rank)
        self._norm_is_read = not READING.isdisjoint(self.hooks)
        fire(self.hooks, Moment(Event.ATTACH.value, self))

    def _prepare(self) -> None:
        """Refuse what would fail after hours; then make the data and the network ready."""
        self.used_weights.give_back()
        check_texts(self.metrics, self.callbacks, self.decoder)
        check_measures(self.metrics, self.callbacks, self.validation_sets, self.averaging is not None)
        self._prepare_data()
        check_shares(self)
        check_reduction(self)
        say_how_it_resumes(self.train_data_loader, saved=self.experiment is not None)
        if self.global_step == 0:
            self.processes.draw_apart()
            check_serializable(self, must=self.experiment is not None)
        if self.sync_batch_norm:
            self.model = self.processes.share_statistics(self.model)
        self._inference = torch.compile(self.model, backend=self.compile) if self.compile else self.model  # type: ignore[assignment]
        self.processes.share_state(self.model)
        if self.experiment is not None or self.non_finite in ("skip", "rollback"):
            self._last_good = LastGood(self.model, self.train_data_loader)
        self._ranks.restore_generators()  # who made loaders or callbacks since then may have drawn from them
        if self.experiment is not None:
            self._undo = Undo(self)
            self._undo.watch(self.hooks)

    def _prepare_data(self) -> None:
        self._loaders.share(self.processes)
        self.train_data_loader = self._prepared("train", self.train_data_loader, "train_data_loader")
        if isinstance(self.val_data_loader, dict):
            given = dict(self.val_data_loader)
            loaders = {name: self._ready(f"val_{name}", each) for name, each in given.items()}
            self.val_data_loader.update(loaders)
            if any(loaders[name] is not given[name] for name in given):
                self._original_fields.setdefault("val_data_loader", given)
        else:
            self.val_data_loader = self._prepared("val", self.val_data_loader, "val_data_loader")
        self.test_data_loader = self._prepared("test", self.test_data_loader, "test_data_loader")
        self._vocabulary = self.build_tokenizer()
        check_data(self)
        self._loaders.go_to_saved_place(self.train_data_loader, self.epoch, self.batches_done)
        self._ranks.resume(self.train_data_loader)

    def _prepared(self, name: str, loader: Any, field: str) -> Any:
        if loader is None:
            return None
        prepared = self._ready(name, loader)
        if prepared is not loader:
            self._original_fields.setdefault(field, loader)
        return prepared

    def _ready(self, name: str, loader: Any) -> Any:
        return self.create_loader(name, self.build_data(name, loader))

    @stage("build_tokenizer", may_be_none=True)
    def build_tokenizer(self) -> Any:
        """The tokenizer of the data, if it has one."""
        for loader in (self.train_data_loader, *self.validation_sets.values(), self.test_data_loader):
            tokenizer = getattr(getattr(loader, "dataset", None), "tokenizer", None)
            if tokenizer is not None:
                return tokenizer
        return None

    def _batches(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch that are still to come."""
        loader = self.train_data_loader
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        return self._loaders.batches(loader, epoch, self.batches_done)
