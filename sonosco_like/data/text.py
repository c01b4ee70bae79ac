"""Transcripts as labels: the cleaner, and tokenizers over characters and over word pieces.

Characters that cleaning drops, and characters without label, are counted; `report()` describes them in words.
"""

from __future__ import annotations

import importlib
import io
import re
import string
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sonosco_like.errors import DataError, MissingPackageError, UsageError
from sonosco_like.records import SPECIAL_SYMBOLS, UNKNOWN, UNKNOWN_TEXT
from sonosco_like.serialization import replace_file, serializable
from sonosco_like.untrusted_files import check_regular_file

Missing = Literal["error", "unknown", "drop"]
_NOT_COUNTED = len(SPECIAL_SYMBOLS) - 1  # labels that SentencePiece does not count; it counts its own unknown piece
_LONGEST_TEXT = 1 << 20  # bytes; SentencePiece silently ignores texts that are longer than this, by default than 4,192


class CharacterCounts(Counter[str]):
    """Counts of characters that did not become labels."""

    def describe(self, most: int = 12) -> str:
        """The most frequent characters with their counts."""
        listed = ", ".join(f"{character!r} {count} times" for character, count in self.most_common(most))
        more = len(self) - most
        return listed + (f" and {more} others" if more > 0 else "")


@serializable
class TextCleaner:
    """Brings transcripts into one form: Unicode, case, replacements, punctuation, blanks; in this order.

    Punctuation and symbols that are not in `punctuation` become blanks and are counted.
    """

    normal_form: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = "NFKC"
    case: Literal["lower", "upper", "keep"] = "lower"
    replacements: dict[str, str] = field(default_factory=lambda: {"’": "'"})
    punctuation: str = "'"
    collapse_blanks: bool = True

    def __post_init__(self) -> None:
        if "" in self.replacements:
            raise UsageError("`replacements` of TextCleaner cannot replace an empty text.")

    @cached_property
    def dropped_counts(self) -> CharacterCounts:
        """The characters that cleaning removed so far."""
        return CharacterCounts()

    def __call__(self, text: str) -> str:
        """The cleaned text."""
        if self.normal_form is not None:
            text = unicodedata.normalize(self.normal_form, text)
        if self.case != "keep":
            text = text.lower() if self.case == "lower" else text.upper()
        for old, new in self.replacements.items():
            text = text.replace(old, new)
        unwanted = {character for character in set(text) if self._is_unwanted(character)}
        if unwanted:
            self.dropped_counts.update(character for character in text if character in unwanted)
            text = text.translate(dict.fromkeys(map(ord, unwanted), " "))
        return " ".join(text.split()) if self.collapse_blanks else text

    def report(self) -> str:
        """A sentence about the characters that were dropped so far."""
        return f"Cleaning dropped {self.dropped_counts.describe() if self.dropped_counts else 'nothing'}."

    def _is_unwanted(self, character: str) -> bool:
        if character.isalnum() or character.isspace() or character in self.punctuation:
            return False
        return unicodedata.category(character)[0] in "PSC"  # punctuation, symbols, control characters


@serializable
class Tokenizer(ABC):
    """Text to labels and back. Every vocabulary begins with `SPECIAL_SYMBOLS`.

    `missing` decides about a part of a text that has no label: an error, the label UNKNOWN, or it is dropped.
    """

    missing: Missing = "error"

    def __post_init__(self) -> None:
        """Do nothing, so that a subclass may call this or not."""

    @cached_property
    def missing_counts(self) -> CharacterCounts:
        """The characters that had no label so far."""
        return CharacterCounts()

    @property
    @abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """The text of each label."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The labels of a text, without START and END."""

    @abstractmethod
    def decode(self, labels: Iterable[int]) -> str:
        """The text of labels, without the special symbols; only UNKNOWN stays visible."""

    @property
    def size(self) -> int:
        """The number of labels, V."""
        return len(self.symbols)

    def report(self) -> str:
        """A sentence about the characters that had no label so far."""
        if not self.missing_counts:
            return "Every character has a label."
        return f"There is no label for {self.missing_counts.describe()} (missing: {self.missing})."

    def _handle_missing(self, labels: list[int], parts: Sequence[str]) -> list[int]:
        """Count the parts whose label is UNKNOWN, and refuse, keep or drop these labels, as set by `missing`."""
        if UNKNOWN not in labels:
            return labels
        unlabelled = [part for part, label in zip(parts, labels, strict=True) if label == UNKNOWN]
        self.missing_counts.update("".join(unlabelled))
        if self.missing == "error":
            raise DataError(
                f"There is no label for {', '.join(map(repr, dict.fromkeys(unlabelled)))} in the text "
                f"{_shorten(''.join(parts))!r}. Extend the vocabulary, let a TextCleaner replace it, or set the "
                f"tokenizer's `missing` to drop or unknown."
            )
        return labels if self.missing == "unknown" else [label for label in labels if label != UNKNOWN]


