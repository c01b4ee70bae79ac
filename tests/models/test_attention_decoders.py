"""What holds for every attention decoder: stepping is teacher forcing one label at a time, and rows are independent."""

from __future__ import annotations

import torch

from sonosco_like.models import AttentionDecoder, DecoderState
from sonosco_like.models.attention import prepend_start


def encoded(model, batch):
    encoded_BSD, lengths_B = model.eval().encode(batch.features_BTF, batch.feature_lengths_B)
    return encoded_BSD.detach(), lengths_B


def test_steps_give_what_teacher_forcing_gives(attention_model, make_batch):
    decoder = attention_model.attention_decoder
    batch = make_batch([40, 33], [4, 3])
    encoded_BSD, lengths_B = encoded(attention_model, batch)
    logits_BUV, attention_BHUS = decoder(encoded_BSD, lengths_B, batch.labels_BU, batch.label_lengths_B)
    state = decoder.start(encoded_BSD, lengths_B)
    assert isinstance(decoder, AttentionDecoder)
    assert isinstance(state, DecoderState)
    for position, labels_B in enumerate(prepend_start(batch.labels_BU).unbind(1)):
        log_probs_BV, attention_BHS, state = decoder.step(labels_B, state)
        torch.testing.assert_close(log_probs_BV, logits_BUV[:, position].log_softmax(-1), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(attention_BHS, attention_BHUS[:, :, position], atol=1e-5, rtol=1e-5)


def test_selected_rows_go_on_as_the_rows_they_came_from(attention_model, make_batch):
    decoder = attention_model.attention_decoder
    encoded_BSD, lengths_B = encoded(attention_model, make_batch([40, 33], [4, 3]))
    _, _, state = decoder.step(torch.tensor([1, 1]), decoder.start(encoded_BSD, lengths_B))
    expected_BV = decoder.step(torch.tensor([5, 6]), state)[0]
    index_N = torch.tensor([1, 0, 0, 1, 1])
    beams = state.select(index_N)
    torch.testing.assert_close(decoder.step(torch.tensor([5, 6])[index_N], beams)[0], expected_BV[index_N])
    swapped = beams.select(torch.tensor([3, 2, 1, 0, 0]))  # within their utterances
    torch.testing.assert_close(decoder.step(torch.tensor([6, 5, 5, 6, 6]), swapped)[0], expected_BV[[1, 0, 0, 1, 1]])


def test_a_step_leaves_the_state_before_it_as_it_was(attention_model, make_batch):
    decoder = attention_model.attention_decoder
    encoded_BSD, lengths_B = encoded(attention_model, make_batch([40, 33], [4, 3]))
    state = decoder.start(encoded_BSD, lengths_B)
    first = decoder.step(torch.tensor([1, 1]), state)[0]
    decoder.step(torch.tensor([7, 7]), state)
    assert torch.equal(decoder.step(torch.tensor([1, 1]), state)[0], first)
