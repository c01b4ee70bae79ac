"""Learning-rate schedules by name: the settings that a config gives, before there is an optimizer.

Most are torch's schedulers, with torch's fields and defaults (a test compares them) except `last_epoch`, which is
state. Torch's `ReduceLROnPlateau` follows a measure and is a callback here. At the end of the file are two schedules
of speech recipes that torch does not have; each is a pure function of the step, so a resume needs only the step.

Fields of the type `Steps` count steps of the optimizer: as a whole number, or as a length such as `500ba`, `3ep` or
`0.1dur`, a share of the whole training. A trainer knows the whole, and builds the schedule with numbers (`in_steps`).
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, TypeAlias

import torch

from sonosco_like.errors import UsageError, as_sentence
from sonosco_like.events import Duration
from sonosco_like.optim.optimizers import torch_errors_as_usage_errors
from sonosco_like.serialization import serializable

Shape = Literal["linear", "cosine", "exponential"]
Steps: TypeAlias = int | str
StepsOf: TypeAlias = Callable[[Duration], int]


@serializable
class Scheduler(ABC):
    """The settings of a schedule; `build(optimizer)` makes the torch scheduler of the same name.

    `counted` names the fields that count steps; a length is at least `least` of them.
    """

    counted: ClassVar[tuple[str, ...]] = ()
    least: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for name, duration in self._durations():
            if duration.unit == "s":
                raise UsageError(f"`{name}` counts steps, as 500, 500ba, 3ep or 0.1dur; got a time, {duration}.")

    @property
    def lengths(self) -> dict[str, str]:
        """The lengths that are steps only once the length of the training is known, by field: `total`, `parts[0].x`."""
        found = {name: str(duration) for name, duration in self._durations()}
        for place, part in enumerate(self._parts()):
            found.update({f"schedulers[{place}].{name}": text for name, text in part.lengths.items()})
        return found

    def in_steps(self, steps_of: StepsOf) -> Scheduler:
        """The same schedule with numbers in the place of lengths; `steps_of` gives the steps of a length.

        Raises UsageError, which names the field, for a length that cannot be known.
        """
        if not self.lengths:
            return self
        changes: dict[str, Any] = {}
        for name in self.counted:
            value = getattr(self, name)
            several = isinstance(value, list)
            counts = [self._count(name, each, steps_of) for each in (value if several else [value])]
            changes[name] = counts if several else counts[0]
        if parts := self._parts():
            changes["schedulers"] = [part.in_steps(steps_of) for part in parts]
        return dataclasses.replace(self, **changes)

    def _count(self, name: str, value: Any, steps_of: StepsOf) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return max(self.least, steps_of(Duration.parse(value)))
        except UsageError as error:
            raise UsageError(
                f"{type(self).__name__}: `{name}: {value}` cannot be counted in steps: {as_sentence(error)}"
            ) from None

    def _durations(self) -> Iterator[tuple[str, Duration]]:
        for name in self.counted:
            value = getattr(self, name)
            items = value if isinstance(value, list) else [value]
            for place, each in enumerate(items):
                if isinstance(each, str):
                    yield (f"{name}[{place}]" if items is value else name), Duration.parse(each)

    def _parts(self) -> list[Scheduler]:
        """The schedules that this one is made of."""
        return []

    def build(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        """Make the scheduler for this optimizer. Raises UsageError for a value that torch refuses."""
        name = type(self).__name__
        self._refuse_lengths()
        arguments, settings = self._positional_arguments(optimizer), self._settings(optimizer)
        with torch_errors_as_usage_errors(f"The scheduler {name}"):
            scheduler: torch.optim.lr_scheduler.LRScheduler = getattr(torch.optim.lr_scheduler, name)(
                *arguments, **settings
            )
        return scheduler

    def _refuse_lengths(self) -> None:
        if lengths := self.lengths:
            raise UsageError(
                f"{type(self).__name__}: only a training knows how many steps {_listed(lengths)} are. Give numbers of "
                f"steps, or call in_steps(...) first."
            )

    def _positional_arguments(self, optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
        return (optimizer,)

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@serializable
class StepLR(Scheduler):
    """Multiplies the rate by `gamma` every `step_size` steps."""

    counted: ClassVar[tuple[str, ...]] = ("step_size",)

    step_size: Steps
    gamma: float = 0.1


@serializable
class MultiStepLR(Scheduler):
    """Multiplies the rate by `gamma` at each milestone."""

    counted: ClassVar[tuple[str, ...]] = ("milestones",)

    milestones: list[Steps]
    gamma: float = 0.1


@serializable
class ExponentialLR(Scheduler):
    """Multiplies the rate by `gamma` every step."""

    gamma: float


@serializable
class ConstantLR(Scheduler):
    """Multiplies the rate by `factor` for the first `total_iters` steps."""

    counted: ClassVar[tuple[str, ...]] = ("total_iters",)

    factor: float = 1.0 / 3
    total_iters: Steps = 5


@serializable
class LinearLR(Scheduler):
    """Changes the rate from `start_factor` to `end_factor` in `total_iters` steps: a warm-up, or a decay."""

    counted: ClassVar[tuple[str, ...]] = ("total_iters",)

    start_factor: float = 1.0 / 3
    end_factor: float = 1.0
    total_iters: Steps = 5


@serializable
class PolynomialLR(Scheduler):
    """Lowers the rate to zero in `total_iters` steps along a polynomial."""

    counted: ClassVar[tuple[str, ...]] = ("total_iters",)

    total_iters: Steps = 5
    power: float = 1.0


@serializable
class CosineAnnealingLR(Scheduler):
    """Lowers the rate to `eta_min` in `T_max` steps along a cosine."""

    counted: ClassVar[tuple[str, ...]] = ("T_max",)

    T_max: Steps
    eta_min: float = 0.0


@serializable
class CosineAnnealingWarmRestarts(Scheduler):
    """A cosine decay that restarts after `T_0` steps; each cycle is `T_mult` times longer than the last."""

    counted: ClassVar[tuple[str, ...]] = ("T_0",)

    T_0: Steps
    T_mult: int = 1
    eta_min: float = 0.0


@serializable
class CyclicLR(Scheduler):
    """Moves the rate up and down between `base_lr` and `max_lr`."""

    counted: ClassVar[tuple[str, ...]] = ("step_size_up", "step_size_down")

    base_lr: float
    max_lr: float
    step_size_up: Steps = 2000
    step_size_down: Steps | None = None
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    gamma: float = 1.0
    scale_fn: Callable[[float], float] | None = None
    scale_mode: Literal["cycle", "iterations"] = "cycle"
    cycle_momentum: bool = True
    base_momentum: float = 0.8
    max_momentum: float = 0.9

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        rates = {name: _for_each_group(getattr(self, name), optimizer) for name in ("base_lr", "max_lr")}
        return {**super()._settings(optimizer), **rates}


@serializable
class OneCycleLR(Scheduler):
    """One rise and one long fall of the rate (Smith and Topin 2017)."""

    counted: ClassVar[tuple[str, ...]] = ("total_steps",)

    max_lr: float
    total_steps: Steps | None = None
    epochs: int | None = None
    steps_per_epoch: int | None = None
    pct_start: float = 0.3
    anneal_strategy: Literal["cos", "linear"] = "cos"
    cycle_momentum: bool = True
    base_momentum: float = 0.85
    max_momentum: float = 0.95
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    three_phase: bool = False

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {**super()._settings(optimizer), "max_lr": _for_each_group(self.max_lr, optimizer)}


@serializable
class LambdaLR(Scheduler):
    """Multiplies the first rate by what a registered function returns for the step."""

    lr_lambda: Callable[[int], float]


@serializable
class MultiplicativeLR(Scheduler):
    """Multiplies the last rate, at every step, by what a registered function returns for the step."""

    lr_lambda: Callable[[int], float]


@serializable
class SequentialLR(Scheduler):
    """One schedule after the other; the milestones are the steps at which the next one begins."""

    counted: ClassVar[tuple[str, ...]] = ("milestones",)

    schedulers: list[Scheduler]
    milestones: list[Steps]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.milestones) != len(self.schedulers) - 1:
            raise UsageError(
                f"SequentialLR needs a milestone between each two schedulers: {len(self.schedulers) - 1} for "
                f"{len(self.schedulers)} schedulers, got {len(self.milestones)}."
            )

    def _parts(self) -> list[Scheduler]:
        return self.schedulers

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {"schedulers": [part.build(optimizer) for part in self.schedulers], "milestones": self.milestones}


@serializable
class ChainedScheduler(Scheduler):
    """Several schedules at once; their factors are multiplied."""

    schedulers: list[Scheduler]

    def _parts(self) -> list[Scheduler]:
        return self.schedulers

    def _positional_arguments(self, optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
        return ([part.build(optimizer) for part in self.schedulers],)

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {"optimizer": optimizer}


@serializable
class Schedule(Scheduler):
    """A schedule that is given by a formula."""

    def steps(self, name: str) -> int:
        """A field that counts steps. Raises UsageError if it is still a length."""
        value = getattr(self, name)
        if not isinstance(value, int):
            self._refuse_lengths()
        return int(value)

    @abstractmethod
    def factor(self, step: int) -> float:
        """The factor of the learning rate at this step of the optimizer, from 0."""

    def build(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        self._refuse_lengths()
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.factor(step))


@serializable
class WarmupHoldDecay(Schedule):
    """Rises in `warmup` steps, stays level until step `hold`, then falls to the share `final` at step `total`.

    With a short `hold` it is the common warm-up and decay; with a long one it is warmup-stable-decay (Hu et al. 2024);
    with an exponential shape it is the schedule of SpecAugment (Park et al. 2019).
    """

    counted: ClassVar[tuple[str, ...]] = ("warmup", "hold", "total")
    least: ClassVar[int] = 0

    total: Steps
    warmup: Steps = 100
    hold: Steps = 0
    final: float = 0.01
    shape: Shape = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = (self.total, self.warmup, self.hold)
        given = [Duration.parse(each) if isinstance(each, str) else each for each in fields]
        total, *others = (each.value if isinstance(each, Duration) else each for each in given)
        comparable = len({getattr(each, "unit", "steps") for each in given if each != 0}) == 1
        if min(others) < 0 or (comparable and total <= max(others)):
            raise UsageError(
                f"WarmupHoldDecay: `total` must be more than `warmup` and `hold`, which must not be negative, "
                f"got {self.total}, {self.warmup} and {self.hold}."
            )
        if not 0 < self.final <= 1:
            raise UsageError(f"`final` is a share of the learning rate, above 0 and at most 1; got {self.final}.")

    def factor(self, step: int) -> float:
        warmup, begin, total = self.steps("warmup"), max(self.steps("warmup"), self.steps("hold")), self.steps("total")
        if step < warmup:
            return (step + 1) / warmup
        share = min(1.0, max(0.0, (step - begin) / (total - begin)))
        if self.shape == "exponential":
            return float(self.final**share)
        down = share if self.shape == "linear" else (1.0 - math.cos(math.pi * share)) / 2.0
        return 1.0 - (1.0 - self.final) * down


@serializable
class Noam(Schedule):
    """Rises to 1 in `warmup` steps, then falls as one over the square root of the step (Vaswani et al. 2017)."""

    counted: ClassVar[tuple[str, ...]] = ("warmup",)

    warmup: Steps = 4000

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.warmup, int) and self.warmup < 1:
            raise UsageError(f"`warmup` must be at least 1, got {self.warmup}.")

    def factor(self, step: int) -> float:
        warmup = self.steps("warmup")
        return min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))


def _listed(lengths: dict[str, str]) -> str:
    return ", ".join(f"`{name}: {text}`" for name, text in lengths.items())


def _for_each_group(rate: float, optimizer: torch.optim.Optimizer) -> list[float]:
    """The rate of each parameter group if `rate` replaces that of the optimizer; the proportions of the groups stay."""
    own = float(optimizer.defaults["lr"])
    return [rate * (float(group["lr"]) / own if own else 1.0) for group in optimizer.param_groups]
