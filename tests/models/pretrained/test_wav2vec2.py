"""`Wav2Vec2Encoder` against the reference implementation: outputs, gradients, padding, names."""

from __future__ import annotations

import pytest
import torch
from foreign_weights import save_foreign, wav2vec2

from sonosco_like.errors import UsageError
from sonosco_like.models import Recogniser, Wav2Vec2Encoder
from sonosco_like.models.pretrained import read_weights
from sonosco_like.serialization import dumps, loads

VARIANTS = [
    (kind, norm, norm_first)
    for kind in ("Wav2Vec2Model", "HubertModel")
    for norm in ("group", "layer")
    for norm_first in (False, True)
]
# A group norm is computed over the real frames by sums, so it agrees up to rounding.
CLOSE = {"layer": {"atol": 0.0, "rtol": 0.0}, "group": {"atol": 1e-5, "rtol": 0.0}}


@pytest.fixture(params=VARIANTS, ids=lambda each: "-".join(map(str, each)))
def pair(request, tmp_path):
    """(the reference, our encoder with its weights, how close they are)."""
    kind, norm, norm_first = request.param
    reference = wav2vec2(kind, feat_extract_norm=norm, do_stable_layer_norm=norm_first)
    return reference, built(save_foreign(reference, tmp_path / "weights")), CLOSE[norm]


def built(folder) -> Wav2Vec2Encoder:
    weights = read_weights(folder)
    encoder = weights.encoder
    encoder.build(1)
    encoder.load_state_dict(weights.tensors)
    return encoder.eval()


