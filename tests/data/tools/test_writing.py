"""How texts are written decides the cleaner: Unicode form, case, characters, words."""

from __future__ import annotations

import unicodedata

import pytest

from sonosco_like.data.tools.survey import examine_writing


def test_texts_in_cyrillic_letters_become_lower_case_without_punctuation():
    found = examine_writing(["Восемь, два.", "Ёлка!"])
    assert (found.cleaner.normal_form, found.cleaner.case) == ("NFC", "lower")
    assert found.alphabet == " авдеклмосьё"
    assert found.words == {"восемь": 1, "два": 1, "ёлка": 1}
    assert set(found.dropped) == {",", ".", "!"}


@pytest.mark.parametrize("text", ["नमस्ते दुनिया", "ภาษาไทยน้ำ", "今日は"])
def test_a_script_without_case_is_kept_as_it_is(text):
    found = examine_writing([text])
    assert found.cleaner.case == "keep"
    assert found.cleaner(text) == unicodedata.normalize("NFC", text)
    assert set(found.alphabet) == set(unicodedata.normalize("NFC", text))


def test_an_accent_that_is_a_character_of_its_own_is_joined_with_its_letter():
    found = examine_writing(["cafe\u0301", "café"])
    assert found.words == {"café": 2}
    assert "joined" in found.reasons[0]


def test_letters_of_full_width_become_plain_ones_and_the_reason_shows_them():
    found = examine_writing(["ＡＢ one", "ﬁn"])
    assert found.cleaner.normal_form == "NFKC"
    assert set(found.words) == {"ab", "one", "fin"}
    assert "Ａ" in found.reasons[0]


def test_punctuation_alone_is_no_reason_for_nfkc():
    assert examine_writing(["one… two"]).cleaner.normal_form == "NFC"


def test_turkish_letters_are_lower_case_in_one_character_and_a_dotless_i_is_named():
    found = examine_writing(["İki", "Isı"])
    assert "iki" in found.words
    assert "dotless" in found.reasons[1]
    assert not any(map(unicodedata.combining, found.alphabet))


def test_long_words_are_not_taken_for_texts_without_spaces():
    assert examine_writing(["Donaudampfschifffahrt fährt heute"]).has_spaces
    assert not examine_writing(["今天天气很好我们去公园散步吧", "他昨天在图书馆里看了一本很有意思的书"]).has_spaces


def test_empty_texts_and_texts_with_digits_are_counted():
    found = examine_writing(["call 42", "?!", "", "two"])
    assert (found.texts, found.empty, found.with_digits) == (4, 2, 1)
