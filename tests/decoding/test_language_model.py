import gzip
import math

import pytest

from sonosco_like.decoding import NGramLanguageModel
from sonosco_like.decoding.language_model import ArpaModel
from sonosco_like.errors import DataError, MissingPackageError, UsageError
from sonosco_like.serialization import dumps, loads

# A trigram model written by hand, with a gap at each order, so that every kind of backing off occurs.
ARPA = """
\\data\\
ngram 1=5
ngram 2=4
ngram 3=1

\\1-grams:
-1.0\t<unk>
0\t<s>\t-0.5
-0.7\t</s>
-0.6\ta\t-0.3
-0.9\tb\t-0.2

\\2-grams:
-0.4\t<s> a\t-0.25
-0.3\ta b\t-0.15
-0.2\tb </s>
-0.8\tb a

\\3-grams:
-0.1\t<s> a b

\\end\\
"""


@pytest.fixture
def arpa_file(tmp_path):
    path = tmp_path / "tiny.arpa"
    path.write_text(ARPA)
    return path


def log10_of(model, text):
    """The log10 probability of each word, and of the end."""
    state, scores = model.start(), []
    for word in text.split():
        score, state = model.score(state, word)
        scores.append(score / math.log(10))
    return [*scores, model.finish(state) / math.log(10)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", [-0.4, -0.1, -0.15 - 0.2]),  # bigram, trigram, then back off from "a b" to "b </s>"
        ("b a", [-0.5 - 0.9, -0.8, -0.3 - 0.7]),  # "b a" has no back-off weight of its own
        ("a x a", [-0.4, -0.25 - 0.3 - 1.0, -0.6, -0.3 - 0.7]),
        ("", [-0.5 - 0.7]),
    ],
)
def test_scores_follow_the_back_off_rule(arpa_file, text, expected):
    assert log10_of(ArpaModel(arpa_file), text) == pytest.approx(expected)


def test_histories_the_model_cannot_tell_apart_are_one(arpa_file):
    model = ArpaModel(arpa_file)
    after_unknown = model.score(model.score(model.start(), "b")[1], "zebra")[1]
    assert model.score(after_unknown, "a")[1] == ("a",)


def test_own_reader_and_kenlm_agree(arpa_file):
    pytest.importorskip("kenlm")
    own, other = ArpaModel(arpa_file), NGramLanguageModel(path=arpa_file, reader="kenlm").load()
    for text in ("", "a", "b a b", "a b a b", "x y", "a x b", "b b b a"):
        assert log10_of(own, text) == pytest.approx(log10_of(other, text), abs=1e-5)


def test_compressed_files_are_read(tmp_path, arpa_file):
    packed = tmp_path / "tiny.arpa.gz"
    packed.write_bytes(gzip.compress(ARPA.encode()))
    model = NGramLanguageModel(path=packed, reader="arpa").load()
    assert log10_of(model, "a b") == log10_of(ArpaModel(arpa_file), "a b")


def test_a_file_is_read_once_unless_it_changes(arpa_file):
    settings = NGramLanguageModel(path=arpa_file, reader="arpa")
    first = settings.load()
    assert settings.load() is first
    arpa_file.write_text(ARPA.replace("-0.1\t<s> a b", "-0.05\t<s> a b"))
    assert log10_of(settings.load(), "a b")[1] == pytest.approx(-0.05)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello", "no line"),
        (ARPA.replace("\\end\\", ""), "ends before"),
        (ARPA.replace("-0.4\t<s> a", "-0.4\t<s>"), "tiny.arpa:15: expected a log probability, 2 words"),
        (ARPA.replace("-0.9\tb", "much\tb"), "tiny.arpa:12"),
        (ARPA.replace("\\2-grams:", "\\two-grams:"), "tiny.arpa:14: expected "),
    ],
)
def test_broken_files_are_refused_with_their_place(arpa_file, content, message):
    arpa_file.write_text(content)
    with pytest.raises(DataError, match=message):
        ArpaModel(arpa_file)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("latin.arpa", ARPA.replace("\ta\t", "\tä\t").encode("latin-1")),
        ("torn.arpa.gz", gzip.compress(ARPA.encode(), mtime=0)[:-20]),
        ("plain.arpa.gz", ARPA.encode()),
    ],
)
def test_files_that_are_no_text_are_refused_in_a_sentence(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name} cannot be read as ARPA text"):
        NGramLanguageModel(path=tmp_path / name, reader="arpa").load()


def test_what_cannot_be_read_says_what_is_missing(tmp_path):
    with pytest.raises(UsageError, match="no language model"):
        NGramLanguageModel(path=tmp_path / "none.arpa").load()
    binary = tmp_path / "model.bin"
    binary.write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0\0\0")
    with pytest.raises(MissingPackageError, match="pip install kenlm"):
        NGramLanguageModel(path=binary, reader="arpa").load()


def test_survives_yaml(arpa_file):
    restored = loads(dumps(NGramLanguageModel(path=arpa_file)), NGramLanguageModel)
    assert restored.path == arpa_file


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [("-99\t<unk>", {"a", "b"}), ("-100 <unk> 0", {"a", "b"}), ("-1.0\t<unk>", None), ("", None)],
)
def test_a_vocabulary_is_closed_if_the_file_says_that_other_words_are_impossible(tmp_path, unknown, expected):
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA.replace("-1.0\t<unk>", unknown))
    assert NGramLanguageModel(path=path).closed_vocabulary() == expected
