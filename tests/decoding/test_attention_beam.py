import pytest
import torch
from brute_force import Letters, every_ctc_text, random_log_probs
from hypothesis import given, settings
from hypothesis import strategies as st
from table_decoder import TableDecoder, TableModel, every_text

from sonosco_like.decoding import AttentionBeamDecoder, GreedyAttentionDecoder, WordScores
from sonosco_like.errors import UsageError
from sonosco_like.records import BLANK, END, START, Output
from sonosco_like.serialization import dumps, loads

VOCABULARY = Letters("a ")
SIZE = len(VOCABULARY.symbols)
WIDE = 300


def output_of(lengths, ctc_rows=None):
    longest = max(lengths)
    logits_BSV = None
    if ctc_rows is not None:
        logits_BSV = torch.zeros(len(lengths), longest, SIZE)
        for row, log_probs_SV in enumerate(ctc_rows):
            logits_BSV[row, : len(log_probs_SV)] = torch.as_tensor(log_probs_SV)
    return Output(torch.zeros(len(lengths), longest, 1), torch.tensor(lengths), ctc_logits_BSV=logits_BSV)


def ctc_rows_of(lengths, seed):
    """Posteriors in which START and END have no part, as in training."""
    rows = [torch.as_tensor(random_log_probs(length, SIZE, seed + i)) for i, length in enumerate(lengths)]
    for row in rows:
        row[:, [START, END]] = -1e4
    return [row.log_softmax(-1).numpy() for row in rows]


def best_by_enumeration(decoder, utterance, limit, score):
    scored = [(score(decoder.log_prob(utterance, labels), labels), labels) for labels in every_text(SIZE, limit)]
    return sorted(scored, key=lambda pair: -pair[0])


lengths_of_batches = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@settings(max_examples=25)
@given(lengths_of_batches, st.integers(0, 1000), st.sampled_from([0.0, 0.6, 1.0]))
def test_a_wide_beam_finds_the_exact_best_texts_and_their_scores(lengths, seed, power):
    decoder = TableDecoder.random(len(lengths), 5, SIZE, max(lengths), seed)
    search = AttentionBeamDecoder(beam_size=WIDE, n_best=3, length_power=power)
    found = search.decode(output_of(lengths), VOCABULARY, model=TableModel(decoder))
    for utterance, (limit, hypotheses) in enumerate(zip(lengths, found, strict=True)):
        expected = best_by_enumeration(decoder, utterance, limit, lambda p, labels: p / (len(labels) + 1) ** power)
        assert [r.labels for r in hypotheses] == [labels for _, labels in expected[:3]]
        assert [r.score for r in hypotheses] == pytest.approx([score for score, _ in expected[:3]], rel=1e-4)


@settings(max_examples=20)
@given(lengths_of_batches, st.integers(0, 1000), st.sampled_from([0.2, 0.7, 1.0]))
def test_ctc_fusion_is_exact(lengths, seed, share):
    decoder = TableDecoder.random(len(lengths), 5, SIZE, max(lengths), seed)
    ctc_rows = ctc_rows_of(lengths, seed)
    search = AttentionBeamDecoder(beam_size=WIDE, n_best=2, length_power=0.0, ctc_weight=share)
    found = search.decode(output_of(lengths, ctc_rows), VOCABULARY, model=TableModel(decoder))
    for utterance, (limit, hypotheses) in enumerate(zip(lengths, found, strict=True)):
        ctc = every_ctc_text(ctc_rows[utterance])
        expected = best_by_enumeration(
            decoder, utterance, limit, lambda p, labels, ctc=ctc: (1 - share) * p + share * ctc.get(labels, -1e9)
        )
        assert [r.labels for r in hypotheses] == [labels for _, labels in expected[:2]]
        assert [r.score for r in hypotheses] == pytest.approx([score for score, _ in expected[:2]], rel=1e-4)


def word_score(labels, bonus, hot):
    words = VOCABULARY.decode(labels).split()
    return sum(bonus + (3.0 if word == hot else 0.0) for word in words)


