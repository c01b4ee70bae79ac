"""Writes callbacks.md from the classes themselves: `python docs/generate_callbacks.py`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from sonosco_like.callbacks import Destination
from sonosco_like.callbacks.destination import RunFile
from sonosco_like.events import AbstractCallback
from sonosco_like.serialization import REGISTRY, field_types, is_abstract, is_state

PAGE = Path(__file__).with_name("callbacks.md")

WRITERS = ("path", "folder")
COMMON = ("order", "ranks", "on_failure", *WRITERS)

GROUPS = {
    "Ending a training": [
        "EarlyStopping", "ThresholdStopper", "TerminateOnNaN", "AllPredictionsSame", "LimitBatches",
    ],
    "Checkpoints and exports": ["ModelCheckpoint", "CheckpointAverage", "ExportForInference"],
    "Changing the training": [
        "ReduceLROnPlateau", "StepwiseLearningRateReduction", "ScheduledLearningRateReduction", "FreezeParameters",
        "DisableSoftWindowAttention",
    ],
    "Measuring and logging": [
        "LogMeasures", "LRMonitor", "SpeedMonitor", "EpochTimeEstimate", "MemoryMonitor", "GradMonitor",
        "LayerwiseGradientNorm", "CallbackTimes",
    ],
    "Destinations": [
        "ConsoleLog", "MetricsFile", "CsvFile", "TensorBoardCallback", "WandbDestination", "MlflowDestination",
        "HistoryRecorder", "BenchmarkLog",
    ],
    "Progress and reports": ["ProgressBar", "PrintMetrics", "EvaluationReport", "HistoryPlots", "RunReport"],
    "Transcripts": [
        "TranscriptDashboard", "TbTextComparisonCallback", "TbTeacherForcingTextComparisonCallback",
        "LasTextComparisonCallback",
    ],
}  # fmt: skip

EXAMPLES = {
    "AllPredictionsSame": "patience: 3",
    "BenchmarkLog": "monitor: val_word_error_rate, target: 0.05, stop: true",
    "CallbackTimes": "every: 1ep",
    "ConsoleLog": 'only: ["loss", "val_*"]',
    "DisableSoftWindowAttention": "after: 3ep",
    "EarlyStopping": "monitor: val_word_error_rate, patience: 5, min_delta: 0.001",
    "EpochTimeEstimate": "every: 500ba",
    "EvaluationReport": "sets: [val, test], every: 5ep, examples: 3",
    "FreezeParameters": 'patterns: ["encoder.*"], until: 3ep',
    "GradMonitor": "every: 100, distributions: true",
    "HistoryPlots": "formats: [png, pdf], every: 1ep",
    "HistoryRecorder": "every: 50ba",
    "LRMonitor": "every: 100ba",
    "LimitBatches": "train_batches: 20, validation_batches: 5",
    "LogMeasures": "every: 20ba",
    "MemoryMonitor": "every: 200ba",
    "MlflowDestination": "experiment: digits",
    "ModelCheckpoint": "every: 10min, monitor: val_word_error_rate, keep_best: 3",
    "ProgressBar": "every: 100ba",
    "ReduceLROnPlateau": "monitor: val_loss, factor: 0.5, patience: 2, min_lr: 1e-6",
    "RunReport": "worst: 50",
    "ScheduledLearningRateReduction": "epoch_schedule: [10, 15], reduction_factor: 0.1",
    "SpeedMonitor": "window: 100, every: 50ba",
    "StepwiseLearningRateReduction": "epoch_steps: 5, reduction_factor: 0.5, min_lr: 1e-6",
    "ThresholdStopper": "monitor: val_word_error_rate, threshold: 0.02",
    "WandbDestination": "project: digits, mode: offline",
}

INTRODUCTION = """\
# Callbacks

<!-- Written by docs/generate_callbacks.py from the docstrings of the classes. Change those, not this page. -->

A callback listens to a run. It can stop the run, change it, measure it, or write down what is logged.
[Writing a callback](writing-a-callback.md) explains the mechanism and how to write your own.
In a config, callbacks are a list of the trainer:

```yaml
callbacks:
- {class: LogMeasures, every: 20ba}
- {class: TensorBoardCallback}
- {class: EarlyStopping, monitor: val_word_error_rate, patience: 5}
```

- Some callbacks decide *what* is logged (`LogMeasures`, the monitors). Destinations decide *where* it is written
  (`MetricsFile`, `TensorBoardCallback`, ...).
- Lengths and intervals are texts: `10ep` epochs, `2000ba` batches, `90min` or `30s` of time, `0.5dur` of the whole
  training.
- Each callback has its own state. It is saved with every checkpoint, and a resumed run continues with it.
- A function needs no class. In Python, `trainer.add_callback(("epoch_end", function))` calls it at the end of each
  epoch. In a config, `!tuple [epoch_end, {function: mypackage.function}]` does the same, if the function is registered
  with `@serializable`.
"""


WRITING = """\
In a distributed run, callbacks that print or write are called in the first process only (`ranks: [0]`). Callbacks that
write files have two more fields. If two callbacks have the same `path`, the second one writes to a numbered file:
`metrics.jsonl`, `metrics-2.jsonl`.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def callbacks() -> dict[str, type]:
    """Every callback of the package that a config can name."""
    entries = REGISTRY.subclasses(AbstractCallback)
    ours = (entry.target for entry in entries if entry.target.__module__.startswith("sonosco_like.callbacks."))
    return {cls.__name__: cls for cls in ours if not is_abstract(cls)}


