"""Encoding and decoding a trainer-sized graph (200 objects, 2,000 fields), against PyYAML's C code on the same text."""

from __future__ import annotations

import sys
import time
from dataclasses import field
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import report_ratio
from benchmarks.timing import print_ratios, take_turns
from sonosco_like import dumps, loads, serializable


@serializable
class Leaf:
    """Ten fields of the usual kinds."""

    name: str = "val_word_error_rate"
    size: int = 256
    rate: float = 1e-3
    enabled: bool = True
    note: str | None = None
    pair: tuple[float, float] = (0.9, 0.999)
    kernel: list[int] = field(default_factory=lambda: [41, 11])
    low: float = 0.5
    high: float = 20.0
    kind: str = "lstm"


@serializable
class Root:
    """Holds the leaves in groups, as a trainer holds its parts."""

    groups: dict[str, list[Leaf]] = field(default_factory=dict)


def main() -> None:
    """Print both directions, and their sum."""
    groups = {f"group{g}": [Leaf(size=g * 20 + i, rate=i / 7) for i in range(20)] for g in range(10)}
    graph = Root(groups=groups)
    text = dumps(graph)
    plain = yaml.load(text, Loader=yaml.CSafeLoader)
    assert dumps(loads(text)) == text

    def ours() -> None:
        loads(text)
        dumps(graph)

    def theirs() -> None:
        yaml.load(text, Loader=yaml.CSafeLoader)
        yaml.dump(plain, Dumper=yaml.CSafeDumper, sort_keys=False)

    seconds = take_turns(
        {
            "PyYAML C, load": lambda: yaml.load(text, Loader=yaml.CSafeLoader),
            "ours, loads": lambda: loads(text),
            "PyYAML C, dump": lambda: yaml.dump(plain, Dumper=yaml.CSafeDumper, sort_keys=False),
            "ours, dumps": lambda: dumps(graph),
            "PyYAML C, both": theirs,
            "ours, both": ours,
        },
        repeats=15,
        clock=time.process_time,
    )
    print(f"200 objects, 2,000 fields, {len(text):,} characters; at most 2.00 x wanted for both")
    print_ratios(seconds, "PyYAML C, both")
    what = "graph of 200 objects as text"
    report_ratio(what, seconds, "ours, both", "PyYAML C, both", goal=2.0)
    report_ratio(what, seconds, "ours, loads", "PyYAML C, load")
    report_ratio(what, seconds, "ours, dumps", "PyYAML C, dump")


if __name__ == "__main__":
    main()
