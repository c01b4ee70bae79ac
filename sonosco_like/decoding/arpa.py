"""N-gram language models in the ARPA text format, read without any further package.

The format, as SRILM and KenLM write it: after `\\data\\` the counts, then for each order a section `\\N-grams:` of
lines `log10 probability <tab> words <tab> log10 back-off weight`, then `\\end\\`. What is not listed backs off to
shorter histories.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from sonosco_like.errors import DataError
from sonosco_like.strangers import is_packed, lines_of, open_text

History = tuple[str, ...]
SENTENCE_START, SENTENCE_END, UNKNOWN_WORD = "<s>", "</s>", "<unk>"
_SECTION = re.compile(r"\\([1-9]\d*)-grams:")
_HIGHEST_ORDER = 100
_MISSING_UNKNOWN = -100.0  # log10, what KenLM assumes for a model without <unk>


class ArpaModel:
    """Word probabilities given the words before: `log p` in natural logarithms, histories as tuples of words."""

    def __init__(self, path: Path) -> None:
        self.order = 0
        self._probabilities: dict[History, float] = {(UNKNOWN_WORD,): _MISSING_UNKNOWN}
        self._back_offs: dict[History, float] = {}
        try:
            if path.suffix == ".gz" and not is_packed(path):
                raise OSError("it is called .gz, and is not packed")
            with open_text(path) as file:
                self._read((line.decode() for line in lines_of(file, path)), path)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read as ARPA text in UTF-8, plain or gzip: {error}.") from None

    def start(self) -> History:
        """The history at the beginning of a sentence."""
        return self._shorten((SENTENCE_START,))

    def score(self, history: History, word: str) -> tuple[float, History]:
        """(log p(word | history), the history after the word)."""
        if (word,) not in self._probabilities:
            word = UNKNOWN_WORD
        return self._log10(history, word) * math.log(10), self._shorten((*history, word))

    def finish(self, history: History) -> float:
        """Log probability that the sentence ends here."""
        return self.score(history, SENTENCE_END)[0]

    def _log10(self, history: History, word: str) -> float:
        back_off = 0.0
        while (found := self._probabilities.get((*history, word))) is None:
            back_off += self._back_offs.get(history, 0.0)
            history = history[1:]
        return back_off + found

    def _shorten(self, words: History) -> History:
        """As much of the history as the model knows: two histories that it cannot tell apart become one."""
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
        return True  # reading it as ARPA says what is wrong with it


def _order(digits: str, place: str) -> int:
    if len(digits) > len(str(_HIGHEST_ORDER)) or int(digits) > _HIGHEST_ORDER:
        raise DataError(f"{place}: n-grams of an order up to {_HIGHEST_ORDER} are read, got {digits[:20]}.")
    return int(digits)


def _logarithm(text: str) -> float:
    value = float(text)
    if math.isnan(value) or value == math.inf:
        raise ValueError
    return value
