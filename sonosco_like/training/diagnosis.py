"""Why is my word error rate 100 %? What the numbers of a training suggest, in sentences.

`diagnose` is a pure function of `Facts`: it reads no trainer and no file. `observations` gathers the facts.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from sonosco_like.edits import ErrorCounts, count_word_errors

NOTHING_LEARNED = 0.95  # error rates from here on are called 100 %
MOST_FINDINGS = 3
BLANKS_ARE_NORMAL = 1500  # steps; docs/troubleshooting.md has the measurements behind this number
_NO_RATE = 0.01  # a learning rate below this share of its highest value changes hardly anything
_FLAT = 0.02  # relative changes of a loss below this are called none
_WORSE = 0.05  # a validation loss this much above its best value is called worse
_EXPLODED = 2.0  # a loss this many times its first value
_FEWEST = 3  # validations that show a trend
_MANY = 0.01  # share of utterances that is worth a finding


@dataclass(frozen=True)
class Point:
    """One validation: the step, the learning rate there, and all measures by their names."""

    step: int
    rate: float | None
    measures: Mapping[str, float]


@dataclass(frozen=True)
class Facts:
    """What is known of a training.

    ```
    points        all validations so far, in order
    error_rate    the name of the error rate that was validated, such as val_word_error_rate
    validation    the name of the loss of the same data
    examples      (reference, hypothesis) of the last validation, or of its beginning
    highest_rate  of the learning rate so far; None if it is not known
    is_over       the training reached its planned end
    has_ctc       the model has a CTC output
    too_long      share of the utterances that CTC left out, because their texts need more frames than there are
    go_on         the command that trains this model further; empty if there is none
    ```
    """

    points: Sequence[Point]
    error_rate: str = "val_word_error_rate"
    validation: str = "val_loss"
    examples: Sequence[tuple[str, str]] = field(default=())
    highest_rate: float | None = None
    is_over: bool = False
    has_ctc: bool = True
    too_long: float = 0.0
    go_on: str = ""

    def curve(self, name: str) -> list[float]:
        """The values of a measure over all validations that have it."""
        return [point.measures[name] for point in self.points if name in point.measures]

    @property
    def errors(self) -> float | None:
        """The error rate of the last validation."""
        curve = self.curve(self.error_rate)
        return curve[-1] if curve else None

    @property
    def learned_nothing(self) -> bool:
        """Whether the last validation was as good as without a recogniser."""
        return self.errors is not None and not self.errors < NOTHING_LEARNED

    @property
    def step(self) -> int:
        """The step of the last validation."""
        return self.points[-1].step if self.points else 0


def diagnose(facts: Facts) -> list[str]:
    """What the numbers suggest, the most likely cause first: at most three sentences, or none."""
    found: list[str] = []
    for rule in _RULES:
        found += rule(facts)
    return found[:MOST_FINDINGS]


def percent(share: float) -> str:
    """A share as text: `12.3 %`."""
    return f"{100 * share:.1f} %"


def _no_rate_at_all(facts: Facts) -> Iterator[str]:
    if facts.highest_rate == 0:
        yield "The learning rate was 0 all the time, so that nothing was learned: set `trainer.optimizer.lr`."


def _labels_too_long(facts: Facts) -> Iterator[str]:
    if facts.too_long >= _MANY:
        yield (
            f"CTC left out {percent(facts.too_long)} of the utterances, because their texts have more labels than the "
            "encoder leaves frames: use word pieces, or smaller strides in the encoder. `sonosco check` lists them."
        )


def _loss_exploded(facts: Facts) -> Iterator[str]:
    loss = facts.curve("loss")
    if loss and not all(map(isfinite, loss)):
        yield "The training loss was not a finite number: lower the learning rate, and set `clip_grads: 5.0`."
    elif len(loss) >= _FEWEST and loss[-1] > _EXPLODED * max(loss[0], 0.01):
        yield (
            f"The training loss grew from {loss[0]:.3g} to {loss[-1]:.3g}: the learning rate is too high. Take a third "
            "of it, a longer warm-up, and `clip_grads: 5.0`."
        )


def _rate_fell_too_soon(facts: Facts) -> Iterator[str]:
    low = _where_rate_is_gone(facts)
    if low is not None and facts.learned_nothing:
        yield (
            f"The learning rate had fallen from {facts.highest_rate:.2g} to {low[1]:.2g} by step {low[0]:,}, before "
            "anything was learned: lengthen the schedule (`total`), or give the training more epochs and the schedule "
            "shares of it (`total: 1dur`)."
        )


def _where_rate_is_gone(facts: Facts) -> tuple[int, float] | None:
    """The step of the validation from which on the rate is nothing, and the rate; None also during a warm-up."""
    rates = _rates(facts)
    limit = _NO_RATE * (facts.highest_rate or 0.0)
    if not rates or not limit or rates[-1][1] > limit or _rises(rates):
        return None
    gone = rates[-1]
    for step, rate in reversed(rates):
        if rate > limit:
            break
        gone = step, rate
    return gone


def _warm_up_too_long(facts: Facts) -> Iterator[str]:
    rates = _rates(facts)
    if facts.highest_rate and facts.learned_nothing and _rises(rates) and rates[-1][1] < facts.highest_rate / 2:
        yield (
            f"The learning rate is still in its warm-up: {rates[-1][1]:.2g} of {facts.highest_rate:.2g} at step "
            f"{rates[-1][0]:,}. Shorten the warm-up, for example to a tenth of the training (`warmup: 0.1dur`)."
        )


def _rates(facts: Facts) -> list[tuple[int, float]]:
    return [(point.step, point.rate) for point in facts.points if point.rate is not None]


def _rises(rates: Sequence[tuple[int, float]]) -> bool:
    return len(rates) > 1 and rates[-1][1] > rates[0][1]


def _only_blanks(facts: Facts) -> Iterator[str]:
    if not facts.learned_nothing or not _all_empty(facts.examples):
        return
    what = "The model writes only blanks so far" if facts.has_ctc else "The model writes only empty texts so far"
    if facts.step < BLANKS_ARE_NORMAL:
        usual = f"that is normal in the first {BLANKS_ARE_NORMAL:,} steps, and this is step {facts.step:,}"
        yield f"{what}: {usual}. Train on before you change anything."
    else:
        usual = f"at step {facts.step:,} that is no longer normal"
        yield (
            f"{what}: {usual}. Try another learning rate (3 times lower, then 3 times higher), and check with "
            "`sonosco check` that texts and recordings belong together."
        )


def _one_text(facts: Facts) -> Iterator[str]:
    hypotheses = {hypothesis.strip() for _, hypothesis in facts.examples}
    references = {reference for reference, _ in facts.examples}
    if len(hypotheses) == 1 and len(references) > 1 and "" not in hypotheses and facts.learned_nothing:
        advice = "give it a CTC output too (`ctc: true`, JointLoss)" if not facts.has_ctc else "lengthen the warm-up"
        yield (
            f"The model writes {_shortened(hypotheses.pop())!r} for every utterance, so it does not listen yet: train "
            f"longer, lower the learning rate, or {advice}."
        )


def _spelling_differs(facts: Facts) -> Iterator[str]:
    as_written, plain = _errors_of(facts.examples, str), _errors_of(facts.examples, _plain)
    if as_written.errors >= 2 and plain.errors <= as_written.errors / 2 and as_written.rate > 0.1:
        example = next(pair for pair in facts.examples if pair[0] != pair[1] and _plain(pair[0]) == _plain(pair[1]))
        yield (
            f"Texts and hypotheses differ mostly in case or punctuation ({_shortened(example[0])!r} and "
            f"{_shortened(example[1])!r}): without that the rate is {percent(plain.rate)}, not "
            f"{percent(as_written.rate)}. Give the training and the validation data the same `cleaner`."
        )


def _overfitting(facts: Facts) -> Iterator[str]:
    training, validation = facts.curve("loss"), facts.curve(facts.validation)
    if min(len(training), len(validation)) < _FEWEST or not _falls(training):
        return
    best = min(range(len(validation)), key=validation.__getitem__)
    after = len(validation) - 1 - best
    if after >= 2 and validation[-1] > validation[best] * (1 + _WORSE):
        steps = [point.step for point in facts.points if facts.validation in point.measures]
        yield (
            f"The training loss falls, but the validation loss was best at step {steps[best]:,} "
            f"({validation[best]:.3g}, now {validation[-1]:.3g}): the model learns its data by heart. Use more data, "
            "augmentation or dropout, or a smaller model; a ModelCheckpoint with `monitor` keeps the best step."
        )


def _loss_does_not_move(facts: Facts) -> Iterator[str]:
    training = facts.curve("loss")
    if not facts.learned_nothing or len(training) < _FEWEST or not facts.highest_rate:
        return
    if all(map(isfinite, training)) and max(training) - min(training) <= _FLAT * abs(training[0]):
        yield (
            f"The training loss has hardly moved ({training[0]:.3g} to {training[-1]:.3g}): try a learning rate 10 "
            f"times as high as {facts.highest_rate:.2g}, then 10 times lower, and see whether weights are frozen."
        )


def _learning_already(facts: Facts) -> Iterator[str]:
    loss = facts.curve("loss")
    if not facts.learned_nothing or facts.is_over or len(loss) < _FEWEST or _all_empty(facts.examples):
        return
    if _falls(loss):
        yield (
            f"The training loss is falling ({loss[0]:.3g} to {loss[-1]:.3g}), so the model is learning: whole words "
            "come after single letters. Train on."
        )


def _still_falling(facts: Facts) -> Iterator[str]:
    name = facts.validation if len(facts.curve(facts.validation)) >= _FEWEST else "loss"
    curve = facts.curve(name)
    if not facts.is_over or len(curve) < _FEWEST or _where_rate_is_gone(facts) is not None:
        return
    recent = curve[-max(_FEWEST, len(curve) // 3) :]
    if recent[-1] <= min(curve) and recent[0] - recent[-1] > _FLAT * abs(recent[0]):
        remedy = f"Train further: {facts.go_on}" if facts.go_on else "Train for more epochs."
        yield f"The loss was still falling at the end ({name} {recent[0]:.3g} to {recent[-1]:.3g}). {remedy}"


_RULES: tuple[Callable[[Facts], Iterator[str]], ...] = (
    _no_rate_at_all,
    _labels_too_long,
    _loss_exploded,
    _rate_fell_too_soon,
    _warm_up_too_long,
    _only_blanks,
    _one_text,
    _spelling_differs,
    _overfitting,
    _loss_does_not_move,
    _learning_already,
    _still_falling,
)


def _falls(curve: Sequence[float]) -> bool:
    return curve[-1] < curve[0] * (1 - _FLAT)


def _all_empty(examples: Sequence[tuple[str, str]]) -> bool:
    return any(reference for reference, _ in examples) and not any(hypothesis.strip() for _, hypothesis in examples)


def _errors_of(examples: Sequence[tuple[str, str]], form: Callable[[str], str]) -> ErrorCounts:
    return count_word_errors(
        (form(reference) for reference, _ in examples), (form(hypothesis) for _, hypothesis in examples)
    )


def _plain(text: str) -> str:
    """The text without case, accents of letters kept, and without punctuation and symbols."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = (each if unicodedata.category(each)[0] not in "PS" else " " for each in folded.replace("'", ""))
    return " ".join("".join(kept).split())


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
