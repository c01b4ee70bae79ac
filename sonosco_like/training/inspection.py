"""The inspection of an experiment before a run: everything is built, and one batch is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.loader import AudioDataLoader
from sonosco_like.data.tools.examination import Opening, examine_recordings, group_faults
from sonosco_like.errors import ConfigError, SonoscoError, UsageError
from sonosco_like.events import Listeners
from sonosco_like.progress import Progress, no_progress
from sonosco_like.serialization import Snapshot
from sonosco_like.training.batches import describe_batch
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
from sonosco_like.training.loaders import features_of, tokenizer_of
from sonosco_like.training.optimization import describe_schedule
from sonosco_like.training.randomness import describe_seeds
from sonosco_like.training.speech_checks import (
    MemoryMeter,
    Trial,
    largest_batches,
    remedy,
    text_faults,
    try_batch,
    try_buckets,
)
from sonosco_like.training.trainer import ModelTrainer

_MOST_PROBLEMS, _MOST_WARNINGS = 20, 3  # rows that are shown of each kind
_MEGA = 1e6


@dataclass
class Inspection:
    """What was found: facts by heading, each a list of (name, value) rows; problems that stop a run; warnings."""

    facts: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, heading: str, name: str, value: str) -> None:
        """Note a fact."""
        self.facts.setdefault(heading, []).append((name, value))

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Note a failure inside the block as a problem, and continue after it."""
        try:
            yield
        except ConfigError as error:
            self.problems += map(str, error.problems)
        except SonoscoError as error:
            self.problems.append(str(error))


def inspect_experiment(
    experiment: Experiment, opening: Opening = "sample", progress: Progress = no_progress
) -> Inspection:
    """Build all parts of an experiment, and train on the largest batch of each length. Nothing is written.

    Every text of its data is read, every header, and as many recordings as `opening` says. What depends on a part that
    failed is not tried; everything else is, so that all problems are found at once.
    """
    found = Inspection()
    trainer = experiment.trainer
    _describe_model(trainer, found)
    for check in _checks(trainer):
        with found.attempt():
            check()
    is_initialised = _describe_initial_weights(experiment, found)
    for name, line in describe_seeds(experiment):
        found.add("seeds", name, line)
    look = _Look(trainer, opening, progress)
    usable = {name: _describe_data(name, loader, found, look) for name, loader in loaders_of(trainer).items()}
    has_labels = _describe_text(trainer, found)
    with found.attempt():
        if usable["train"] and (schedule := describe_schedule(trainer)):
            found.add("training", "schedule", schedule)
    with found.attempt():
        trainer.callbacks = []  # no callback is called in the trial, so none writes a file
        trainer.parts.build()
        _describe_groups(trainer.optimizer, found)
        if (
            usable["train"] and has_labels and is_initialised
        ):  # a label that the model does not have is read out of bounds
            _try_batches(trainer, found, progress)
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


def _describe_initial_weights(experiment: Experiment, found: Inspection) -> bool:
    """Whether the model has the weights that it is to begin with, so that a trial of it is useful."""
    if experiment.init_from is None:
        return True
    problems = len(found.problems)
    with found.attempt():
        loader = experiment.trainer.train_data_loader
        matching = initialise(experiment.trainer.model, experiment.init_from, tokenizer_of(loader), features_of(loader))
        for number, line in enumerate(matching.lines()):
            found.add("model", "" if number else "init_from", line)
    return len(found.problems) == problems


def _describe_groups(optimizer: Any, found: Inspection) -> None:
    """Note the learning rate of each group of parameters, before what a schedule makes of it, if there are several."""
    groups = getattr(optimizer, "param_groups", ())
    for place, group in enumerate(groups if len(groups) > 1 else ()):
        rate, count = float(group.get("initial_lr", group["lr"])), sum(each.numel() for each in group["params"])
        found.add("learning rates", str(group.get("name", place)), f"{rate:.3g} for {count:,} parameters")


class _Look(NamedTuple):
    """How the data of a trainer is looked at."""

    trainer: ModelTrainer
    opening: Opening
    progress: Progress


def _describe_data(name: str, loader: Any, found: Inspection, look: _Look) -> bool:
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
        if isinstance(loader.dataset, AudioDataset):
            for line in _shares(loader.dataset):
                found.add("data", "", line)
            _examine(loader.dataset, found, look, is_training=name == "train")
    return len(found.problems) == before


