import math
import sys

import numpy as np
import pytest
from brute_force import Letters, every_ctc_reading, random_log_probs, saying
from brute_force import ctc_output as output_of
from hypothesis import given, settings
from hypothesis import strategies as st

from sonosco_like.decoding import CTCBeamDecoder, GreedyCTCDecoder, NGramLanguageModel, WordScores, flashlight_search
from sonosco_like.errors import MissingPackageError, UsageError
from sonosco_like.records import END, START
from sonosco_like.serialization import dumps, loads

VOCABULARY = Letters("ab ")
PIECES = Letters("ab")
PIECES.symbols[4:] = ["▁a", "b"]
WIDE = 5000
BIGRAMS = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-2.0\t<unk>
0\t<s>\t-0.3
-0.5\t</s>
-0.7\ta\t-0.4
-0.8\tab\t-0.1

\\2-grams:
-0.2\ta ab
-1.5\tab a
-0.3\tab </s>

\\end\\
"""


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("lm") / "bigram.arpa"
    path.write_text(BIGRAMS)
    return NGramLanguageModel(path=path, reader="arpa")


def posteriors(frames, vocabulary, seed, sharpness=2.0):
    """log_probs_SV in which START, END and UNKNOWN have no part."""
    log_probs_SV = random_log_probs(frames, len(vocabulary.symbols), seed, sharpness)
    log_probs_SV[:, [START, END, 3]] = -200.0
    return (log_probs_SV - np.log(np.exp(log_probs_SV).sum(1, keepdims=True))).astype(np.float32)


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
        for labels, p in every_ctc_reading(log_probs_SV).items()
        if p > -100.0
    )
    assert [r.score for r in found] == pytest.approx([-score for score, _ in expected[: len(found)]], abs=1e-4)
    assert found[0].labels in [labels for score, labels in expected if score - expected[0][0] < 1e-4]


@pytest.mark.skipif(not flashlight_search.is_installed(), reason="flashlight-text is not installed")
@settings(max_examples=20)
@given(frames=st.integers(1, 30), seed=st.integers(0, 10_000), beam_size=st.integers(1, 12))
def test_words_score_as_a_language_model_inside_flashlight(language_model, frames, seed, beam_size):
    """Its search asks our scorer label by label: another implementation of everything but the scorer."""
    words = WordScores(language_model=language_model, word_bonus=0.4, hot_words=["ab"], hot_word_bonus=2.0)
    log_probs_SV = posteriors(frames, VOCABULARY, seed)
    [[reading]] = CTCBeamDecoder(beam_size=beam_size, words=words).decode(output_of([log_probs_SV]), VOCABULARY)
    score, labels = flashlight_with_words(log_probs_SV, beam_size, words)
    assert reading.score == pytest.approx(score, abs=1e-3)
    assert reading.labels == labels


def flashlight_with_words(log_probs_SV, beam_size, words):
    from flashlight.lib.text.decoder import LM, CriterionType, LexiconFreeDecoder, LexiconFreeDecoderOptions, LMState

    class Words(LM):
        def __init__(self):
            super().__init__()
            self.scorer, self.states, self.kept = words.scorer(VOCABULARY.symbols), {}, []

        def start(self, start_with_nothing):
            return self.keep(LMState(), self.scorer.start())

        def score(self, state, label):
            before = self.states[state]
            after = self.keep(state.child(label), self.scorer.extend(before, label))
            return after, self.scorer.next_scores(before)[label]

        def finish(self, state):
            return state, self.scorer.finish(self.states[state])

        def keep(self, state, word_state):
            self.states.setdefault(state, word_state)
            self.kept.append(state)
            return state

    frames, labels = log_probs_SV.shape
    emissions_SV = np.array(log_probs_SV, np.float32)
    emissions_SV[:, [START, END]] = -np.inf
    options = LexiconFreeDecoderOptions(beam_size, labels, 50.0, 1.0, 0.0, True, CriterionType.CTC)
    lm = Words()
    best = LexiconFreeDecoder(options, lm, 0, 0, []).decode(emissions_SV.ctypes.data, frames, labels)[0]
    path = best.tokens[1:-1]
    return best.score, tuple(b for a, b in zip([0, *path], path, strict=False) if b not in (0, a))


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


@pytest.mark.parametrize("engine", ["builtin", "flashlight"])
def test_times_and_confidences_are_those_of_the_best_path(engine):
    if engine == "flashlight" and not flashlight_search.is_installed():
        pytest.skip("flashlight-text is not installed")
    output = output_of([saying(VOCABULARY, "_aa_b__ a", sure=0.95)])
    [[beam]] = CTCBeamDecoder(engine=engine).decode(output, VOCABULARY, frame_seconds=0.5)
    [[greedy]] = GreedyCTCDecoder().decode(output, VOCABULARY, frame_seconds=0.5)
    assert (beam.text, beam.tokens, beam.words) == (greedy.text, greedy.tokens, greedy.words)
    assert beam.score > greedy.score  # all paths together, not the best one alone


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(0, 1000))
def test_a_batch_is_decoded_like_each_utterance_alone(lengths, seed):
    rows = [posteriors(length, VOCABULARY, seed + i) for i, length in enumerate(lengths)]
    decoder = CTCBeamDecoder(beam_size=5, n_best=2)
    together = decoder.decode(output_of(rows), VOCABULARY)
    for row, readings in zip(rows, together, strict=True):
        [alone] = decoder.decode(output_of([row]), VOCABULARY)
        assert [r.labels for r in readings] == [r.labels for r in alone]
        assert [r.score for r in readings] == pytest.approx([r.score for r in alone], abs=1e-4)


def test_n_best_come_best_first_and_differ():
    [readings] = CTCBeamDecoder(n_best=8).decode(output_of([posteriors(6, VOCABULARY, 3)]), VOCABULARY)
    assert len({reading.labels for reading in readings}) == 8
    assert [r.score for r in readings] == sorted((r.score for r in readings), reverse=True)


@pytest.mark.parametrize("engine", ["builtin", "flashlight"])
@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_model_that_has_diverged_says_nothing(engine, bad):
    if engine == "flashlight" and not flashlight_search.is_installed():
        pytest.skip("flashlight-text is not installed")
    output = output_of([saying(VOCABULARY, "ab"), saying(VOCABULARY, "ab")])
    output.ctc_logits_BSV[0] = bad
    decoded = CTCBeamDecoder(engine=engine).decode(output, VOCABULARY)
    assert [readings[0].text for readings in decoded] == ["", "ab"]


@pytest.mark.skipif(not flashlight_search.is_installed(), reason="flashlight-text is not installed")
def test_both_engines_give_the_same_hypotheses():
    output = output_of([posteriors(10 + seed, VOCABULARY, seed) for seed in range(4)])
    with_it = CTCBeamDecoder(n_best=3, engine="flashlight").decode(output, VOCABULARY)
    without = CTCBeamDecoder(n_best=3).decode(output, VOCABULARY)
    for one, other in zip(with_it, without, strict=True):
        assert [(r.labels, r.tokens) for r in one] == [(r.labels, r.tokens) for r in other]
        assert [r.score for r in one] == pytest.approx([r.score for r in other], rel=1e-9)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(UsageError, match="beam_size"):
        CTCBeamDecoder(beam_size=0)
    with pytest.raises(UsageError, match="without spaces"):
        WordScores(hot_words=["new york"])
    with pytest.raises(UsageError, match="engine: builtin"):
        CTCBeamDecoder(engine="flashlight", words=WordScores(word_bonus=1.0))


@pytest.mark.skipif(not flashlight_search.is_installed(), reason="flashlight-text is not installed")
def test_flashlight_is_left_only_what_it_decodes_repeatably(monkeypatch):
    asked = []

    def remember(log_probs_SV, *limits):
        asked.append(len(log_probs_SV))
        return flashlight_search.flashlight_beam_search(log_probs_SV, *limits)

    monkeypatch.setattr("sonosco_like.decoding.ctc_beam.flashlight_beam_search", remember)
    clear, equal = posteriors(7, VOCABULARY, 1), saying(VOCABULARY, "ab")  # `saying` leaves all other letters equal
    for rows in ([clear], [clear] * 40, [equal], [clear, equal]):
        CTCBeamDecoder().decode(output_of(rows), VOCABULARY)
    CTCBeamDecoder(words=WordScores(word_bonus=1.0)).decode(output_of([clear]), VOCABULARY)
    CTCBeamDecoder(beam_size=500).decode(output_of([clear]), VOCABULARY)
    assert asked == [7]


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flashlight.lib.text.decoder", None)
    with pytest.raises(MissingPackageError, match="flashlight-text"):
        CTCBeamDecoder(engine="flashlight").decode(output_of([saying(VOCABULARY, "a")]), VOCABULARY)


def test_survives_yaml(language_model):
    decoder = CTCBeamDecoder(beam_size=7, words=WordScores(language_model=language_model, weight=0.9))
    restored = loads(dumps(decoder), CTCBeamDecoder)
    assert (restored.beam_size, restored.words.weight) == (7, 0.9)
    assert restored.words.language_model.path == language_model.path
