"""What a trainer remembers of its validations, and when it explains them in the log."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from sonosco_like.metrics import DecodedBatch
from sonosco_like.runs.run_folder import shown
from sonosco_like.runs.run_table import validation_rows
from sonosco_like.training.diagnosis import Facts, Point, diagnose, percent
from sonosco_like.training.measures import validation_prefix
from sonosco_like.training.randomness import generator_states, restore_generators

logger = logging.getLogger(__name__)

_ERROR_RATES = ("word_error_rate", "character_error_rate")  # the first one that is measured is explained
_MOST_EXAMPLES = 200
_FIRST_WARNING = 4  # validations in a row without a learned word; then twice as many each time
_SHORT = {"word_error_rate": "WER", "character_error_rate": "CER", "sentence_error_rate": "SER"}
_REMEDIES = (
    " What helps: a lower learning rate, a longer FreezeParameters, smaller rates for early layers (`layer_decay` of "
    "the optimizer), old data mixed in (several manifests with weights). See docs/fine-tuning.md"
)


class Observations:
    """The curves and the last texts of a training, for `diagnosis`. Nothing here changes the training."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._points: dict[int, Point] = {}
        self._examples: list[tuple[str, str]] = []
        self._without_words = 0  # validations in a row
        self.untouched = UntouchedModel(trainer)

    def begin_validation(self) -> None:
        """Forget the texts of the last validation."""
        self._examples = []

    def add_texts(self, made: Any) -> None:
        """Remember references and hypotheses of a batch of a validation, as long as they are few."""
        if isinstance(made, DecodedBatch) and made.hypothesis_texts is not None:
            room = _MOST_EXAMPLES - len(self._examples)
            self._examples += zip(made.references[:room], made.hypotheses[:room], strict=True)

    def begin_training(self) -> None:
        """Validate the model that a fine-tuning begins with."""
        self.untouched.measure()
        if self.untouched.measures:
            self._points.setdefault(0, Point(0, None, self.untouched.measures))

    def end_validation(self, results: Mapping[str, float]) -> None:
        """Remember the measures of now; explain them if nothing was learned in several validations in a row.

        `results` are those of the validation set that was validated.
        """
        trainer = self._trainer
        measures = trainer.performance_measures
        wanted = {name: measures[name] for name in measures if name == "loss" or name.startswith("val_")}
        self._points[trainer.global_step] = Point(trainer.global_step, _rate_of(trainer.optimizer), wanted)
        if not trainer.processes.is_first:
            return
        facts = self.facts()
        self._without_words = self._without_words + 1 if facts is not None and facts.learned_nothing else 0
        if facts is not None and self._without_words in (_FIRST_WARNING << n for n in range(32)):
            _explain(facts)
        self.untouched.compare({name: results[name] for name in self.headlines() if name in results})

    def end_training(self) -> None:
        """Explain the end of a training, unless it was interrupted."""
        trainer = self._trainer
        interrupted = bool(getattr(trainer.experiment, "interrupted", False))
        facts = None if interrupted or not trainer.processes.is_first else self.facts()
        if facts is not None:
            _explain(facts)

    def facts(self) -> Facts | None:
        """What is known of this training; None if no error rate of texts was validated."""
        name = next(iter(self.headlines()), "loss")
        if not name.endswith(_ERROR_RATES):
            return None
        trainer = self._trainer
        points = self.points()
        return Facts(
            points,
            name,
            f"{name.removesuffix(_family(name))}loss",
            self._examples,
            highest_rate=_highest_rate(trainer.optimizer, points),
            is_over=trainer.session.is_finished,
            has_ctc=bool(getattr(trainer.model, "has_ctc", False)),
            too_long=_share_too_long(trainer),
            go_on=_command_to_go_on(trainer),
        )

    def headlines(self) -> list[str]:
        """The measure of most interest of each validation set: an error rate, or else the loss."""
        points = self.points()
        last = points[-1].measures if points else {}
        sets = [validation_prefix(name) for name in self._trainer.validation_sets]
        named = ([f"{prefix}{family}" for family in (*_ERROR_RATES, "loss")] for prefix in sets)
        return [found for names in named if (found := next((name for name in names if name in last), ""))]

    def points(self) -> list[Point]:
        """All validations, those before a resume from the metrics file of the run, if it has one."""
        experiment = self._trainer.experiment
        rows = validation_rows(experiment.folder) if experiment is not None else []
        earlier = {int(row["step"]): Point(int(row["step"]), row.get("learning_rate"), row) for row in rows}
        known = {**earlier, **self._points}
        return [known[step] for step in sorted(known) if step <= self._trainer.global_step]


