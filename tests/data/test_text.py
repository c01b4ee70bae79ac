"""Text: cleaning, characters and word pieces; what is lost on the way is counted."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.text import Alphabet, SentencePieceTokenizer, TextCleaner, Tokenizer
from sonosco_like.errors import DataError, MissingPackageError, UsageError
from sonosco_like.records import BLANK, END, SPECIAL_SYMBOLS, START, UNKNOWN, UNKNOWN_TEXT
from sonosco_like.serialization import serializable

TEXTS = ["seven nine four", "one two three four five", "zero eight six", "two seven one"] * 20


@pytest.mark.parametrize(
    ("options", "text", "cleaned"),
    [
        ({}, "  Hello,\tWORLD!\n", "hello world"),
        ({}, "don’t — don't", "don't don't"),
        ({}, "ﬁne cafe\u0301", "fine café"),
        ({"normal_form": "NFD"}, "é", "e\u0301"),
        ({"normal_form": None}, "ﬁ", "ﬁ"),
        ({"case": "upper"}, "straße", "STRASSE"),
        ({"case": "keep"}, "Ab", "Ab"),
        ({"replacements": {"&": " and ", "dr.": "doctor"}}, "Dr. A & B", "doctor a and b"),
        ({"punctuation": "?-"}, "well-known? it's", "well-known? it s"),
        ({"collapse_blanks": False, "punctuation": ""}, "a, b", "a  b"),
        ({}, "१२ 三 naïve", "१२ 三 naïve"),
        ({}, "", ""),
    ],
)
def test_cleaning(options: dict[str, object], text: str, cleaned: str) -> None:
    assert TextCleaner(**options)(text) == cleaned  # type: ignore[arg-type]


def test_what_cleaning_drops_is_counted_and_reported() -> None:
    cleaner = TextCleaner()
    assert cleaner.report() == "Cleaning dropped nothing."
    cleaner("What?! Yes, yes!")
    assert cleaner.dropped_counts == {"?": 1, "!": 2, ",": 1}
    assert "'!' 2 times" in cleaner.report()


@given(text=st.text())
def test_cleaning_a_clean_text_changes_nothing_and_drops_nothing(text: str) -> None:
    cleaner = TextCleaner(case="keep")
    cleaned = cleaner(text)
    cleaner.dropped_counts.clear()
    assert cleaner(cleaned) == cleaned
    assert not cleaner.dropped_counts


def test_the_default_alphabet_begins_with_the_special_symbols() -> None:
    alphabet = Alphabet()
    assert alphabet.symbols[: len(SPECIAL_SYMBOLS)] == SPECIAL_SYMBOLS
    assert alphabet.size == len(alphabet.symbols) == 4 + 26 + 2
    assert alphabet.encode("ab' z") == [4, 5, 30, 31, 29]


@given(text=st.text("abcdefghijklmnopqrstuvwxyz' "))
def test_decoding_undoes_encoding(text: str) -> None:
    labels = Alphabet().encode(text)
    assert len(labels) == len(text)
    assert Alphabet().decode(labels) == text
    assert Alphabet().decode([START, *labels, END, BLANK]) == text


def test_characters_without_label_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DataError, match=r"no label for '3', 'é' in the text 'caf3é3'.*`missing`"):
        Alphabet().encode("caf3é3")


def test_characters_without_label_are_dropped_or_unknown_and_counted() -> None:
    dropping, keeping = Alphabet(missing="drop"), Alphabet(missing="unknown")
    assert dropping.decode(dropping.encode("a3bé3")) == "ab"
    assert keeping.encode("a3b") == [4, UNKNOWN, 5]
    assert keeping.decode(keeping.encode("a3b")) == f"a{UNKNOWN_TEXT}b"
    assert dropping.missing_counts == {"3": 2, "é": 1}
    assert "'3' 2 times" in dropping.report()
    assert Alphabet().report() == "Every character has a label."


@pytest.mark.parametrize("characters", ["", "abca"])
def test_an_alphabet_has_different_characters(characters: str) -> None:
    with pytest.raises(UsageError, match="different characters"):
        Alphabet(characters=characters)


@pytest.fixture(params=["bpe", "unigram"])
def pieces(request: pytest.FixtureRequest, tmp_path: Path) -> SentencePieceTokenizer:
    pytest.importorskip("sentencepiece")
    return SentencePieceTokenizer.train(TEXTS, tmp_path / "pieces.model", size=28, kind=request.param)


def test_word_pieces_have_the_wanted_number_of_labels_behind_special_symbols(
    pieces: SentencePieceTokenizer,
) -> None:
    assert pieces.size == len(pieces.symbols) == 28
    assert pieces.symbols[: len(SPECIAL_SYMBOLS)] == SPECIAL_SYMBOLS
    assert not set(pieces.symbols[4:]) & set(SPECIAL_SYMBOLS)


def test_word_pieces_give_the_text_back(pieces: SentencePieceTokenizer) -> None:
    for text in [*TEXTS[:4], "fourteen nineteen", ""]:
        labels = pieces.encode(text)
        assert all(len(SPECIAL_SYMBOLS) <= label < pieces.size for label in labels)
        assert pieces.decode([START, *labels, END]) == text
    assert len(pieces.encode("one two three four five")) < len("one two three four five")


def test_word_pieces_without_label_follow_the_same_policy(pieces: SentencePieceTokenizer) -> None:
    with pytest.raises(DataError, match="no label for '3'"):
        pieces.encode("one 3 two")
    dropping = SentencePieceTokenizer(model=pieces.model, missing="drop")
    assert dropping.decode(dropping.encode("one3two")).replace(" ", "") == "onetwo"
    assert dropping.missing_counts == {"3": 1}
    keeping = SentencePieceTokenizer(model=pieces.model, missing="unknown")
    assert UNKNOWN in keeping.encode("one 3 two")
    assert UNKNOWN_TEXT in keeping.decode(keeping.encode("one 3 two"))


def test_training_word_pieces_twice_gives_the_same_labels(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    once, again = (SentencePieceTokenizer.train(TEXTS, tmp_path / name, size=28) for name in ("a.model", "b.model"))
    assert again.symbols == once.symbols


def test_word_pieces_that_cannot_be_learned_or_read_say_so(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    with pytest.raises(UsageError, match="cannot learn 10000 labels"):
        SentencePieceTokenizer.train(TEXTS, tmp_path / "p.model", size=10000)
    assert not (tmp_path / "p.model").exists()
    with pytest.raises(DataError, match=r"does not exist yet\. Learn it .* sonosco data pieces"):
        SentencePieceTokenizer(model=tmp_path / "p.model").encode("one")
    (tmp_path / "p.model").write_bytes(b"no model")
    with pytest.raises(DataError, match="cannot be read"):
        SentencePieceTokenizer(model=tmp_path / "p.model").encode("one")


def test_without_the_package_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(MissingPackageError, match=r"sonosco_like\[bpe\]"):
        SentencePieceTokenizer(model=tmp_path / "p.model").encode("one")


def test_a_tokenizer_of_ones_own_needs_three_methods() -> None:
    class Words(Tokenizer):
        symbols = (*SPECIAL_SYMBOLS, "one", "two")  # type: ignore[assignment]

        def encode(self, text: str) -> list[int]:
            words = text.split()
            known = dict(zip(self.symbols, range(self.size), strict=True))
            return self._handle_missing([known.get(word, UNKNOWN) for word in words], words)

        def decode(self, labels):  # type: ignore[no-untyped-def]
            return " ".join(self.symbols[label] for label in labels)

    assert Words().encode("two one") == [5, 4]
    with pytest.raises(DataError, match="'three'"):
        Words().encode("one three")


@serializable
class Words(Tokenizer):
    """A tokenizer of a user who does not call super()."""

    words: list[str] = field(default_factory=lambda: ["one", "two"])

    def __post_init__(self) -> None:
        self.known = {word: label for label, word in enumerate(self.words, len(SPECIAL_SYMBOLS))}

    @property
    def symbols(self) -> tuple[str, ...]:
        """Special symbols and words."""
        return (*SPECIAL_SYMBOLS, *self.words)

    def encode(self, text: str) -> list[int]:
        """A label for each word."""
        return self._handle_missing([self.known.get(word, UNKNOWN) for word in text.split()], text.split())

    def decode(self, labels: Iterable[int]) -> str:
        """The words."""
        return " ".join(self.symbols[label] for label in labels if label > UNKNOWN)


def test_a_tokenizer_and_a_cleaner_may_leave_out_the_call_of_super() -> None:
    words = Words(missing="drop")
    assert words.decode(words.encode("one three two")) == "one two"
    assert sum(words.missing_counts.values()) == len("three")


def test_what_is_no_tokenizer_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"`tokenizer` must be a Tokenizer: object has no encode and no decode"):
        AudioDataset(manifest=tmp_path / "train.jsonl", tokenizer=object())