@settings(max_examples=20)
@given(lengths_of_batches, st.integers(0, 1000), st.sampled_from([-2.0, 0.0, 1.5]), st.sampled_from([0.0, 1.0]))
def test_word_bonus_and_hot_words_are_exact(lengths, seed, bonus, power):
    decoder = TableDecoder.random(len(lengths), 5, SIZE, max(lengths), seed)
    words = WordScores(word_bonus=bonus, hot_words=["aa"], hot_word_bonus=3.0)
    search = AttentionBeamDecoder(beam_size=WIDE, length_power=power, words=words)
    found = search.decode(output_of(lengths), VOCABULARY, model=TableModel(decoder))
    for utterance, (limit, [hypothesis]) in enumerate(zip(lengths, found, strict=True)):
        score, _ = best_by_enumeration(
            decoder,
            utterance,
            limit,
            lambda p, labels: (p + word_score(labels, bonus, "aa")) / (len(labels) + 1) ** power,
        )[0]
        assert hypothesis.score == pytest.approx(score, rel=1e-4)


@settings(max_examples=15)
@given(lengths_of_batches, st.integers(0, 1000))
def test_coverage_counts_the_frames_that_were_attended_to(lengths, seed):
    decoder = TableDecoder.random(len(lengths), 5, SIZE, max(lengths), seed)
    decoder.restless = True
    search = AttentionBeamDecoder(beam_size=WIDE, length_power=1.0, coverage_weight=0.4)
    found = search.decode(output_of(lengths), VOCABULARY, model=TableModel(decoder))
    for utterance, (limit, [hypothesis]) in enumerate(zip(lengths, found, strict=True)):
        score, labels = best_by_enumeration(
            decoder,
            utterance,
            limit,
            lambda p, labels: p / (len(labels) + 1) + 0.4 * decoder.covered_frames(labels),
        )[0]
        assert hypothesis.labels == labels
        assert hypothesis.score == pytest.approx(score, rel=1e-4)


@settings(max_examples=15)
@given(lengths_of_batches, st.integers(0, 1000), st.integers(1, 6))
def test_a_batch_is_decoded_like_each_utterance_alone(lengths, seed, beam_size):
    decoder = TableDecoder.random(len(lengths), 5, SIZE, max(lengths), seed)
    ctc_rows = ctc_rows_of(lengths, seed)
    search = AttentionBeamDecoder(beam_size=beam_size, ctc_weight=0.3)
    together = search.decode(output_of(lengths, ctc_rows), VOCABULARY, model=TableModel(decoder))
    for utterance, length in enumerate(lengths):
        alone = TableDecoder(decoder.table_BUVV[utterance : utterance + 1], length)
        output = output_of([length], [ctc_rows[utterance]])
        [[hypothesis]] = search.decode(output, VOCABULARY, model=TableModel(alone))
        assert together[utterance][0].labels == hypothesis.labels
        assert together[utterance][0].score == pytest.approx(hypothesis.score, rel=1e-4)


def follow_table(*steps):
    """A decoder for one utterance that gives each step's labels these probabilities, whatever came before."""
    table_BUVV = torch.full((1, len(steps), SIZE, SIZE), -torch.inf)
    for position, probabilities in enumerate(steps):
        for label, probability in probabilities.items():
            table_BUVV[0, position, :, label] = torch.tensor(probability).log()
    return TableModel(TableDecoder(table_BUVV, frames=8))


def test_an_end_that_is_not_likely_enough_is_not_taken():
    model = follow_table({4: 0.6, END: 0.4}, {4: 0.3, END: 0.7})
    free = AttentionBeamDecoder(beam_size=4, length_power=0.0, n_best=4)
    assert () in [hypothesis.labels for hypothesis in free.decode(output_of([1]), VOCABULARY, model=model)[0]]
    strict = AttentionBeamDecoder(beam_size=4, length_power=0.0, n_best=4, end_threshold=1.5)
    assert [hypothesis.labels for hypothesis in strict.decode(output_of([1]), VOCABULARY, model=model)[0]] == [(4,)]


