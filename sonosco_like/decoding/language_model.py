"""Word n-gram language models for the beam decoders, whichever package is there to read them."""

from __future__ import annotations

import functools
import importlib.util
import math
from pathlib import Path
from typing import Any, Literal, Protocol

from sonosco_like.decoding.arpa import ArpaModel, is_arpa
from sonosco_like.errors import DataError, MissingPackageError, UsageError
from sonosco_like.serialization import serializable
from sonosco_like.strangers import refuse_special


class WordModel(Protocol):
    """Says how likely a word is after others. Scores are natural logarithms; a state is hashable and never changes."""

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

    `auto` reads with the package `kenlm` where it is installed, and else with our own ARPA reader, which needs more
    memory and gives the same scores.
    """

    path: Path
    reader: Literal["auto", "kenlm", "arpa"] = "auto"

    def load(self) -> WordModel:
        """The model in memory; a file is read only once, unless it changes."""
        path = Path(self.path)
        if not path.exists():
            raise UsageError(f"There is no language model at {path}. Give the path of an ARPA or KenLM file.")
        refuse_special(path)
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


class KenlmModel:
    """A model in memory of the package `kenlm`."""

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
        """The state at the beginning of a sentence."""
        state = self._kenlm.State()
        self._model.BeginSentenceWrite(state)
        return state

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """(log p(word | state), the state after the word)."""
        after = self._kenlm.State()
        return self._model.BaseScore(state, word, after) * math.log(10), after

    def finish(self, state: Any) -> float:
        """Log probability that the sentence ends here."""
        return self.score(state, "</s>")[0]


@functools.lru_cache(maxsize=4)
def _load_kenlm(path: Path, version: tuple[int, int]) -> KenlmModel:
    return KenlmModel(path)


@functools.lru_cache(maxsize=4)
def _load_arpa(path: Path, version: tuple[int, int]) -> ArpaModel:
    return ArpaModel(path)