def waveforms(*lengths: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.nn.utils.rnn.pad_sequence(
        [torch.randn(length, generator=generator) for length in lengths], batch_first=True
    )


def test_unpadded_outputs_are_those_of_the_reference(pair):
    reference, encoder, close = pair
    samples_BN = waveforms(3000, 3000)
    with torch.no_grad():
        expected_BSD = reference(samples_BN).last_hidden_state
        got_BSD, lengths_B = encoder(samples_BN[:, :, None], torch.tensor([3000, 3000]))
    assert lengths_B.tolist() == [expected_BSD.shape[1]] * 2
    torch.testing.assert_close(got_BSD, expected_BSD, **close)


def test_gradients_are_those_of_the_reference(pair):
    reference, encoder, _ = pair
    samples_BN = waveforms(2000)
    expected_BSD = reference(samples_BN).last_hidden_state
    direction_BSD = torch.randn(expected_BSD.shape, generator=torch.Generator().manual_seed(1))
    (expected_BSD * direction_BSD).sum().backward()
    (encoder(samples_BN[:, :, None], torch.tensor([2000]))[0] * direction_BSD).sum().backward()
    own = dict(encoder.named_parameters())
    compared = 0
    for name, parameter in reference.named_parameters():
        if parameter.grad is not None:
            mine = own[own_names(name)].grad
            assert (mine - parameter.grad).abs().max() <= 1e-6 * parameter.grad.abs().max().clamp(min=1.0), name
            compared += 1
    assert compared == len(own) - 1  # all but the vector for masked frames


def own_names(name: str) -> str:
    from sonosco_like.models.pretrained.wav2vec2 import own_name

    return str(own_name(name))


def test_an_utterance_has_the_same_output_alone_and_in_a_batch(pair):
    _, encoder, _ = pair
    lengths = [3000, 1700, 60, 7]  # the last ones are shorter than a frame of the convolutions
    samples_BN = waveforms(*lengths)
    samples_BN[1, 1700:] = 9.0  # what stands in the padding must not matter
    with torch.no_grad():
        together_BSD, lengths_B = encoder(samples_BN[:, :, None], torch.tensor(lengths))
        for row, length in enumerate(lengths):
            alone_1SD, _ = encoder(samples_BN[row : row + 1, :length, None], torch.tensor([length]))
            assert alone_1SD.shape[1] == lengths_B[row]
            torch.testing.assert_close(together_BSD[row, : lengths_B[row]], alone_1SD[0], atol=1e-5, rtol=1e-5)
            assert together_BSD[row, lengths_B[row] :].abs().sum() == 0


@pytest.mark.parametrize(("norm", "largest"), [("layer", (0.0, 1e-4)), ("group", (0.1, 9.0))])
def test_padding_changes_the_reference_where_it_does_not_change_ours(norm, largest):
    """What docs/fine-tuning.md says: with a group norm, the reference hears an utterance in a batch as another one."""
    reference = wav2vec2(feat_extract_norm=norm)
    samples_BN = waveforms(3000, 1700)
    with torch.no_grad():
        alone_1SD = reference(samples_BN[1:, :1700]).last_hidden_state
        mask_BN = torch.arange(3000) < torch.tensor([[3000], [1700]])
        together_BSD = reference(samples_BN, attention_mask=mask_BN.long()).last_hidden_state
    difference = (together_BSD[1, : alone_1SD.shape[1]] - alone_1SD[0]).abs().max()
    assert largest[0] <= difference <= largest[1]


def test_lengths_are_known_before_the_encoder_runs():
    encoder = Wav2Vec2Encoder()
    assert encoder.least_samples == 400
    assert encoder.frame_reduction == 320
    assert encoder.output_lengths(torch.tensor([1, 400, 719, 720, 16000])).tolist() == [1, 1, 1, 2, 49]


def test_spans_are_hidden_in_training_only():
    encoder = tiny(time_mask_share=0.3, time_mask_length=5, feature_mask_share=0.3, feature_mask_length=4, dropout=0.0,
                   attention_dropout=0.0)  # fmt: skip
    frames_BSD = torch.randn(2, 40, 32)
    torch.manual_seed(0)
    masked_BSD = encoder._mask(frames_BSD, torch.tensor([40, 20]))
    torch.manual_seed(0)
    assert torch.equal(encoder._mask(frames_BSD, torch.tensor([40, 20])), masked_BSD)  # by the generator alone
    hidden_BS = (masked_BSD == encoder.mask_embedding).sum(2) > 16  # channels may be hidden in them too
    assert 5 <= hidden_BS[0].sum() <= 20
    assert not hidden_BS[1, 20:].any()
    assert ((masked_BSD == 0).all(1).sum(1) >= 4).all()
    samples_BNF = waveforms(2000)[:, :, None]
    encoder.eval()
    assert torch.equal(*(encoder(samples_BNF, torch.tensor([2000]))[0] for _ in range(2)))
    encoder.train()
    assert not torch.equal(*(encoder(samples_BNF, torch.tensor([2000]))[0] for _ in range(2)))


def test_a_short_utterance_is_masked_no_more_than_it_is_long():
    encoder = tiny(time_mask_share=0.5, time_mask_length=10)
    frames_BSD = torch.randn(1, 4, 32)
    assert torch.equal(encoder._mask(frames_BSD, torch.tensor([4])), frames_BSD)


def tiny(**fields) -> Wav2Vec2Encoder:
    encoder = Wav2Vec2Encoder(
        size=32, layers=1, heads=2, inner_size=32, channels=[16, 16], kernels=[10, 4], strides=[5, 4],
        position_kernel=8, position_groups=4, **fields,
    )  # fmt: skip
    encoder.build(1)
    return encoder


def test_a_config_builds_it_without_any_folder():
    model = loads(
        "{class: Recogniser, vocabulary_size: 8, features: 1, encoder: {class: Wav2Vec2Encoder, size: 32, layers: 1,"
        " heads: 2, inner_size: 32, norm: layer}}",
        Recogniser,
    )
    assert model.encoder.transformer.layers[0].attention.q_proj.weight.shape == (32, 32)
    assert "norm: layer" in dumps(model, state=False)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kernels": [10, 3]}, "one number for each convolution, got 7, 2, 7"),
        ({"size": 30, "heads": 4}, "multiple of `heads`"),
        ({"layers": 0}, "at least 1"),
        ({"dropout": 1.0}, "less than 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(fields, expected):
    with pytest.raises(UsageError, match=expected):
        Wav2Vec2Encoder(**fields)


def test_features_that_are_not_samples_are_refused():
    with pytest.raises(UsageError, match=r"features: \{class: Waveform\}"):
        Wav2Vec2Encoder().build(80)