def test_the_search_goes_on_while_a_longer_text_can_still_win():
    model = follow_table({END: 0.5, 5: 0.2, BLANK: 0.3}, {END: 1e-9, 4: 1.0}, {END: 1e-9, 4: 1.0}, {END: 1.0})
    [[hypothesis]] = AttentionBeamDecoder(beam_size=2).decode(output_of([8]), VOCABULARY, model=model)
    assert hypothesis.labels == (5, 4, 4)
    model = follow_table({END: 0.9, 4: 0.1}, {END: 1.0})
    many = WordScores(word_bonus=4.0)
    [[hypothesis]] = AttentionBeamDecoder(beam_size=2, words=many).decode(output_of([8]), VOCABULARY, model=model)
    assert hypothesis.labels == (4,)


def test_a_decoder_that_never_ends_is_cut_off_at_the_limit():
    model = follow_table({4: 1.0 - 1e-6, END: 1e-6})
    for search in (AttentionBeamDecoder(max_length_ratio=1.5), GreedyAttentionDecoder(max_length_ratio=1.5)):
        [[hypothesis]] = search.decode(output_of([4]), VOCABULARY, model=model)
        assert hypothesis.labels == (4,) * 6


def test_blank_and_start_are_never_written():
    model = follow_table({BLANK: 0.5, START: 0.3, 4: 0.15, END: 0.05}, {END: 1.0})
    for search in (AttentionBeamDecoder(), GreedyAttentionDecoder()):
        [[hypothesis]] = search.decode(output_of([3]), VOCABULARY, model=model)
        assert hypothesis.labels == (4,)


@given(lengths_of_batches, st.integers(0, 1000))
def test_greedy_takes_the_best_label_of_every_step(lengths, seed):
    decoder = TableDecoder.random(len(lengths), 5, SIZE, max(lengths), seed)
    found = GreedyAttentionDecoder().decode(output_of(lengths), VOCABULARY, model=TableModel(decoder))
    for utterance, (limit, [hypothesis]) in enumerate(zip(lengths, found, strict=True)):
        labels, last = [], START
        while len(labels) < limit:
            row_V = decoder.table_BUVV[utterance, len(labels), last].clone()
            row_V[[BLANK, START]] = -torch.inf
            last = int(row_V.argmax())
            if last == END:
                break
            labels.append(last)
        assert list(hypothesis.labels) == labels
        assert hypothesis.score == pytest.approx(decoder.log_prob(utterance, labels), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("search", [AttentionBeamDecoder(), GreedyAttentionDecoder()])
def test_times_are_where_attention_was_and_confidences_the_models_own(search):
    model = follow_table({4: 0.9, END: 0.1}, {4: 0.8, END: 0.2}, {5: 0.7, END: 0.3}, {4: 0.9, END: 0.1}, {END: 1.0})
    [[hypothesis]] = search.decode(output_of([8]), VOCABULARY, model=model, frame_seconds=0.5)
    assert hypothesis.text == "aa a"
    assert [token.start for token in hypothesis.tokens] == [0.0, 0.5, 1.0, 1.5]
    assert [token.confidence for token in hypothesis.tokens] == pytest.approx([0.9, 0.8, 0.7, 0.9])
    assert [(word.text, word.start, word.end) for word in hypothesis.words] == [("aa", 0.0, 1.0), ("a", 1.5, 2.0)]


@pytest.mark.parametrize("search", [AttentionBeamDecoder(), GreedyAttentionDecoder()])
@pytest.mark.parametrize("model", [None, TableModel(None)])
def test_a_model_without_attention_is_refused_with_a_remedy(search, model):
    with pytest.raises(UsageError, match="GreedyCTCDecoder"):
        search.decode(output_of([2]), VOCABULARY, model=model)


@pytest.mark.parametrize(
    "settings",
    [{"beam_size": 0}, {"n_best": 9}, {"ctc_weight": 2.0}, {"length_power": -1.0}, {"max_length_ratio": 0.0}],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        AttentionBeamDecoder(**settings)


def test_survives_yaml():
    decoder = AttentionBeamDecoder(beam_size=3, ctc_weight=0.3, words=WordScores(hot_words=["ja"]))
    restored = loads(dumps(decoder), AttentionBeamDecoder)
    assert (restored.beam_size, restored.ctc_weight, restored.words.hot_words) == (3, 0.3, ["ja"])
