"""Language models from texts: their probabilities by the definition, and other programs that read them."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonosco_like.data.tools.text_models import learn_language_model
from sonosco_like.decoding.language_model import ArpaModel
from sonosco_like.errors import DataError, UsageError

WORDS = ["a", "b", "c", "dé", "e'e"]
TEXTS = ["a b a", "b", "a b c a b", "c c c dé", "a dé e'e", "a b a c", "dé a b", "b a b a b a"]
sentences = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=30)


class ByDefinition:
    """Interpolated modified Kneser-Ney (Chen and Goodman 1998), written as the formulas are, without any hurry."""

    def __init__(self, texts: list[str], order: int) -> None:
        ngrams = [Counter() for _ in range(order + 1)]
        for text in texts:
            words = ("<s>", *text.split(), "</s>")
            for length in range(1, order + 1):
                for end in range(length, len(words) + 1):
                    ngrams[length][words[end - length : end]] += 1
        self.counts = [dict(ngrams[length]) for length in range(order + 1)]
        for length in range(1, order):
            for ngram in ngrams[length]:
                if ngram[0] != "<s>":
                    self.counts[length][ngram] = sum(longer[1:] == ngram for longer in ngrams[length + 1])
        self.counts[1].pop(("<s>",))
        self.discounts = [None, *(self.discounts_of(self.counts[length].values()) for length in range(1, order + 1))]
        self.words = {word for (word,) in self.counts[1]} | {"<unk>"}

    @staticmethod
    def discounts_of(counts) -> list[float]:
        n = [sum(count == wanted for count in counts) for wanted in range(5)]
        if min(n[1:]) > 0:
            y = n[1] / (n[1] + 2 * n[2])
            found = [0.0, *(k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3))]
            if all(0 <= found[k] <= k for k in (1, 2, 3)):
                return found
        return [0.0, 0.5, 1.0, 1.5]

    def p(self, word: str, history: tuple[str, ...]) -> float:
        length = len(history) + 1
        seen = {ngram[-1]: count for ngram, count in self.counts[length].items() if ngram[:-1] == history}
        if not seen:
            return self.p(word, history[1:])
        taken = {each: self.discounts[length][min(count, 3)] for each, count in seen.items()}
        left = sum(taken.values()) / sum(seen.values())
        shorter = self.p(word, history[1:]) if history else 1 / len(self.words)
        return (seen.get(word, 0) - taken.get(word, 0)) / sum(seen.values()) + left * shorter


def learn(folder, texts, order, **options):
    source, output = folder / "texts.txt", folder / "lm.arpa"
    source.write_text("\n".join(texts), encoding="utf-8")
    learned = learn_language_model([source], output, order, force=True, **options)
    return learned, ArpaModel(output)


def states(model):
    """Histories of every kind: of the start, of words, of an unknown word."""
    for words in ([], ["a"], ["a", "b"], ["b", "a"], ["c", "c", "c"], ["zebra", "a"], ["a", "zebra"], WORDS):
        state = model.start()
        for word in words:
            state = model.score(state, word)[1]
        yield words, state


@settings(max_examples=40, deadline=None)
@given(sentences, st.integers(1, 4))
def test_probabilities_are_those_of_the_definition(tmp_path_factory, texts, order):
    order = min(order, 2 + max(len(text.split()) for text in texts))
    _, model = learn(tmp_path_factory.mktemp("lm"), texts, order)
    expected = ByDefinition(texts, order)
    for words, state in states(model):
        known = ["<s>", *(word if word in expected.words else "<unk>" for word in words)]
        history = tuple(known[max(0, len(known) - order + 1) :])
        for word in expected.words - {"<unk>"}:
            assert model.score(state, word)[0] == pytest.approx(math.log(expected.p(word, history)), abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(sentences, st.integers(1, 4), st.booleans())
def test_after_every_history_the_probabilities_sum_to_one(tmp_path_factory, texts, order, closed):
    order = min(order, 2 + max(len(text.split()) for text in texts))
    _, model = learn(tmp_path_factory.mktemp("lm"), texts, order, closed=closed)
    known = {word for text in texts for word in text.split()}
    for _, state in states(model):
        unknown = math.exp(model.score(state, "zebra")[0])
        known_sum = sum(math.exp(model.score(state, word)[0]) for word in known)
        assert unknown + known_sum + math.exp(model.finish(state)) == pytest.approx(1.0, abs=1e-5)
        assert (unknown < 1e-50) == closed


def test_kenlm_in_flashlight_reads_the_same_probabilities(tmp_path):
    kenlm = pytest.importorskip("flashlight.lib.text.decoder.kenlm")
    dictionary = pytest.importorskip("flashlight.lib.text.dictionary").Dictionary([*WORDS, "zebra"])
    _, own = learn(tmp_path, TEXTS, 3)
    other = kenlm.KenLM(str(tmp_path / "lm.arpa"), dictionary)
    for text in (*TEXTS, "zebra a b", "e'e e'e e'e"):
        state, theirs, judged = own.start(), other.start(False), []
        for word in text.split():
            log_p, state = own.score(state, word)
            theirs, log10_p = other.score(theirs, dictionary.get_index(word))
            judged.append((log_p / math.log(10), log10_p))
        judged.append((own.finish(state) / math.log(10), other.finish(theirs)[1]))
        assert [mine for mine, _ in judged] == pytest.approx([his for _, his in judged], abs=1e-4)


def test_texts_of_the_same_kind_become_more_probable_with_the_order(tmp_path):
    perplexities = []
    for order in (1, 2, 3):
        _, model = learn(tmp_path, ["two one two one two", "one two one two"] * 20, order)
        state, total = model.start(), 0.0
        for word in ["one", "two", "one"]:
            log_p, state = model.score(state, word)
            total += log_p
        perplexities.append(math.exp(-total / 3))
    assert perplexities[0] > perplexities[1]
    assert perplexities[0] > perplexities[2]


def test_manifests_and_text_files_are_read_together_and_cleaned(tmp_path):
    (tmp_path / "m.jsonl").write_text(json.dumps({"audio_filepath": "a", "duration": 1, "text": "One, <s> TWO!"}))
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(b"two three\n\n \n"))
    output = tmp_path / "new" / "lm.arpa.gz"
    learned = learn_language_model([tmp_path / "m.jsonl", tmp_path / "t.txt.gz"], output, 2)
    assert (learned.texts, learned.words) == (2, 4)  # the s of <s> is a word after cleaning
    assert ArpaModel(output).score((), "three")[0] > ArpaModel(output).score((), "four")[0]
    again = output.with_name("again.arpa.gz")
    learn_language_model([tmp_path / "m.jsonl", tmp_path / "t.txt.gz"], again, 2)
    assert again.read_bytes() == output.read_bytes()
    assert sorted(path.name for path in output.parent.iterdir()) == ["again.arpa.gz", "lm.arpa.gz"]


def test_discounts_that_the_texts_do_not_tell_are_assumed_and_reported(tmp_path):
    learned, _ = learn(tmp_path, ["one two", "two one"], 2)
    assert learned.assumed == [1, 2]


def test_what_cannot_be_learned_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("\n ... \n")
    (tmp_path / "short.txt").write_text("one\ntwo words\n")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    output = tmp_path / "lm.arpa"
    with pytest.raises(DataError, match="all texts are empty"):
        learn_language_model([tmp_path / "empty.txt"], output)
    with pytest.raises(UsageError, match=r"longest text has 2 words, too few for order 5\. Take --order 4"):
        learn_language_model([tmp_path / "short.txt"], output, 5)
    with pytest.raises(DataError, match=r"latin\.txt cannot be read as UTF-8 text"):
        learn_language_model([tmp_path / "latin.txt"], output)
    with pytest.raises(DataError, match=r"gone\.txt cannot be read"):
        learn_language_model([tmp_path / "gone.txt"], output)
    assert not output.exists()
    output.write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        learn_language_model([tmp_path / "short.txt"], output)