class UntouchedModel:
    """The model that a fine-tuning began with: its measures before the first step, which later ones are compared with.

    `is_wanted` says that it is to be validated. Its `measures` are part of the state of the trainer.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.is_wanted = False
        self.measures: dict[str, float] = {}
        self._worse: dict[str, int] = {}  # validations in a row, by measure

    def measure(self) -> None:
        """Validate the model, and log its measures as those of step 0.

        Callbacks are called for the log only, and no random generator moves: the training is the same without this
        validation. A run that continues has the measures already.
        """
        trainer = self._trainer
        if not self.is_wanted or self.measures or trainer.global_step or not trainer.validation_sets:
            return
        logger.info("Validating the model before training (init_from: {validate: false} leaves this out).")
        states = generator_states()
        try:
            for name, loader in trainer.validation_sets.items():
                found = trainer.validator.evaluate(loader)
                self.measures |= {validation_prefix(name) + measure: value for measure, value in found.items()}
        finally:
            restore_generators(states)
        trainer.log(self.measures)
        shown = sorted(self.measures, key=lambda name: name.endswith("loss"))
        logger.info("before training: %s", ", ".join(f"{_name_of(each)} {self._text(each)}" for each in shown))

    def compare(self, results: Mapping[str, float]) -> None:
        """Warn of the first, the second, the fourth... validation in a row that is worse; lower values are better."""
        for name, value in results.items():
            if name not in self.measures:
                continue
            self._worse[name] = 0 if value <= self.measures[name] else self._worse.get(name, 0) + 1
            if self._worse[name] in (1 << n for n in range(32)):
                logger.warning(
                    "%s is %s at step %d: worse than the %s of the model before training.%s",
                    _name_of(name), _text_of(name, value), self._trainer.global_step, self._text(name),
                    _REMEDIES if self._worse[name] == 1 else "",
                )  # fmt: skip

    def state_dict(self) -> dict[str, float]:
        """The measures."""
        return dict(self.measures)

    def load_state_dict(self, content: Mapping[str, float]) -> None:
        """Continue with measures that were saved."""
        self.measures = dict(content)

    def _text(self, name: str) -> str:
        return _text_of(name, self.measures[name])


def _name_of(measure: str) -> str:
    """The name of a measure for people: `val WER` for `val_word_error_rate`."""
    for long, short in _SHORT.items():
        if measure.endswith(long):
            measure = measure.removesuffix(long) + short
    return measure.replace("_", " ")


def _text_of(measure: str, value: float) -> str:
    return percent(value) if measure.endswith(tuple(_SHORT)) else f"{value:.4g}"


def _family(name: str) -> str:
    return next(family for family in _ERROR_RATES if name.endswith(family))


def _explain(facts: Facts) -> None:
    findings = diagnose(facts)
    rate = f"{_family(facts.error_rate).replace('_', ' ')} of the validation is {percent(facts.errors or 0.0)}"
    if facts.learned_nothing:
        reference, hypothesis = next(iter(facts.examples), ("", ""))
        example = f" ({reference!r} is recognised as {hypothesis!r})" if reference else ""
        none = (
            "No usual cause is visible. Look at the texts in TensorBoard, and check the data: sonosco check --open all"
        )
        logger.warning("The %s%s. The numbers suggest:", rate, example)
        for number, finding in enumerate(findings or [none], 1):
            logger.warning("%d. %s", number, finding)
        return
    for finding in findings:
        logger.warning("The %s. %s", rate, finding)


def _rate_of(optimizer: Any) -> float | None:
    groups = getattr(optimizer, "param_groups", None)
    return max(float(group["lr"]) for group in groups if "lr" in group) if groups else None


def _highest_rate(optimizer: Any, points: Iterable[Point]) -> float | None:
    """The highest rate that was seen, or that the schedule begins with."""
    groups = getattr(optimizer, "param_groups", ())
    rates = [float(group["initial_lr"]) for group in groups if "initial_lr" in group]
    rates += [point.rate for point in points if point.rate is not None]
    return max(rates, default=None)


def _share_too_long(trainer: Any) -> float:
    """About which share of the utterances CTC left out; 0 if its loss does not count them."""
    loss = trainer.loss
    skipped = getattr(getattr(loss, "ctc", loss), "skipped", 0)
    dataset = getattr(trainer.train_data_loader, "dataset", None)
    utterances = len(getattr(dataset, "durations", ())) if skipped else 0
    return min(1.0, skipped / (utterances * max(1, trainer.epoch))) if utterances else 0.0


def _command_to_go_on(trainer: Any) -> str:
    if trainer.experiment is None:
        return ""
    setting = f"epochs={2 * trainer.epochs}" if trainer.epoch >= trainer.epochs else "max_duration=..."
    return f"sonosco resume {shlex.quote(shown(trainer.experiment.folder))} --set trainer.{setting}"
