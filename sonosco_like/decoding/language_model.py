"""Word n-gram language models for the beam searches, in ARPA text or KenLM's binary format."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

from sonosco_like.errors import DataError, MissingPackageError, UsageError, as_sentence
from sonosco_like.serialization import serializable
from sonosco_like.untrusted_files import check_regular_file, is_gzip, open_text, read_lines

History = tuple[str, ...]
SENTENCE_START, SENTENCE_END, UNKNOWN_WORD = "<s>", "</s>", "<unk>"
_SECTION = re.compile(r"\\([1-9]\d*)-grams:")
_HIGHEST_ORDER = 100
IMPOSSIBLE_WORD = -99.0  # log10, as SRILM writes a probability of zero
_MISSING_UNKNOWN = -100.0  # log10, what KenLM assumes for a model without <unk>


class WordModel(Protocol):
    """The probability of a word after others. Scores are natural logarithms; a state is hashable and never changes."""

    def start(self) -> Any:
        """The state at the beginning of a sentence."""
        ...

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """(log p(word | state), the state after the word)."""
        ...

    def finish(self, state: Any) -> float:
        """Log probability that the sentence ends here."""
        ...


@serializable
class NGramLanguageModel:
    """An n-gram model in a file: ARPA text (also .gz) or KenLM's binary format.

    `auto` reads with the package `kenlm` if it is installed, otherwise with our own ARPA reader, which needs more
    memory and gives the same scores.
    """

    path: Path
    reader: Literal["auto", "kenlm", "arpa"] = "auto"

    def load(self) -> WordModel:
        """The model in memory; a file is read only once, unless it changes."""
        path = Path(self.path)
        if not path.exists():
            raise UsageError(f"There is no language model at {path}. Give the path of an ARPA or KenLM file.")
        check_regular_file(path)
        version = path.stat().st_mtime_ns, path.stat().st_size
        has_kenlm = importlib.util.find_spec("kenlm") is not None
        if self.reader == "kenlm" or (self.reader == "auto" and has_kenlm):
            return _load_kenlm(path, version)
        if not is_arpa(path):
            raise MissingPackageError(
                f"{path} is in KenLM's binary format, which needs the package `kenlm` (pip install kenlm). "
                f"The same model as ARPA text is read without it."
            )
        return _load_arpa(path, version)

    def closed_vocabulary(self) -> frozenset[str] | None:
        """All words of a model in ARPA text, if it says that others are impossible; else None."""
        path = Path(self.path)
        return _read_closed_vocabulary(path, (path.stat().st_mtime_ns, path.stat().st_size)) if is_arpa(path) else None


@functools.lru_cache(maxsize=4)
def _load_kenlm(path: Path, version: tuple[int, int]) -> KenlmModel:
    return KenlmModel(path)


@functools.lru_cache(maxsize=4)
def _read_closed_vocabulary(path: Path, version: tuple[int, int]) -> frozenset[str] | None:
    with open_text(path) as file:
        lines = (line.decode().strip() for line in read_lines(file, path))
        unigrams = itertools.dropwhile(lambda line: line != "\\1-grams:", lines)
        next(unigrams, "")
        fields = (line.split() for line in itertools.takewhile(lambda line: not line.startswith("\\"), unigrams))
        log_ps = {parts[1]: float(parts[0]) for parts in fields if len(parts) > 1}
    is_closed = log_ps.get(UNKNOWN_WORD, 0.0) <= IMPOSSIBLE_WORD
    return frozenset(log_ps) - {SENTENCE_START, SENTENCE_END, UNKNOWN_WORD} if is_closed else None


@functools.lru_cache(maxsize=4)
def _load_arpa(path: Path, version: tuple[int, int]) -> ArpaModel:
    return ArpaModel(path)


class KenlmModel:
    """A model in memory, read by the package `kenlm`."""

    def __init__(self, path: Path) -> None:
        try:
            import kenlm
        except ImportError:
            raise MissingPackageError(
                "The package `kenlm` is not installed (pip install kenlm). ARPA text is read without it: "
                "set `reader: arpa`."
            ) from None
        self._kenlm = kenlm
        try:
            self._model = kenlm.Model(str(path))
        except (OSError, RuntimeError) as error:
            raise DataError(f"{path} cannot be read as a language model by kenlm: {error}") from None

    def start(self) -> Any:
        state = self._kenlm.State()
        self._model.BeginSentenceWrite(state)
        return state

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        after = self._kenlm.State()
        return self._model.BaseScore(state, word, after) * math.log(10), after

    def finish(self, state: Any) -> float:
        return self.score(state, "</s>")[0]


class ArpaModel:
    """A model in memory, read from ARPA text without any package; its states are histories, as tuples of words.

    The format, as SRILM and KenLM write it: after `\\data\\` the counts, then for each order a section `\\N-grams:` of
    lines `log10 probability <tab> words <tab> log10 back-off weight`, then `\\end\\`. N-grams that are not listed back
    off to shorter histories.
    """

    def __init__(self, path: Path) -> None:
        self.order = 0
        self._probabilities: dict[History, float] = {(UNKNOWN_WORD,): _MISSING_UNKNOWN}
        self._back_offs: dict[History, float] = {}
        try:
            if path.suffix == ".gz" and not is_gzip(path):
                raise OSError("its name ends in .gz, but it is not compressed")
            with open_text(path) as file:
                self._read((line.decode() for line in read_lines(file, path)), path)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path} cannot be read as ARPA text in UTF-8, plain or gzip: {as_sentence(error)}"
            ) from None

    def start(self) -> History:
        return self._shorten((SENTENCE_START,))

    def score(self, history: History, word: str) -> tuple[float, History]:
        if (word,) not in self._probabilities:
            word = UNKNOWN_WORD
        return self._log10(history, word) * math.log(10), self._shorten((*history, word))

    def finish(self, history: History) -> float:
        return self.score(history, SENTENCE_END)[0]

    def _log10(self, history: History, word: str) -> float:
        back_off = 0.0
        while (found := self._probabilities.get((*history, word))) is None:
            back_off += self._back_offs.get(history, 0.0)
            history = history[1:]
        return back_off + found

    def _shorten(self, words: History) -> History:
        """The longest end of the history that the model knows, so that equivalent histories become equal."""
        words = words[max(0, len(words) - self.order + 1) :]
        while words and words not in self._probabilities:
            words = words[1:]
        return words

    def _read(self, text: Iterator[str], path: Path) -> None:
        lines = enumerate(text, 1)
        if not any(line.strip() == "\\data\\" for _, line in lines):
            raise DataError(f"{path} is not a language model in ARPA format: it has no line `\\data\\`.")
        for number, line in lines:
            line = line.strip()
            if line == "\\end\\":
                return
            if section := _SECTION.fullmatch(line):
                self.order = _order(section[1], f"{path}:{number}")
            elif line.startswith("\\"):
                raise DataError(f"{path}:{number}: expected `\\N-grams:` or `\\end\\`, got {line[:100]!r}.")
            elif line and self.order:
                self._add(line, f"{path}:{number}")
        raise DataError(f"{path} ends before its line `\\end\\`; it was not written or copied completely.")

    def _add(self, line: str, place: str) -> None:
        fields = line.split()
        words = tuple(line.split("\t")[1].split() if "\t" in line else fields[1 : 1 + self.order])
        try:
            if len(words) != self.order or len(fields) > self.order + 2:
                raise ValueError
            self._probabilities[words] = _logarithm(fields[0])
            if len(fields) > 1 + self.order:
                self._back_offs[words] = _logarithm(fields[1 + self.order])
        except ValueError:
            expected = f"expected a log probability, {self.order} words and perhaps a back-off weight"
            raise DataError(f"{place}: {expected}, got {line[:100]!r}.") from None


def is_arpa(path: Path) -> bool:
    """Whether a file looks like ARPA text rather than KenLM's binary format."""
    try:
        with open_text(path) as file:
            return b"\0" not in file.read(512)
    except (OSError, DataError):
        return True  # the ARPA reader then reports what is wrong


def _order(digits: str, place: str) -> int:
    if len(digits) > len(str(_HIGHEST_ORDER)) or int(digits) > _HIGHEST_ORDER:
        raise DataError(f"{place}: n-grams of an order up to {_HIGHEST_ORDER} are read, got {digits[:20]}.")
    return int(digits)


def _logarithm(text: str) -> float:
    value = float(text)
    if math.isnan(value) or value == math.inf:
        raise ValueError
    return value
