"""A look at an experiment before it costs anything: everything is built, and one batch goes forward and back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.tools.examination import Opening, examine_recordings
from sonosco_like.errors import ConfigError, DataError, SonoscoError, UsageError
from sonosco_like.events import Listeners
from sonosco_like.process import resident_memory
from sonosco_like.progress import Progress, no_progress
from sonosco_like.records import Batch
from sonosco_like.serialization import Snapshot
from sonosco_like.training.batches import describe_batch, to_device
from sonosco_like.training.checks import (
    check_is_loader,
    check_measures,
    check_model,
    check_texts,
    loaders_of,
    unequal_sizes,
)
from sonosco_like.training.experiment import Experiment
from sonosco_like.training.initialisation import initialise
from sonosco_like.training.randomness import describe_seeds
from sonosco_like.training.schedule import describe_schedule
from sonosco_like.training.trainer import ModelTrainer

_MOST_LISTED = 20


def unusable_rows(dataset: AudioDataset, opening: Opening, progress: Progress) -> list[str]:
    """What is wrong with each utterance that the sampler may choose: its text has no labels, or its audio no sound."""
    chosen = dataset.utterances.select(dataset.usable)
    examined = examine_recordings(chosen, opening, progress)
    unlabelled = dict(_unlabelled(dataset))
    problems = []
    for index in range(len(chosen)):
        faults = [f"{fault.reason}: {fault.detail}" for fault in examined.faults.get(index, ()) if not fault.usable]
        faults += [unlabelled[index]] if index in unlabelled else []
        problems += [f"{dataset.manifest}, row {chosen.row(index)}: {fault}" for fault in faults]
    return problems


def listed(problems: list[str], manifest: Path) -> list[str]:
    """As many of the problems as one wants to read, and how to see the others; the search itself has no limit."""
    if len(problems) <= _MOST_LISTED:
        return problems
    more = len(problems) - _MOST_LISTED
    return [
        *problems[:_MOST_LISTED],
        f"{more:,} more rows of {manifest} cannot be used. All: sonosco data stats {quote(str(manifest))} --json",
    ]


def _unlabelled(dataset: AudioDataset) -> Iterator[tuple[int, str]]:
    """Rows whose text has a part without label, with the reason. The dataset's own counts are left alone."""
    cleaner = replace(dataset.cleaner) if dataset.cleaner else None
    tokenizer = replace(dataset.tokenizer)
    for place, index in enumerate(dataset.usable.tolist()):
        text = dataset.utterances[index].text
        try:
            tokenizer.encode(cleaner(text) if cleaner else text)
        except DataError as error:
            yield place, str(error)


_MEGA = 1e6


