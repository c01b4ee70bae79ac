"""N-gram language models in the ARPA text format, read without any further package.

The format, as SRILM and KenLM write it: after `\\data\\` the counts, then for each order a section `\\N-grams:` of
lines `log10 probability <tab> words <tab> log10 back-off weight`, then `\\end\\`. What is not listed backs off to
shorter histories.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from pathlib import Path
from typing import TextIO

from sonosco_like.errors import DataError

History = tuple[str, ...]
SENTENCE_START, SENTENCE_END, UNKNOWN_WORD = "<s>", "</s>", "<unk>"
_SECTION = re.compile(r"\\([1-9]\d*)-grams:")
_MISSING_UNKNOWN = -100.0  # log10, what KenLM assumes for a model without <unk>


class ArpaModel:
    """Word probabilities given the words before: `log p` in natural logarithms, histories as tuples of words."""

    def __init__(self, path: Path) -> None:
        self.order = 0
        self._probabilities: dict[History, float] = {(UNKNOWN_WORD,): _MISSING_UNKNOWN}
        self._back_offs: dict[History, float] = {}
        try:
            with _open_text(path) as file:
                self._read(file, path)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
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

    def _read(self, file: TextIO, path: Path) -> None:
        lines = enumerate(file, 1)
        if not any(line.strip() == "\\data\\" for _, line in lines):
            raise DataError(f"{path} is not a language model in ARPA format: it has no line `\\data\\`.")
        for number, line in lines:
            line = line.strip()
            if line == "\\end\\":
                return
            if section := _SECTION.fullmatch(line):
                self.order = int(section[1])
            elif line.startswith("\\"):
                raise DataError(f"{path}:{number}: expected `\\N-grams:` or `\\end\\`, got {line!r}.")
            elif line and self.order:
                self._add(line, f"{path}:{number}")
        raise DataError(f"{path} ends before its line `\\end\\`; it was not written or copied completely.")

    def _add(self, line: str, place: str) -> None:
        fields = line.split()
        words = tuple(line.split("\t")[1].split() if "\t" in line else fields[1 : 1 + self.order])
        try:
            if len(words) != self.order or len(fields) > self.order + 2:
                raise ValueError
            self._probabilities[words] = float(fields[0])
            if len(fields) > 1 + self.order:
                self._back_offs[words] = float(fields[1 + self.order])
        except ValueError:
            raise DataError(
                f"{place}: expected a log probability, {self.order} words and perhaps a back-off weight, got {line!r}."
            ) from None


def is_arpa(path: Path) -> bool:
    """Whether a file looks like ARPA text rather than KenLM's binary format."""
    try:
        with _open_bytes(path) as file:
            return b"\0" not in file.read(512)
    except (OSError, EOFError, zlib.error):
        return True  # reading it as ARPA says what is wrong with it


def _open_bytes(path: Path) -> gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")
