"""`write_first_config`: from two manifests to a config that fits them, and this machine, which a few batches show."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import torch

from sonosco_like.data.tools.files import check_writable
from sonosco_like.data.tools.survey import concerns, survey_data
from sonosco_like.data.tools.text_models import learn_pieces
from sonosco_like.errors import UsageError
from sonosco_like.process import resident_memory
from sonosco_like.progress import Progress, no_progress
from sonosco_like.records import SPECIAL_SYMBOLS
from sonosco_like.serialization import Document, replace_file
from sonosco_like.training.batches import memory_errors_as_usage_errors, to_device
from sonosco_like.training.experiment import build_experiment
from sonosco_like.training.proposal import (
    Labels,
    ModelName,
    Proposal,
    TrialTimes,
    fit_to_time,
    look_at_machine,
    next_smaller,
    propose,
)
from sonosco_like.training.proposal_text import write_proposal
from sonosco_like.training.trainer import ModelTrainer

_TRIAL_SECONDS = (2.0, 10.0)


def write_first_config(
    folder: Path,
    train: Path,
    val: Path,
    minutes: float = 30.0,
    model: ModelName | None = None,
    labels: Labels = "auto",
    progress: Progress = no_progress,
) -> tuple[Proposal, list[str]]:
    """Write `config.yaml`, and `pieces.model` if there are word pieces, into a folder; neither may exist.

    Returns the choices, and sentences about what may be wrong with the data.
    """
    config = folder / "config.yaml"
    for path in (config, folder / "pieces.model"):
        if path.exists():
            raise UsageError(
                f"{path} exists, and nothing is overwritten. Choose another folder, or remove it: rm {quote(str(path))}"
            )
        check_writable(path)
    survey = survey_data(train, val, progress)
    proposal = propose(folder, survey, look_at_machine(), minutes, model, labels)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        proposal = _fit(_learn_pieces(proposal, progress), progress)
        replace_file(config, write_proposal(proposal).encode())
    except BaseException:  # Ctrl-C too: the next call must not meet a half of the files
        proposal.pieces_file.unlink(missing_ok=True)
        raise
    return proposal, list(concerns(survey))


def _learn_pieces(proposal: Proposal, progress: Progress) -> Proposal:
    """Learn the word pieces, fewer if the texts have not as many; characters if they have hardly any."""
    size, writing = proposal.pieces, proposal.survey.writing
    while size and size > len(writing.characters) + len(SPECIAL_SYMBOLS):
        with suppress(UsageError):  # more than there are
            found = learn_pieces(
                [proposal.survey.train.path], proposal.pieces_file, size, "bpe", writing.cleaner, progress=progress
            )
            why = proposal.reasons["labels"].partition(": ")[2]
            return replace(proposal, pieces=found.size).explain(labels=f"{found.size} word pieces: {why}")
        size = size * 2 // 3
    if proposal.pieces:
        count = len(writing.characters)
        proposal = proposal.explain(labels=f"{count} characters: the texts are too few for word pieces")
    return replace(proposal, pieces=None)


def _fit(proposal: Proposal, progress: Progress) -> Proposal:
    while True:
        with progress("training a few batches to see how long they take", None, "batches") as advance:
            times = _time(proposal)
            advance(times.batches)
        smaller = next_smaller(proposal, times)
        if smaller is None:
            return fit_to_time(proposal, times)
        proposal = smaller


def _time(proposal: Proposal) -> TrialTimes:
    document = Document.parse(write_proposal(proposal), "the first config")
    shortest, longest = _TRIAL_SECONDS
    seconds = min(max(proposal.minutes, shortest), longest)  # one for each minute
    return time_training(build_experiment(document).trainer, seconds)


_PLACES = (0.5, 0.9, 0.1, 0.7, 0.3)  # of the batches tried, in the order of their length
_ROUNDS = 3


def time_training(trainer: ModelTrainer, most_seconds: float) -> TrialTimes:
    """Train a few batches of all lengths once, and again for about so many seconds.

    The weights change: the trainer is of no use afterwards. Each batch counts with the fastest of its rounds, which
    other programs on the machine have disturbed least.
    """
    begin = time.perf_counter()
    trainer.callbacks = []
    trainer.parts.build()
    loader = trainer.train_data_loader
    loader.dataset.prepare()
    seconds = loader.plan.padded_seconds
    order = np.argsort(seconds, kind="stable")
    _train_batch(trainer, loader, int(order[-1]))  # the largest: it must fit into memory, and it warms up
    loading: dict[int, float] = {}
    steps: dict[int, float] = {}
    places = list(dict.fromkeys(int(order[int(share * (len(order) - 1))]) for share in _PLACES))
    for place in places * _ROUNDS:
        if len(steps) == len(places) and time.perf_counter() - begin > most_seconds:
            break
        loaded, step = _train_batch(trainer, loader, place)
        loading[place] = min(loaded, loading.get(place, loaded))
        steps[place] = min(step, steps.get(place, step))
    share = float(seconds.mean()) / float(np.mean([seconds[place] for place in steps]))
    return TrialTimes(
        step=share * float(np.mean(list(steps.values()))),
        loading=share * float(np.mean(list(loading.values()))),
        validation=_time_validation(trainer),
        batches_per_epoch=len(loader.plan),
        workers=loader.num_workers,
        memory=_peak_memory(trainer.parts.device),
        batches=len(steps),
    )


class _Stopwatch:
    """Seconds from one lap to the next.

    On a CPU other programs make the clock run ahead. Then the processor time of this process is the shorter one, and
    nearer to what a training takes when the machine is free.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_cpu = device.type == "cpu"
        self._clock, self._processor = time.perf_counter(), time.process_time()

    def lap(self) -> float:
        clock, processor = time.perf_counter(), time.process_time()
        passed, worked = clock - self._clock, processor - self._processor
        self._clock, self._processor = clock, processor
        return min(passed, worked) if self._is_cpu else passed


def _train_batch(trainer: ModelTrainer, loader: Any, place: int) -> tuple[float, float]:
    """Train one batch of the plan; returns the seconds for loading it and for the step."""
    watch = _Stopwatch(trainer.parts.device)
    dataset = loader.dataset
    batch = dataset.batch(dataset.usable[loader.plan[place]], 0, loader.epoch)
    if batch is None:
        raise UsageError(f"No utterance of batch {place} can be used: sonosco data stats {dataset.manifest}")
    loaded = watch.lap()
    batch = to_device(batch, trainer.parts.device)
    with memory_errors_as_usage_errors(batch):
        with trainer.parts.autocast():
            loss = trainer.compute_loss(trainer.forward(batch), batch)
        trainer.backward(loss)
        trainer.optimizer_step()
        loss.item()  # the device has finished
    return loaded, watch.lap()


def _time_validation(trainer: ModelTrainer) -> float:
    """Seconds of a validation, from its batch of medium length."""
    loader = trainer.val_data_loader
    seconds = loader.plan.padded_seconds
    place = int(np.argsort(seconds, kind="stable")[len(seconds) // 2])
    watch = _Stopwatch(trainer.parts.device)
    batch = loader.dataset.batch(loader.dataset.usable[loader.plan[place]], 0, 0)
    if batch is None:
        return 0.0
    with trainer.evaluation_mode():
        trainer.validator.evaluate_batch(to_device(batch, trainer.parts.device))
    return watch.lap() * float(seconds.sum() / seconds[place])


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resident_memory()[1] or 0
