"""Decoders on the real models and tokenizers: what the searches say must be what the models say."""

import pytest
import torch

from sonosco_like.data.text import Alphabet
from sonosco_like.decoding import (
    AttentionBeamDecoder,
    CTCBeamDecoder,
    GreedyAttentionDecoder,
    GreedyCTCDecoder,
    default_decoder,
)
from sonosco_like.losses import CrossEntropyLoss, CTCLoss
from sonosco_like.models import LAS, TDS, Attention, KeyValueDecoder, Listener, Speller, TDSEncoder, TDSGroup
from sonosco_like.records import Batch

VOCABULARY = Alphabet(characters="abc ")
COMMON = {"vocabulary_size": VOCABULARY.size, "features": 8, "ctc": True}
FRAMES = [40, 23]


def las():
    speller = Speller(hidden_size=24, embedding_size=8, attention=Attention(size=16, heads=2, kind="location"))
    return LAS(**COMMON, encoder=Listener(hidden_size=12, layers=2), decoder=speller)


def tds():
    encoder = TDSEncoder(groups=[TDSGroup(channels=2, blocks=1, kernel=5)], dropout=0.0)
    return TDS(**COMMON, encoder=encoder, attention_decoder=KeyValueDecoder(size=24))


@pytest.fixture(params=[las, tds])
def model(request):
    torch.manual_seed(3)
    return request.param().eval()


def batch_with(label_rows):
    generator = torch.Generator().manual_seed(0)
    longest = max(1, *map(len, label_rows))
    features_BTF = torch.randn(2, max(FRAMES), 8, generator=generator)
    features_BTF[1, FRAMES[1] :] = 0.0
    return Batch(
        features_BTF,
        torch.tensor(FRAMES),
        torch.tensor([[*row, *[0] * (longest - len(row))] for row in label_rows]),
        torch.tensor([len(row) for row in label_rows]),
        ids=["one", "two"],
    )


def losses(model, label_rows, loss):
    """The summed loss of each utterance's labels, as training would compute it."""
    batch = batch_with(label_rows)
    with torch.no_grad():
        output = model(batch)
    sums = []
    for row in range(2):
        labels_1U = batch.labels_BU[row : row + 1]
        alone = Batch(batch.features_BTF[row : row + 1], batch.feature_lengths_B[row : row + 1], labels_1U,
                      batch.label_lengths_B[row : row + 1])  # fmt: skip
        part = type(output)(
            output.encoded_BSD[row : row + 1],
            output.encoded_lengths_B[row : row + 1],
            output.ctc_logits_BSV[row : row + 1],
            output.attention_logits_BUV[row : row + 1],
        )
        sums.append(float(loss(part, alone) * loss.weight(alone)))
    return sums


def output_of(model):
    with torch.no_grad():
        return model(batch_with([[], []]))


@pytest.mark.parametrize(
    "search",
    [GreedyAttentionDecoder(max_length_ratio=0.3), AttentionBeamDecoder(length_power=0.0, max_length_ratio=0.3)],
)
def test_attention_scores_are_the_negative_cross_entropy_in_training(model, search):
    decoded = search.decode(output_of(model), VOCABULARY, model=model)
    expected = losses(model, [list(hypotheses[0].labels) for hypotheses in decoded], CrossEntropyLoss())
    assert [-hypotheses[0].score for hypotheses in decoded] == pytest.approx(expected, rel=1e-3)


def test_ctc_beam_scores_are_the_negative_ctc_loss_in_training(model):
    model.ctc_output.weight.data *= 10.0  # as sure as a trained model, so that the beam holds what matters
    model.ctc_output.bias.data[[1, 2]] = -500.0  # and as sure that START and END are never said
    decoded = CTCBeamDecoder(beam_size=500, beam_threshold=100.0).decode(output_of(model), VOCABULARY)
    expected = losses(model, [list(hypotheses[0].labels) for hypotheses in decoded], CTCLoss())
    assert [-hypotheses[0].score for hypotheses in decoded] == pytest.approx(expected, rel=1e-2)
    for found, bound in zip(decoded, expected, strict=True):
        assert found[0].score <= -bound + 1e-3  # a beam can miss paths, never invent probability


def test_without_a_choice_the_attention_decoder_has_the_last_word(model):
    assert isinstance(default_decoder(model), GreedyAttentionDecoder)
    model.attention_decoder = None
    assert isinstance(default_decoder(model), GreedyCTCDecoder)


def test_a_beam_never_finds_less_than_greedy(model):
    output = output_of(model)
    settings = {"max_length_ratio": 0.5}
    greedy = GreedyAttentionDecoder(**settings).decode(output, VOCABULARY, model=model)
    beam = AttentionBeamDecoder(beam_size=32, length_power=0.0, **settings).decode(output, VOCABULARY, model=model)
    for [one], [other] in zip(greedy, beam, strict=True):
        assert other.score >= one.score - 1e-4


def test_joint_score_is_the_weighted_sum_of_both(model):
    model.ctc_output.bias.data[[1, 2]] = -50.0
    search = AttentionBeamDecoder(length_power=0.0, ctc_weight=0.4, max_length_ratio=0.3)
    decoded = search.decode(output_of(model), VOCABULARY, model=model)
    rows = [list(hypotheses[0].labels) for hypotheses in decoded]
    ctc, attention = losses(model, rows, CTCLoss()), losses(model, rows, CrossEntropyLoss())
    expected = [0.4 * c + 0.6 * a for c, a in zip(ctc, attention, strict=True)]
    assert [-hypotheses[0].score for hypotheses in decoded] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "search", [GreedyCTCDecoder(), CTCBeamDecoder(), GreedyAttentionDecoder(), AttentionBeamDecoder(ctc_weight=0.3)]
)
def test_every_decoder_reads_every_model_with_words_and_times_that_fit_the_text(model, search):
    decoded = search.decode(output_of(model), VOCABULARY, model=model, frame_seconds=0.04)
    for [hypothesis, *_], frames in zip(decoded, model.output_lengths(torch.tensor(FRAMES)).tolist(), strict=True):
        assert [word.text for word in hypothesis.words] == hypothesis.text.split()
        starts = [token.start for token in hypothesis.tokens]
        assert starts == sorted(starts)
        assert all(0.0 <= token.start < token.end <= frames * 0.04 + 1e-9 for token in hypothesis.tokens)
        assert all(0.0 <= token.confidence <= 1.0 for token in hypothesis.tokens)