def _examine(dataset: AudioDataset, found: Inspection, look: _Look, is_training: bool) -> None:
    """Note all faults of rows, by their kind: as problems if they would stop a run, otherwise as warnings."""
    examined = examine_recordings(dataset.utterances.select(dataset.usable), look.opening, look.progress)
    faults = {int(dataset.usable[place]): list(each) for place, each in examined.faults.items()}
    for index, each in text_faults(look.trainer, dataset, dataset.usable, is_training, look.progress).items():
        faults.setdefault(index, []).extend(each)
    for finding in group_faults(faults):
        if finding.usable:
            found.warnings.append(finding.describe(dataset.utterances, _MOST_WARNINGS))
        elif dataset.on_bad == "skip":
            found.warnings.append(f"left out: {finding.describe(dataset.utterances, _MOST_PROBLEMS)}")
        else:
            found.problems.append(finding.describe(dataset.utterances, _MOST_PROBLEMS))


def _shares(dataset: AudioDataset) -> Iterator[str]:
    """What each of several manifests gives to an epoch."""
    paths = dataset.utterances.paths
    if len(paths) == 1:
        return
    sizes = np.bincount(dataset.utterances.sources[dataset.usable], minlength=len(paths)).tolist()
    counts = sizes if dataset.mixture is None else dataset.mixture.counts
    for path, size, count in zip(paths, sizes, counts, strict=True):
        passes = f"{count / max(size, 1):.3g} times its {size:,}"
        yield f"{count / sum(counts):.1%} from {path}: {count:,} utterances, {passes}"


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


def _try_batches(trainer: ModelTrainer, found: Inspection, progress: Progress) -> None:
    """Train on the largest batch of each bucket; of a loader without buckets, on the first batch."""
    loader = trainer.train_data_loader
    meter = MemoryMeter(trainer.parts.device)
    if isinstance(loader, AudioDataLoader):
        batches = len(largest_batches(loader))
        with progress("trying the largest batch of each length", batches, "batches") as advance:
            trials = []
            for trial in try_buckets(trainer):
                trials.append(trial)
                advance(1)
    else:
        batch = next(iter(loader))
        found.add("training", "batch tried", f"the first: {describe_batch(batch).partition(', utt')[0]}")
        trials = [try_batch(trainer, batch, meter)]
    if not trials:
        raise UsageError(f"No utterance of {loader.dataset.name} can be used.")
    _describe_trials(trials, meter.limit, trainer, found)


def _describe_trials(trials: list[Trial], limit: float | None, trainer: ModelTrainer, found: Inspection) -> None:
    for trial in (each for each in trials if each.is_tried):
        if trial.seconds:
            found.add("largest batch of each length", _size(trial), f"{_megabytes(trial.needed)}, {trial.took:.2f} s")
        if not isfinite(trial.loss):
            found.problems.append(f"The loss of the batch tried, {_size(trial)}, is {trial.loss}.")
    last = trials[-1]
    if last.is_tried:
        of_all = f" of {_megabytes(limit)} that can be used" if limit is not None else ""
        found.add("training", "loss", f"{last.loss:.4f}, {_size(last)} forward and back in {last.took:.2f} s")
        found.add("training", "memory", f"{_megabytes(last.needed)}{of_all} on {trainer.parts.device}")
        return
    limit = last.needed / 2 if limit is None else limit
    found.problems.append(
        f"Batches of {_size(last)} do not fit into memory: they need about {_megabytes(last.needed)}, and "
        f"{_megabytes(limit)} can be used. {remedy(last, limit, trainer.train_data_loader.sampler)}"
    )


def _size(trial: Trial) -> str:
    return f"{trial.utterances} x {trial.seconds:.1f} s" if trial.seconds else "the first"


def _megabytes(count: float) -> str:
    return f"{count / _MEGA:,.0f} MB"


def _size_of_checkpoint(trainer: ModelTrainer) -> str:
    tensors = Snapshot(trainer).tensors
    return f"{sum(tensor.nbytes for tensor in tensors.values()) / _MEGA:,.1f} MB in {len(tensors)} tensors"