@serializable
class Alphabet(Tokenizer):
    """One label for each character."""

    characters: str = string.ascii_lowercase + "' "

    def __post_init__(self) -> None:
        super().__post_init__()
        double = sorted(character for character, count in Counter(self.characters).items() if count > 1)
        if double or not self.characters:
            raise UsageError(f"`characters` of Alphabet must be different characters, at least one; twice: {double}.")
        self._symbols = (*SPECIAL_SYMBOLS, *self.characters)
        self._labels = {character: label for label, character in enumerate(self.characters, len(SPECIAL_SYMBOLS))}

    @property
    def symbols(self) -> tuple[str, ...]:
        """The special symbols and the characters."""
        return self._symbols

    def encode(self, text: str) -> list[int]:
        """A label for each character."""
        return self._handle_missing([self._labels.get(character, UNKNOWN) for character in text], text)

    def decode(self, labels: Iterable[int]) -> str:
        """The characters of the labels."""
        special = dict(enumerate(("", "", "", UNKNOWN_TEXT)))
        return "".join(special.get(label, self._symbols[label]) for label in map(int, labels))


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


@serializable
class SentencePieceTokenizer(Tokenizer):
    """Labels for the word pieces of a trained SentencePiece model (Kudo and Richardson 2018), an optional extra.

    Our special symbols replace those of the model.
    """

    model: Path

    @staticmethod
    def train(
        texts: Iterable[str],
        model: Path,
        size: int,
        kind: Literal["bpe", "unigram"] = "bpe",
        missing: Missing = "error",
    ) -> SentencePieceTokenizer:
        """Learn a vocabulary of `size` labels, special symbols included, and write it to the file `model`.

        The same texts in the same order give the same file, bit for bit.
        """
        trainer = _import_sentencepiece().SentencePieceTrainer
        content = io.BytesIO()
        try:
            trainer.train(
                sentence_iterator=iter(texts), model_writer=content, model_type=kind, vocab_size=size - _NOT_COUNTED,
                character_coverage=1.0, normalization_rule_name="identity", num_threads=1, minloglevel=2,
                bos_id=-1, eos_id=-1, pad_id=-1, unk_id=0, max_sentence_length=_LONGEST_TEXT,
            )  # fmt: skip
        except RuntimeError as error:
            reason = _explain_refusal(str(error))
            raise UsageError(f"SentencePiece cannot learn {size} labels from these texts: {reason}") from None
        replace_file(model, content.getvalue())
        return SentencePieceTokenizer(model=model, missing=missing)

    @cached_property
    def _processor(self) -> Any:
        package = _import_sentencepiece()
        if not self.model.exists():
            raise DataError(
                f"the SentencePiece model {self.model} does not exist yet. Learn it from the texts of the training "
                f"data with: sonosco data pieces TRAIN.jsonl --size 500 --output {self.model}"
            )
        try:
            check_regular_file(self.model)
            return package.SentencePieceProcessor(model_file=str(self.model))
        except (OSError, RuntimeError) as error:
            raise DataError(f"The SentencePiece model {self.model} cannot be read: {error}") from None

    @cached_property
    def _pieces(self) -> list[int]:
        """SentencePiece's ids of the labels that follow the special symbols."""
        processor = self._processor
        pieces = range(processor.get_piece_size())
        return [piece for piece in pieces if not (processor.is_unknown(piece) or processor.is_control(piece))]

    @cached_property
    def _labels(self) -> dict[int, int]:
        return {piece: label for label, piece in enumerate(self._pieces, len(SPECIAL_SYMBOLS))}

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The special symbols and the pieces; a leading `▁` stands for a space."""
        return (*SPECIAL_SYMBOLS, *map(self._processor.id_to_piece, self._pieces))

    def encode(self, text: str) -> list[int]:
        """A label for each piece."""
        labels = [self._labels.get(piece, UNKNOWN) for piece in self._processor.encode(text)]
        return self._handle_missing(labels, self._processor.encode(text, out_type=str)) if UNKNOWN in labels else labels

    def decode(self, labels: Iterable[int]) -> str:
        """The text of the pieces."""
        first = len(SPECIAL_SYMBOLS)
        known = [label for label in map(int, labels) if label >= first or label == UNKNOWN]
        unknown = self._processor.unk_id()
        pieces = [unknown if label == UNKNOWN else self._pieces[label - first] for label in known]
        return str(self._processor.decode(pieces)).strip()


def _explain_refusal(message: str) -> str:
    """SentencePiece's reason in our words: it counts pieces, and we count labels."""
    if found := re.search(r"too high.* value <= (\d+)", message):
        return f"{int(found[1]) + _NOT_COUNTED} is the largest number possible. Take fewer labels, or more texts."
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        least = int(found[1]) + _NOT_COUNTED
        return f"{least} is the smallest number possible, because each character and each special symbol needs one."
    return "there are no texts." if "sentences_.empty()" in message else message


def _import_sentencepiece() -> Any:
    try:
        return importlib.import_module("sentencepiece")
    except ModuleNotFoundError:
        raise MissingPackageError(
            "Word pieces need the package sentencepiece. Install it with: pip install 'sonosco_like[bpe]'"
        ) from None