@dataclass
class Inspection:
    """What was found: facts by heading, each a list of (name, value) rows, and every problem."""

    facts: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, heading: str, name: str, value: str) -> None:
        """Note a fact."""
        self.facts.setdefault(heading, []).append((name, value))

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Note what goes wrong inside, and go on after it."""
        try:
            yield
        except ConfigError as error:
            self.problems += map(str, error.problems)
        except SonoscoError as error:
            self.problems.append(str(error))


def inspect_experiment(
    experiment: Experiment, opening: Opening = "sample", progress: Progress = no_progress
) -> Inspection:
    """Build all parts of an experiment and train one batch, the largest of the first epoch. Nothing is written.

    Every text of its data is read, every header, and as many recordings as `opening` says.

    What depends on a part that failed is not tried; everything else is, so that all problems are found at once.
    """
    found = Inspection()
    trainer = experiment.trainer
    _describe_model(trainer, found)
    for check in _checks(trainer):
        with found.attempt():
            check()
    if experiment.init_from is not None:
        with found.attempt():
            for number, line in enumerate(initialise(trainer.model, experiment.init_from).lines()):
                found.add("model", "" if number else "init_from", line)
    for name, line in describe_seeds(experiment):
        found.add("seeds", name, line)
    usable = {
        name: _describe_data(name, loader, found, opening, progress) for name, loader in loaders_of(trainer).items()
    }
    has_labels = _describe_text(trainer, found)
    with found.attempt():
        if usable["train"] and (schedule := describe_schedule(trainer)):
            found.add("training", "schedule", schedule)
    with found.attempt():
        trainer.callbacks = []  # no callback hears the trial, so none writes a file
        trainer.parts.build()
        if usable["train"] and has_labels:  # a label that the model does not have is read out of bounds
            _try_batch(trainer, found)
            found.add("training", "checkpoint", _size_of_checkpoint(trainer))
    return found


def _checks(trainer: ModelTrainer) -> list[Callable[[], Any]]:
    callbacks = list(trainer.callbacks)
    return [
        lambda: check_model(trainer.model),
        lambda: check_texts(trainer.metrics, callbacks, trainer.decoder),
        lambda: check_measures(trainer.metrics, callbacks, trainer.validation_sets, trainer.averaging is not None),
        lambda: Listeners(trainer).attach(callbacks),
        lambda: Snapshot(trainer),
    ]


def _describe_model(trainer: ModelTrainer, found: Inspection) -> None:
    model = trainer.model
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.partition(".")[0]
        counts[part] = counts.get(part, 0) + parameter.numel()
    frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
    text = f"{type(model).__name__}, {sum(counts.values()):,} parameters" + (f", {frozen:,} frozen" if frozen else "")
    found.add("model", "model", text)
    for part, count in counts.items():
        found.add("model", f"  {part}", f"{count:,}")


def _describe_data(name: str, loader: Any, found: Inspection, opening: Opening, progress: Progress) -> bool:
    """Note how much data there is; returns whether it can be used."""
    before = len(found.problems)
    with found.attempt():
        check_is_loader(name, loader)
        plan = getattr(loader, "plan", None)
        if plan is None:
            batches = _batches(len(loader)) if hasattr(loader, "__len__") else "an unknown number of batches"
            found.add("data", name, f"{type(loader).__name__}, {batches}")
            return True
        hours, padding = plan.seconds / 3600, plan.padding_share
        utterances = f"{len(plan.order):,} utterance{'s' * (len(plan.order) != 1)}"
        described = f"{_batches(len(plan))} per epoch, {utterances}, {hours:.2f} h, {padding:.1%} padding"
        found.add("data", name, described)
        if loader.dataset.out_of_limits:
            found.add("data", "", f"{len(loader.dataset.out_of_limits):,} utterances left out for their length")
        _examine(loader.dataset, found, opening, progress)
    return len(found.problems) == before


def _examine(dataset: Any, found: Inspection, opening: Opening, progress: Progress) -> None:
    """Note every utterance that cannot be used: as a problem, unless the dataset skips bad rows."""
    unusable = unusable_rows(dataset, opening, progress) if isinstance(dataset, AudioDataset) else []
    if unusable and dataset.on_bad == "skip":
        for line in listed(unusable, dataset.manifest):
            found.add("data", "  left out", line)
    else:
        found.problems += listed(unusable, dataset.manifest)


def _batches(count: int) -> str:
    return f"{count:,} batch{'es' * (count != 1)}"


def _describe_text(trainer: ModelTrainer, found: Inspection) -> bool:
    """Note tokenizer and decoder; returns whether the model fits the data."""
    datasets = [getattr(loader, "dataset", None) for loader in loaders_of(trainer).values()]
    tokenizers = [tokenizer for each in datasets if (tokenizer := getattr(each, "tokenizer", None))]
    problems = list(dict.fromkeys(problem for each in datasets for problem in unequal_sizes(trainer, each)))
    if tokenizers and hasattr(tokenizers[0], "size"):
        found.add("text", "vocabulary", f"{type(tokenizers[0]).__name__}, {tokenizers[0].size} labels")
    found.problems += problems
    if trainer.decoder is not None:
        found.add("text", "decoder", type(trainer.decoder).__name__)
    return not problems


def _try_batch(trainer: ModelTrainer, found: Inspection) -> None:
    batch, place = _largest_batch(trainer.train_data_loader)
    found.add("training", "batch tried", f"{place}: {describe_batch(batch).partition(', utt')[0]}")
    before = _reset_peak(trainer.parts.device)
    begin = time.perf_counter()
    try:
        batch = to_device(batch, trainer.parts.device)
        with trainer.parts.autocast():
            loss = trainer.compute_loss(trainer.forward(batch), batch)
        trainer.backward(loss)
        trainer.optimizer_step()
    except torch.OutOfMemoryError as error:
        raise UsageError(f"Out of memory on a batch with {describe_batch(batch)}. Make batches smaller.") from error
    except (RuntimeError, IndexError, ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(f"The batch tried, {place}, failed: {type(error).__name__}: {error}") from error
    seconds = time.perf_counter() - begin
    if not torch.isfinite(loss):
        found.problems.append(f"The loss of the batch tried, {place}, is {loss.item()}.")
    peak = _peak(trainer.parts.device)
    found.add("training", "loss", f"{loss.item():.4f}, forward and back in {seconds:.2f} s on {trainer.parts.device}")
    found.add(
        "training",
        "memory",
        f"{peak / _MEGA:,.0f} MB at its peak, {max(0, peak - before) / _MEGA:,.0f} MB of it for the step",
    )


def _largest_batch(loader: Any) -> tuple[Any, str]:
    """The batch with most padded seconds, which the plan knows; of a loader without plan the first one."""
    plan = getattr(loader, "plan", None)
    if plan is None:
        return next(iter(loader)), "the first"
    loader.dataset.prepare()
    for position in reversed(plan.padded_seconds.argsort(kind="stable").tolist()):
        rows = loader.dataset.usable[plan[position]]
        batch: Batch | None = loader.dataset.batch(rows, loader.used_seed, loader.epoch)
        if batch is not None:
            return batch, f"the largest of epoch {loader.epoch}, number {position}"
    raise UsageError(f"No utterance of {loader.dataset.manifest} can be used.")


def _size_of_checkpoint(trainer: ModelTrainer) -> str:
    tensors = Snapshot(trainer).tensors
    return f"{sum(tensor.nbytes for tensor in tensors.values()) / _MEGA:,.1f} MB in {len(tensors)} tensors"


def _reset_peak(device: torch.device) -> int:
    """Reset the measurement; returns the memory in use."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    if os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is forgotten
    return _peak(device)


def _peak(device: torch.device) -> int:
    """The most memory that was in use: on the device, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resident_memory()[1] or 0
