"""Which initial weights a model takes from a source: by name, by shape, and row by row where alphabets differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import filter as matching_names
from fnmatch import fnmatchcase
from pathlib import Path

from torch import Tensor

from sonosco_like.errors import UsageError, did_you_mean, list_some
from sonosco_like.models.pretrained import is_foreign

_MOST_LISTED = 8


@dataclass(frozen=True)
class Weights:
    """Weights by name, and the text of each symbol if there is a tokenizer.

    `by_symbol` names the weights that have a row for each symbol, such as those of the output layer.
    """

    tensors: Mapping[str, Tensor]
    symbols: Sequence[str] | None = None
    by_symbol: Sequence[str] = ()


@dataclass(frozen=True)
class SymbolRows:
    """The rows of an output layer or an embedding that two alphabets share: row `old[k]` becomes row `new[k]`."""

    names: tuple[str, ...] = ()
    old: tuple[int, ...] = ()
    new: tuple[int, ...] = ()
    symbols: int = 0
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report for people; nothing if the alphabet is the same."""
        if not self.names:
            return []
        added = f"drawn from the seed: {_texts(self.added)}" if self.added else "no symbol is new"
        dropped = f"; not used here: {_texts(self.dropped)}" if self.dropped else ""
        return [
            f"the alphabet differs: {len(self.new)} of {self.symbols} symbols keep their rows of "
            f"{list_some(self.names, _MOST_LISTED)}; {added}{dropped}"
        ]


@dataclass(frozen=True)
class Matching:
    """The names of the weights that a model and a source share, and of those that they do not.

    `by_symbol` are the weights of which only the rows of the symbols that both alphabets have are taken. `remarks` are
    sentences about the source.
    """

    source: Path
    matched: tuple[str, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    reshaped: tuple[str, ...]
    by_symbol: SymbolRows = field(default_factory=SymbolRows)
    remarks: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report for people: the matched weights, then one line for each other kind that has any."""
        there = "folder" if is_foreign(self.source) else "checkpoint"
        kinds = {
            "left out as asked": self.left_out,
            f"not in the {there}, so drawn from the seed": self.missing,
            f"only in the {there}, so not used": self.unexpected,
            "of another shape": self.reshaped,
        }
        taken = len(self.matched) + len(self.by_symbol.names)
        return [
            f"{taken} of {taken + self._not_taken} weights taken from {self.source}",
            *self.by_symbol.lines(),
            *(f"{len(names)} {kind}: {list_some(names, _MOST_LISTED)}" for kind, names in kinds.items() if names),
            *self.remarks,
        ]

    @property
    def _not_taken(self) -> int:
        return len(self.left_out) + len(self.missing) + len(self.reshaped)


def match(own: Weights, found: Weights, source: Path, only: Sequence[str], leave_out: Sequence[str]) -> Matching:
    """Match the weights of a model with those of a source. Raises UsageError for a pattern that matches no weight."""
    names = list(dict.fromkeys([*own.tensors, *found.tensors]))
    for setting, patterns in (("only", only), ("leave_out", leave_out)):
        _check_patterns(setting, patterns, names)
    left_out = {name for name in names if _fits(name, leave_out) or (only and not _fits(name, only))}
    both = [name for name in own.tensors if name in found.tensors and name not in left_out]
    rows = _symbol_rows(own, found, both)
    whole = [name for name in both if name not in rows.names]
    same = [name for name in whole if own.tensors[name].shape == found.tensors[name].shape]
    return Matching(
        source,
        matched=tuple(same),
        left_out=tuple(name for name in own.tensors if name in left_out),
        missing=tuple(name for name in own.tensors if name not in found.tensors and name not in left_out),
        unexpected=tuple(name for name in found.tensors if name not in own.tensors and name not in left_out),
        reshaped=tuple(_describe_shapes(name, own, found) for name in whole if name not in same),
        by_symbol=rows,
    )


def refuse_misfits(matching: Matching, run: Path, leave_out: Sequence[str]) -> None:
    """Raise UsageError if a weight has another shape in the source, or no weight was found there at all."""
    if matching.reshaped:
        names = [name.partition(" ")[0] for name in matching.reshaped]
        kept = (*matching.matched, *matching.by_symbol.names)
        patterns = [*leave_out, *dict.fromkeys(pattern_of(name, kept) for name in names)]
        raise UsageError(
            f"init_from: {len(matching.reshaped)} weights of {matching.source} have another shape here: "
            f"{list_some(matching.reshaped, _MOST_LISTED)}. Build the model as it is in the checkpoint, or leave them "
            f"out: init_from: {{run: {run}, leave_out: {patterns}}}"
        )
    if not matching.matched and not matching.by_symbol.names:
        raise UsageError(
            f"init_from: no weight of {matching.source} has the name of a weight of this model. "
            f"The checkpoint has {list_some(matching.unexpected, _MOST_LISTED)}. "
            f"The model has {list_some(matching.missing, _MOST_LISTED)}. "
            "Is it the same kind of model? `rename` maps prefixes of names."
        )


def _symbol_rows(own: Weights, found: Weights, both: Sequence[str]) -> SymbolRows:
    """The rows that both alphabets have, if they differ. Weights that differ in more than their rows are not named."""
    if own.symbols is None or found.symbols is None or list(own.symbols) == list(found.symbols):
        return SymbolRows()
    places = {symbol: place for place, symbol in enumerate(found.symbols)}
    shared = [(places[symbol], place) for place, symbol in enumerate(own.symbols) if symbol in places]
    names = [name for name in both if name in own.by_symbol and _differ_in_symbols(name, own, found)]
    known = set(own.symbols)
    return SymbolRows(
        tuple(names),
        old=tuple(old for old, _ in shared),
        new=tuple(new for _, new in shared),
        symbols=len(own.symbols),
        added=tuple(symbol for symbol in own.symbols if symbol not in places),
        dropped=tuple(symbol for symbol in found.symbols if symbol not in known),
    )


def _differ_in_symbols(name: str, own: Weights, found: Weights) -> bool:
    here, there = own.tensors[name].shape, found.tensors[name].shape
    counts = len(own.symbols or ()), len(found.symbols or ())
    return (here[0], there[0]) == counts and here[1:] == there[1:]


def _check_patterns(setting: str, patterns: Sequence[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if not matching_names(names, pattern):
            hint = did_you_mean(pattern, {f"{part}.*" for name in names for part in _parents(name)})
            raise UsageError(f"init_from: `{setting}` has {pattern!r}, which matches no weight{hint or '.'}")


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def pattern_of(name: str, keep: Sequence[str]) -> str:
    """The shortest pattern that matches a weight and none of those in `keep`."""
    free = (part for part in _parents(name) if not any(other.startswith(f"{part}.") for other in keep))
    return next((f"{part}.*" for part in free), name)


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _describe_shapes(name: str, own: Weights, found: Weights) -> str:
    return f"{name} ({_shape(found.tensors[name])} in the checkpoint, {_shape(own.tensors[name])} in the model)"


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "scalar"


def _texts(symbols: Sequence[str]) -> str:
    return list_some([repr(symbol) for symbol in symbols], 2 * _MOST_LISTED)