def page() -> str:
    """The whole page."""
    known = callbacks()
    placed = [name for names in GROUPS.values() for name in names]
    if sorted(placed) != sorted(known):
        raise SystemExit(f"GROUPS must name each callback once; it differs in {sorted(set(placed) ^ set(known))}.")
    parts = [INTRODUCTION, _contents(), _common()]
    for title, names in GROUPS.items():
        parts += [f"## {title}\n", *(_section(known[name]) for name in names)]
    return "\n".join(parts)


def _contents() -> str:
    lines = [f"| {title} | {', '.join(f'[{name}](#{name.lower()})' for name in GROUPS[title])} |" for title in GROUPS]
    return "\n".join(["| for | callbacks |", "|---|---|", *lines, ""])


def _common() -> str:
    every = _table(AbstractCallback, dataclasses.fields(AbstractCallback))
    files = _table(RunFile, [field for field in dataclasses.fields(RunFile) if field.name in WRITERS])
    return "\n".join(["## Fields of every callback\n", *every, "", WRITING, *files, ""])


def _section(cls: type) -> str:
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(cls) or "")
    fields = [field for field in dataclasses.fields(cls) if not is_state(field) and not _is_as_always(field)]
    parts = [f"### {cls.__name__}\n", text, ""]
    parts += [*_table(cls, fields), ""] if fields else []
    parts += [_line("State", _state(cls)), _line("Called at", ", ".join(f"`{event}`" for event in events_of(cls)))]
    example = ", ".join(part for part in (f"class: {cls.__name__}", EXAMPLES.get(cls.__name__)) if part)
    parts += ["```yaml", "callbacks:", f"- {{{example}}}", "```", ""]
    return "\n".join(parts)


def _is_as_always(field: dataclasses.Field[Any]) -> bool:
    """Whether a field is told of at the top of the page and has no default of its own."""
    common = [field for cls in (AbstractCallback, Destination, RunFile) for field in dataclasses.fields(cls)]
    return any(field.name == each.name and _default(field) == _default(each) for each in common)


def _line(title: str, text: str) -> str:
    return f"{title}: {text}.\n" if text else f"{title}: none.\n"


def _table(cls: type, fields: Iterable[dataclasses.Field[Any]]) -> list[str]:
    """Fields with type and default; what a base class tells of them is repeated, what the class tells is above."""
    hints = typing.get_type_hints(cls) if cls in (AbstractCallback, RunFile) else field_types(cls)
    told = sentences(cls.__doc__ or "") if cls not in (AbstractCallback, RunFile) else []
    rows = []
    for field in fields:
        own = any(field.name in names_in(each) for each in told)
        always = cls not in (AbstractCallback, RunFile) and field.name in COMMON
        meaning = "" if own or always else meaning_of(cls, field.name)
        rows.append((f"`{field.name}`", _type(hints[field.name]), _default(field), meaning))
    width = 4 if any(row[3] for row in rows) else 3
    lines = [f"| {' | '.join(('field', 'type', 'default', '')[:width])} |", "|---" * width + "|"]
    return lines + [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row[:width])} |" for row in rows]


def meaning_of(cls: type, name: str) -> str:
    """The sentences about a field, from the nearest class that has any."""
    for base in (*cls.__mro__, *([RunFile] if name in WRITERS else [])):
        if issubclass(base, (AbstractCallback, RunFile)) and base.__doc__:
            found = [each for each in sentences(base.__doc__) if name in names_in(each)]
            if found:
                return " ".join(found)
    return ""


def names_in(sentence: str) -> set[str]:
    """What a sentence has in backticks, without values: `patience`, and `stop` of `stop: false`."""
    return {text.partition(":")[0] for text in re.findall(r"`([^`]+)`", sentence)}


def sentences(text: str) -> list[str]:
    """A docstring as its sentences."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", " ".join(text.split()))


def _type(hint: Any) -> str:
    if hint is type(None):
        return "null"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(_type, typing.get_args(hint)))
    if typing.get_origin(hint) is Literal:
        return " or ".join(f"`{each}`" for each in typing.get_args(hint))
    if typing.get_origin(hint) is list:
        return f"list of {_type(typing.get_args(hint)[0])}".replace("whole number", "whole numbers")
    names = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "Path": "path"}
    return names.get(hint.__name__, f"a {hint.__name__}")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return _shown(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return _shown(field.default_factory())
    return "required"


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return f"`{str(value).lower() if value is not None else 'null'}`"
    if REGISTRY.registration_of(type(value)) is not None:
        return f"a `{type(value).__name__}`"
    if isinstance(value, (list, tuple)):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


def _state(cls: type) -> str:
    names = [f"`{field.name}`" for field in dataclasses.fields(cls) if is_state(field)]
    own = inspect.getdoc(getattr(cls, "state_dict", None)) if hasattr(cls, "state_dict") else None
    words = [(own.splitlines()[0][0].lower() + own.splitlines()[0][1:]).rstrip(".")] if own else []
    return ", ".join(names + words)


def events_of(cls: type) -> list[str]:
    """The events a callback listens to."""
    found = [name.removeprefix("on_") for name, _ in inspect.getmembers(cls, inspect.isfunction) if name[:3] == "on_"]
    calls = ["batch_end"] if cls.__call__ is not AbstractCallback.__call__ else []  # type: ignore[operator]
    return sorted({*found, *calls} - {"failure"})


if __name__ == "__main__":
    main()
