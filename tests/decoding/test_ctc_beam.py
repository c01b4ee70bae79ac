import math

import pytest
from brute_force import Letters, every_ctc_text, posteriors, saying
from brute_force import ctc_output as output_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonosco_like.decoding import CTCBeamDecoder, GreedyCTCDecoder, NGramLanguageModel, WordScores
from sonosco_like.errors import UsageError
from sonosco_like.serialization import dumps, loads

VOCABULARY = Letters("ab ")
PIECES = Letters("ab")
PIECES.symbols[4:] = ["▁a", "b"]
WIDE = 5000


def total_score(words, settings):
    """What the definition says words are worth, without any search."""
    score = sum(settings.word_bonus + settings.hot_word_bonus * (word in settings.hot_words) for word in words)
    if settings.language_model is None:
        return score
    model = settings.language_model.load()
    state = model.start()
    for word in words:
        log_p, state = model.score(state, word)
        score += settings.weight * log_p
    return score + settings.weight * model.finish(state)


def words_of(labels, vocabulary):
    return "".join(vocabulary.symbols[label] for label in labels).replace("▁", " ").split()


@pytest.mark.parametrize("vocabulary", [VOCABULARY, PIECES], ids=["letters", "pieces"])
@pytest.mark.parametrize("kind", ["language model", "hot words", "everything"])
@settings(max_examples=15)
@given(frames=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_a_wide_beam_with_words_is_exact(language_model, vocabulary, kind, frames, seed):
    hot = {"hot_words": ["ab", "abb", "b"], "hot_word_bonus": 1.5} if kind != "language model" else {}
    lm = {"language_model": language_model, "weight": 0.8} if kind != "hot words" else {}
    words = WordScores(word_bonus=0.7, **hot, **lm)
    log_probs_SV = posteriors(frames, vocabulary, seed)
    decoder = CTCBeamDecoder(beam_size=WIDE, beam_threshold=500.0, n_best=3, words=words)
    [found] = decoder.decode(output_of([log_probs_SV]), vocabulary)
    expected = sorted(
        (-p - total_score(words_of(labels, vocabulary), words), labels)
        for labels, p in every_ctc_text(log_probs_SV).items()
        if p > -100.0
    )
    assert [r.score for r in found] == pytest.approx([-score for score, _ in expected[: len(found)]], abs=1e-4)
    assert found[0].labels in [labels for score, labels in expected if score - expected[0][0] < 1e-4]


CLOSED = "\\data\\\nngram 1=5\n\n\\1-grams:\n-99 <unk>\n-99 <s>\n-0.5 </s>\n-0.3 aba\n-0.7 b\n\n\\end\\\n"


@pytest.fixture
def two_words(tmp_path):
    """A model that says that there are no words but these."""
    (tmp_path / "closed.arpa").write_text(CLOSED)
    return NGramLanguageModel(path=tmp_path / "closed.arpa")


@pytest.mark.parametrize("vocabulary", [VOCABULARY, PIECES], ids=["letters", "pieces"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_with_a_closed_vocabulary_the_best_text_of_its_words_is_found(two_words, vocabulary, frames, seed):
    words = WordScores(language_model=two_words, weight=0.7)
    log_probs_SV = posteriors(frames, vocabulary, seed)
    possible = {
        labels: log_p + total_score(words_of(labels, vocabulary), words)
        for labels, log_p in every_ctc_text(log_probs_SV).items()
        if set(words_of(labels, vocabulary)) <= {"aba", "b"}
    }
    [[best]] = CTCBeamDecoder(beam_size=10_000, words=words).decode(output_of([log_probs_SV]), vocabulary)
    assert best.score == pytest.approx(max(possible.values()), abs=1e-4)
    assert best.labels in possible


def test_a_narrow_beam_is_not_filled_with_words_that_do_not_exist(two_words):
    """The model hears "abab" five times; without the limit every beam has words such as "abab" when a word ends."""
    log_probs_SV = saying(Letters("ab "), "a_b_a_b_ " * 5, sure=0.97)
    for weight, exist in ((0.0, False), (0.01, True), (0.7, True)):
        decoder = CTCBeamDecoder(beam_size=4, words=WordScores(language_model=two_words, weight=weight))
        [[best]] = decoder.decode(output_of([log_probs_SV]), Letters("ab "))
        assert (set(best.text.split()) <= {"aba", "b"}) == exist


def test_a_language_model_chooses_between_what_sounds_alike(language_model):
    log_probs_SV = saying(VOCABULARY, "a_ab", sure=0.9)
    log_probs_SV[1, VOCABULARY.symbols.index(" ")] = log_probs_SV[1, 0] - 0.1  # a gap, or none?
    output = output_of([log_probs_SV])
    assert CTCBeamDecoder().texts(output, VOCABULARY) == ["aab"]
    assert CTCBeamDecoder(words=WordScores(language_model=language_model)).texts(output, VOCABULARY) == ["a ab"]


def test_hot_words_are_heard_where_they_are_plausible():
    log_probs_SV = saying(VOCABULARY, "ab_a", sure=0.6)
    output = output_of([log_probs_SV])
    assert CTCBeamDecoder().texts(output, VOCABULARY) == ["aba"]
    hot = WordScores(hot_words=["abb"], hot_word_bonus=4.0)
    assert CTCBeamDecoder(words=hot).texts(output, VOCABULARY) == ["abb"]
    assert CTCBeamDecoder(words=hot).texts(output_of([saying(VOCABULARY, "a", sure=0.99)]), VOCABULARY) == ["a"]


def test_times_and_confidences_are_those_of_the_best_path():
    output = output_of([saying(VOCABULARY, "_aa_b__ a", sure=0.95)])
    [[beam]] = CTCBeamDecoder().decode(output, VOCABULARY, frame_seconds=0.5)
    [[greedy]] = GreedyCTCDecoder().decode(output, VOCABULARY, frame_seconds=0.5)
    assert (beam.text, beam.tokens, beam.words) == (greedy.text, greedy.tokens, greedy.words)
    assert beam.score > greedy.score  # all paths together, not the best one alone


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(0, 1000))
def test_a_batch_is_decoded_like_each_utterance_alone(lengths, seed):
    rows = [posteriors(length, VOCABULARY, seed + i) for i, length in enumerate(lengths)]
    decoder = CTCBeamDecoder(beam_size=5, n_best=2)
    together = decoder.decode(output_of(rows), VOCABULARY)
    for row, hypotheses in zip(rows, together, strict=True):
        [alone] = decoder.decode(output_of([row]), VOCABULARY)
        assert [r.labels for r in hypotheses] == [r.labels for r in alone]
        assert [r.score for r in hypotheses] == pytest.approx([r.score for r in alone], abs=1e-4)


def test_n_best_come_best_first_and_differ():
    [hypotheses] = CTCBeamDecoder(n_best=8).decode(output_of([posteriors(6, VOCABULARY, 3)]), VOCABULARY)
    assert len({hypothesis.labels for hypothesis in hypotheses}) == 8
    assert [r.score for r in hypotheses] == sorted((r.score for r in hypotheses), reverse=True)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_model_that_has_diverged_says_nothing(bad):
    output = output_of([saying(VOCABULARY, "ab"), saying(VOCABULARY, "ab")])
    output.ctc_logits_BSV[0] = bad
    decoded = CTCBeamDecoder().decode(output, VOCABULARY)
    assert [hypotheses[0].text for hypotheses in decoded] == ["", "ab"]


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(UsageError, match="beam_size"):
        CTCBeamDecoder(beam_size=0)
    with pytest.raises(UsageError, match="without spaces"):
        WordScores(hot_words=["new york"])


@pytest.mark.parametrize("engine", ["auto", "builtin", "flashlight"])
def test_a_file_that_names_an_engine_is_still_read(engine):
    decoder = loads(f"{{class: CTCBeamDecoder, beam_size: 7, engine: {engine}}}", CTCBeamDecoder)
    assert decoder.beam_size == 7
    assert "class: CTCBeamDecoder@2\n" in dumps(decoder)
    assert "engine" not in dumps(decoder)


def test_survives_yaml(language_model):
    decoder = CTCBeamDecoder(beam_size=7, words=WordScores(language_model=language_model, weight=0.9))
    restored = loads(dumps(decoder), CTCBeamDecoder)
    assert (restored.beam_size, restored.words.weight) == (7, 0.9)
    assert restored.words.language_model.path == language_model.path
