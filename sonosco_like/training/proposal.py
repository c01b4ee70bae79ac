"""What a first config should say: chosen from a survey of the data, from the machine and from timed batches.

Each choice comes with its reason. `proposal_text` writes the choices as YAML.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from sonosco_like.data.tools.survey import Survey
from sonosco_like.errors import UsageError
from sonosco_like.process import available_memory, usable_processors

ModelName = Literal["conformer", "deepspeech2", "las", "tds"]
Size = Literal["small", "medium", "large"]
Labels = Literal["auto", "characters", "pieces"]

SIZES: tuple[Size, ...] = ("small", "medium", "large")
_MOST_HOURS: dict[Size, float] = {"small": 10.0, "medium": 150.0, "large": math.inf}
_LEARNING_RATES: dict[ModelName, dict[Size, float]] = {
    "conformer": {"small": 0.0015, "medium": 0.001, "large": 0.001},
    "deepspeech2": {"small": 0.0025, "medium": 0.0007, "large": 0.0004},
    "las": {"small": 0.002, "medium": 0.001, "large": 0.0005},
    "tds": {"small": 0.0015, "medium": 0.001, "large": 0.0005},
}
_UTTERANCES_IN_BATCH = 8  # on a CPU; more cost more of its time for the same loss
_SECONDS_IN_BATCH = (10.0, 160.0)
_GPU_SECONDS_PER_GIGABYTE = 15.0
_LONGEST = 30.0  # attention and memory grow with the length
_HOURS_FOR_PIECES, _WORDS_FOR_PIECES = 50.0, 5_000
_FRAMES_PER_SECOND = 25  # after a reduction to a quarter of the frames
_CROWDED_SHARE = 0.02
_FEWEST_WHOLE_EPOCHS = 5  # a training of fewer ends within one, to use the time
_FEWEST_PASSES = 5  # of a larger model over the data
_MOST_VALIDATIONS, _FEWEST_VALIDATIONS, _VALIDATION_SHARE = 15, 3, 0.1
_FEWEST_BATCHES_BETWEEN = 20  # validations
_MEMORY_SHARE = 0.7
_OVERHEAD = 1.05  # logs, checkpoints and pictures


@dataclass(frozen=True)
class Machine:
    """What a training may use: processors, bytes of memory, and a GPU with its bytes."""

    processors: int
    memory: int | None
    gpu: str | None = None
    gpu_memory: int = 0

    def __str__(self) -> str:
        memory = f", {self.memory / 2**30:.0f} GB of memory" if self.memory else ""
        gpu = f"{self.gpu} with {self.gpu_memory / 2**30:.0f} GB" if self.gpu else "no GPU"
        return f"{self.processors} processor{'s' * (self.processors > 1)}{memory}, {gpu}"


def show_seconds(seconds: float) -> str:
    """Seconds with two digits or more."""
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds:,.0f} s"


def look_at_machine() -> Machine:
    """The machine of this process."""
    if not torch.cuda.is_available():
        return Machine(usable_processors(), available_memory())
    gpu = torch.cuda.get_device_properties(0)
    return Machine(usable_processors(), available_memory(), gpu.name, gpu.total_memory)


@dataclass(frozen=True)
class Proposal:
    """The choices of a first config. `reasons` explains them in the order in which they are printed."""

    name: str
    folder: Path
    survey: Survey
    machine: Machine
    minutes: float
    model: ModelName
    size: Size
    pieces: int | None  # None for characters
    batch_seconds: int
    longest: float | None  # None if no utterance is too long
    workers: int
    epochs: int = 1
    batches: int | None = None  # of a training that ends within an epoch
    validate_every: int = 1  # epochs, or batches if these are given
    epoch_seconds: float = 0.0
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def mels(self) -> int:
        """Frequency bands of the features."""
        return 40 if self.size == "small" else 80

    @property
    def learning_rate(self) -> float:
        """The highest rate of the schedule."""
        return _LEARNING_RATES[self.model][self.size]

    @property
    def pieces_file(self) -> Path:
        """Where the word pieces are."""
        return self.folder / "pieces.model"

    @property
    def skips_rows(self) -> bool:
        """Whether some rows cannot be used."""
        return self.longest is not None or bool(self.survey.train.unusable or self.survey.val.unusable)

    def explain(self, **reasons: str) -> Proposal:
        """The same with more reasons."""
        return replace(self, reasons={**self.reasons, **reasons})


def propose(
    folder: Path, survey: Survey, machine: Machine, minutes: float, model: ModelName | None, labels: Labels
) -> Proposal:
    """Choose what follows from data and machine alone; `fit_to_time` does the rest. `model` is one of ours, or free."""
    model = model or "deepspeech2"
    size, why_size = _choose_size(survey.train.hours, machine)
    pieces, why_labels = _choose_labels(survey, labels)
    longest, why_longest = _choose_longest(survey)
    batch, why_batch = _choose_batch(survey, machine, longest)
    workers = min(8, machine.processors - 1) if machine.gpu else min(1, machine.processors - 1)
    reasons = {
        "size": why_size,
        "texts": "; ".join(survey.writing.reasons),
        "labels": why_labels,
        "features": _explain_rate(survey),
        "batch": why_batch,
        "workers": f"{workers} process{'es' * (workers != 1)} beside the training prepare the batches",
    }
    name = folder.resolve().name
    chosen = Proposal(
        "".join(each if each.isprintable() and each not in "/\\" else "-" for each in name) or "first",
        folder, survey, machine, minutes, model, size, pieces, batch, longest, workers, reasons=reasons,
    )  # fmt: skip
    return chosen.explain(length=why_longest) if why_longest else chosen


def _choose_size(hours: float, machine: Machine) -> tuple[Size, str]:
    size = next(size for size in SIZES if hours <= _MOST_HOURS[size])
    if size == "large" and not machine.gpu:
        return "medium", "medium: a large one needs a GPU"
    return size, f"{size}: for {hours:.2g} hours of speech"


def _choose_labels(survey: Survey, labels: Labels) -> tuple[int | None, str]:
    writing = survey.writing
    crowded = _crowded_share(survey)
    enough = survey.train.hours >= _HOURS_FOR_PIECES and len(writing.words) >= _WORDS_FOR_PIECES
    size = 1000 if survey.train.hours >= 2 * _HOURS_FOR_PIECES else 300
    size = max(size, 2 * len(writing.characters))
    if labels == "pieces" or (labels == "auto" and writing.has_spaces and (enough or crowded > _CROWDED_SHARE)):
        why = "as asked" if labels == "pieces" else f"there are {len(writing.words):,} different words"
        if crowded > _CROWDED_SHARE:
            why = f"{crowded:.0%} of the texts have more characters than CTC has frames for"
        return size, f"{size} word pieces: {why}"
    count = len(writing.characters)
    why = (
        "as asked"
        if labels == "characters"
        else f"word pieces are for {_HOURS_FOR_PIECES:g} hours and {_WORDS_FOR_PIECES:,} words or more"
    )
    if labels == "auto" and not writing.has_spaces:
        why = "no spaces divide the texts into words"
    return None, f"{count} characters, all that occur in the training texts: {why}"


def _crowded_share(survey: Survey) -> float:
    """The share of utterances whose characters are more than the frames that a model leaves for CTC."""
    letters = np.array(survey.train.letters)
    return float(np.mean(letters > survey.train.durations * _FRAMES_PER_SECOND))


def _choose_longest(survey: Survey) -> tuple[float | None, str]:
    """A limit of the length, if some utterances are longer; and why."""
    durations = survey.train.durations
    longer = durations > _LONGEST
    if not longer.any() and not (survey.val.durations > _LONGEST).any():
        return None, ""
    lost = float(durations[longer].sum() / durations.sum())
    if lost > 0.5:
        raise UsageError(
            f"{longer.sum():,} of {len(durations):,} utterances of {survey.train.path} are longer than {_LONGEST:g} s, "
            f"up to {durations.max():.0f} s. Cut them at pauses into utterances of 1 to 20 s, each with its text."
        )
    of_val = (survey.val.durations > _LONGEST).sum()
    counts = f"{longer.sum():,} of training ({lost:.1%} of the audio), {of_val:,} of validation"
    return _LONGEST, f"utterances above {_LONGEST:g} s are left out: {counts}"


def _choose_batch(survey: Survey, machine: Machine, longest: float | None) -> tuple[int, str]:
    durations = np.concatenate([survey.train.durations, survey.val.durations])
    most = min(float(durations.max()), longest or math.inf)
    mean = float(survey.train.durations.mean())
    if machine.gpu:
        seconds = _GPU_SECONDS_PER_GIGABYTE * machine.gpu_memory / 2**30
        # a corpus of an hour must still give many steps
        seconds = min(seconds, max(_UTTERANCES_IN_BATCH * mean, survey.train.hours * 3600 / 100))
    else:
        low, high = _SECONDS_IN_BATCH
        seconds = min(max(_UTTERANCES_IN_BATCH * mean, low), high)
    seconds = math.ceil(max(seconds, most))
    return seconds, f"{seconds} s of audio, about {max(1, int(seconds / mean))} utterances of {mean:.1f} s"


def _explain_rate(survey: Survey) -> str:
    rates = survey.train.examined.sample_rates
    listed = ", ".join(f"{count:,} of {rate:,} Hz" for rate, count in rates.most_common(3))
    channels = sum(count for number, count in survey.train.examined.channels.items() if number > 1)
    stereo = f"; {channels:,} have several channels, of which the mean is taken" if channels else ""
    return f"at {survey.sample_rate:,} Hz (recordings: {listed}){stereo}"


@dataclass
class TrialTimes:
    """Seconds that parts of a training take, estimated from `batches` that were timed; memory in bytes.

    ```
    step        a batch: forward, backward, change of the weights
    loading     a batch by one worker: reading, augmentation, features
    validation  the whole validation set
    ```
    """

    step: float
    loading: float
    validation: float
    batches_per_epoch: int
    workers: int
    memory: int
    batches: int

    @property
    def epoch(self) -> float:
        """Seconds of an epoch of training; workers load while the model computes."""
        loading = self.loading / self.workers if self.workers else 0.0
        step = max(self.step, loading) if self.workers else self.step + self.loading
        return step * self.batches_per_epoch * _OVERHEAD


def next_smaller(proposal: Proposal, times: TrialTimes) -> Proposal | None:
    """The same with smaller batches or a smaller model, if what was tried needs too much memory or time."""
    limit = proposal.machine.gpu_memory or proposal.machine.memory or math.inf
    if times.memory > _MEMORY_SHARE * limit and proposal.batch_seconds > 2 * _longest_of(proposal):
        half, needed = proposal.batch_seconds // 2, f"{times.memory / 2**30:.1f} GB"
        return replace(proposal, batch_seconds=half).explain(batch=f"{half} s of audio; twice as much needs {needed}")
    passes = proposal.minutes * 60 / times.epoch
    if passes < _FEWEST_PASSES and proposal.size != "small":
        smaller = SIZES[SIZES.index(proposal.size) - 1]
        why = f"{smaller}: the {proposal.size} one has time for only {passes:.2g} passes over the data"
        return replace(proposal, size=smaller).explain(size=why)
    return None


def _longest_of(proposal: Proposal) -> float:
    return min(float(proposal.survey.train.durations.max()), proposal.longest or math.inf)


def fit_to_time(proposal: Proposal, times: TrialTimes) -> Proposal:
    """Choose the length of the training, and how often it is validated, for the time that was given."""
    budget = proposal.minutes * 60
    validations = int(_VALIDATION_SHARE * budget / max(times.validation, 1e-3))
    validations = min(_MOST_VALIDATIONS, max(_FEWEST_VALIDATIONS, validations))
    epochs = max(budget - validations * times.validation, 0.5 * budget) / times.epoch
    fitted = replace(proposal, epoch_seconds=times.epoch)
    if epochs < _FEWEST_WHOLE_EPOCHS:
        batches = epochs * times.batches_per_epoch
        validations = max(_FEWEST_VALIDATIONS, min(validations, int(batches / _FEWEST_BATCHES_BETWEEN)))
        every = max(1, int(batches / validations))
        length = f"{every * validations:,} batches, {epochs:.2g} epochs of {show_seconds(times.epoch)}"
        fitted = replace(fitted, epochs=math.ceil(epochs), batches=every * validations, validate_every=every)
    else:
        every = max(1, round(epochs / validations))
        validations = round(epochs / every)
        length = f"{every * validations} of {show_seconds(times.epoch)}"
        fitted = replace(fitted, epochs=every * validations, validate_every=every)
    validated = f"{validations} validations of {show_seconds(times.validation)}"
    where = proposal.machine.gpu or "the CPU"
    return fitted.explain(epochs=f"{length}, and {validated}: measured with {times.batches} batches on {where}")
