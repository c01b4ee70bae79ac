import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.edits import (
    ErrorCounts,
    align,
    characters_of,
    count_character_errors,
    count_errors,
    count_word_errors,
    words_of,
)

words = st.lists(st.sampled_from(["a", "b", "c", "dog", "cat", "ä"]), max_size=8)
corpora = st.lists(st.tuples(words, words), min_size=1, max_size=6)


def edit_distance(reference, hypothesis):
    """The textbook recursion, row by row."""
    row = list(range(len(hypothesis) + 1))
    for i, r in enumerate(reference, 1):
        previous, row = row, [i]
        for j, h in enumerate(hypothesis, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (r != h)))
    return row[-1]


@given(words, words)
def test_errors_are_the_edit_distance(reference, hypothesis):
    counts = count_errors(reference, hypothesis)
    assert counts.errors == edit_distance(reference, hypothesis)
    assert counts.reference_length == len(reference)
    assert counts.insertions - counts.deletions == len(hypothesis) - len(reference)


@given(words, words)
def test_alignment_spells_both_sides_and_has_the_fewest_edits(reference, hypothesis):
    alignment = align(reference, hypothesis)
    assert [e.reference for e in alignment.edits if e.reference is not None] == reference
    assert [e.hypothesis for e in alignment.edits if e.hypothesis is not None] == hypothesis
    assert alignment.counts == count_errors(reference, hypothesis)
    for edit in alignment.edits:
        assert (edit.kind == "equal") == (edit.reference == edit.hypothesis)
        assert (edit.kind == "deletion") == (edit.hypothesis is None)
        assert (edit.kind == "insertion") == (edit.reference is None)


@given(corpora)
def test_corpus_rates_are_those_of_jiwer(corpus):
    references = [" ".join(reference) for reference, _ in corpus]
    hypotheses = [" ".join(hypothesis) for _, hypothesis in corpus]
    assert count_word_errors(references, hypotheses).rate == pytest.approx(jiwer.wer(references, hypotheses))
    assert count_character_errors(references, hypotheses).rate == pytest.approx(jiwer.cer(references, hypotheses))


@pytest.mark.parametrize(
    ("reference", "hypothesis", "counts", "rate"),
    [
        ("", "", ErrorCounts(0, 0, 0, 0), 0.0),
        ("", "two words", ErrorCounts(0, 0, 2, 0), 2.0),
        ("one two", "", ErrorCounts(0, 2, 0, 2), 1.0),
        ("   ", "", ErrorCounts(0, 0, 0, 0), 0.0),
        ("a b c d", "a x c", ErrorCounts(1, 1, 0, 4), 0.5),
    ],
)
def test_empty_sides_are_defined(reference, hypothesis, counts, rate):
    assert count_word_errors([reference], [hypothesis]) == counts
    assert counts.rate == rate


def test_an_empty_reference_counts_its_insertions_in_the_corpus():
    assert count_word_errors(["", "one two"], ["noise", "one two"]).rate == 0.5


def test_spacing_is_not_an_error_but_a_missing_space_is():
    assert words_of("  one   two ") == ["one", "two"]
    assert characters_of(" one   two ") == "one two"
    assert count_character_errors(["one two"], ["onetwo"]) == ErrorCounts(0, 1, 0, 7)


def test_texts_without_partner_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        count_word_errors(["one", "two"], ["one"])
