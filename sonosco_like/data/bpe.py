"""Word pieces with SentencePiece (Kudo and Richardson 2018), an optional extra."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sonosco_like.data.text import Missing, Tokenizer
from sonosco_like.errors import DataError, MissingPackageError, UsageError
from sonosco_like.records import SPECIAL_SYMBOLS, UNKNOWN
from sonosco_like.serialization import serializable
from sonosco_like.strangers import refuse_special


@serializable
class SentencePieceTokenizer(Tokenizer):
    """Labels for the pieces of a trained SentencePiece model, whose own special pieces give way to ours."""

    model: Path

    @staticmethod
    def train(
        texts: Iterable[str],
        model: Path,
        size: int,
        kind: Literal["bpe", "unigram"] = "bpe",
        missing: Missing = "error",
    ) -> SentencePieceTokenizer:
        """Learn a vocabulary of `size` labels, special symbols included, and write it to the file `model`."""
        trainer = _package().SentencePieceTrainer
        pieces = size - len(SPECIAL_SYMBOLS) + 1  # SentencePiece counts its own unknown piece
        try:
            with model.open("wb") as stream:
                trainer.train(
                    sentence_iterator=iter(texts), model_writer=stream, model_type=kind, vocab_size=pieces,
                    character_coverage=1.0, normalization_rule_name="identity", num_threads=1, minloglevel=2,
                    bos_id=-1, eos_id=-1, pad_id=-1, unk_id=0,
                )  # fmt: skip
        except RuntimeError as error:
            model.unlink()
            raise UsageError(f"SentencePiece cannot learn {size} labels from these texts: {error}") from None
        return SentencePieceTokenizer(model=model, missing=missing)

    @cached_property
    def _processor(self) -> Any:
        package = _package()
        try:
            refuse_special(self.model)
            return package.SentencePieceProcessor(model_file=str(self.model))
        except (OSError, RuntimeError) as error:
            raise DataError(f"The SentencePiece model {self.model} cannot be read: {error}") from None

    @cached_property
    def _pieces(self) -> list[int]:
        """SentencePiece's own numbers of the labels behind the special symbols."""
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
        return self._without_label(labels, self._processor.encode(text, out_type=str)) if UNKNOWN in labels else labels

    def decode(self, labels: Iterable[int]) -> str:
        """The text of the pieces."""
        first = len(SPECIAL_SYMBOLS)
        known = [label for label in map(int, labels) if label >= first or label == UNKNOWN]
        unknown = self._processor.unk_id()
        pieces = [unknown if label == UNKNOWN else self._pieces[label - first] for label in known]
        return str(self._processor.decode(pieces)).strip()


def _package() -> Any:
    try:
        return importlib.import_module("sentencepiece")
    except ModuleNotFoundError:
        raise MissingPackageError(
            "Word pieces need the package sentencepiece. Install it with: pip install 'sonosco_like[bpe]'"
        ) from None
