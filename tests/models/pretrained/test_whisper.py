"""`WhisperEncoder` against the reference implementation: outputs, gradients, cut positions, padding, names."""

from __future__ import annotations

import pytest
import torch
from foreign_weights import save_foreign, whisper

from sonosco_like.errors import UsageError
from sonosco_like.models import Recogniser, WhisperEncoder
from sonosco_like.models.pretrained import read_weights
from sonosco_like.models.pretrained.whisper import own_name
from sonosco_like.serialization import dumps, loads

KINDS = ["WhisperModel", "WhisperForConditionalGeneration"]
FRAMES = 200  # of the tiny reference, which has 100 positions


@pytest.fixture(params=KINDS)
def pair(request, tmp_path):
    """(the encoder of the reference, ours with its weights)."""
    reference = whisper(request.param)
    encoder = built(save_foreign(reference, tmp_path / "weights"))
    return reference.get_encoder(), encoder


def built(folder) -> WhisperEncoder:
    weights = read_weights(folder)
    encoder = weights.encoder
    encoder.build(weights.features["mels"])
    encoder.load_state_dict(weights.tensors)
    return encoder.eval()


def features(batch: int, frames: int) -> torch.Tensor:
    return torch.randn(batch, frames, 80, generator=torch.Generator().manual_seed(3))


def test_outputs_are_those_of_the_reference(pair):
    reference, encoder = pair
    features_BTF = features(2, FRAMES)
    with torch.no_grad():
        expected_BSD = reference(features_BTF.transpose(1, 2)).last_hidden_state
        got_BSD, lengths_B = encoder(features_BTF, torch.tensor([FRAMES, FRAMES]))
    assert lengths_B.tolist() == [FRAMES // 2] * 2
    torch.testing.assert_close(got_BSD, expected_BSD, atol=1e-6, rtol=0.0)


def test_gradients_are_those_of_the_reference(pair):
    reference, encoder = pair
    features_BTF = features(1, FRAMES)
    expected_BSD = reference(features_BTF.transpose(1, 2)).last_hidden_state
    direction_BSD = torch.randn(expected_BSD.shape, generator=torch.Generator().manual_seed(1))
    (expected_BSD * direction_BSD).sum().backward()
    (encoder(features_BTF, torch.tensor([FRAMES]))[0] * direction_BSD).sum().backward()
    theirs = {own_name(f"encoder.{name}"): each for name, each in reference.named_parameters()}
    own = dict(encoder.named_parameters())
    assert own.keys() == theirs.keys() - {"embed_positions"}  # sines, which neither of the two learns
    for name, parameter in own.items():
        expected = theirs[name].grad
        assert (parameter.grad - expected).abs().max() <= 1e-6 * expected.abs().max().clamp(min=1.0), name


@pytest.mark.parametrize("frames", [2, 120, 140])
def test_a_shorter_utterance_has_the_outputs_of_a_reference_with_fewer_positions(tmp_path, frames):
    """The reference takes no other length than that of its positions, so one with fewer positions is the judge."""
    whole = whisper()
    positions = frames // 2
    state = whole.state_dict()
    state["encoder.embed_positions.weight"] = state["encoder.embed_positions.weight"][:positions]
    cut = whisper(max_source_positions=positions)
    cut.load_state_dict(state)
    encoder = built(save_foreign(whole, tmp_path / "weights"))
    features_BTF = features(1, frames)
    with torch.no_grad():
        expected_BSD = cut.encoder(features_BTF.transpose(1, 2)).last_hidden_state
        got_BSD, lengths_B = encoder(features_BTF, torch.tensor([frames]))
    assert lengths_B.tolist() == [positions] == encoder.output_lengths(torch.tensor([frames])).tolist()
    torch.testing.assert_close(got_BSD, expected_BSD, atol=1e-6, rtol=0.0)


def test_an_utterance_has_the_same_output_alone_and_in_a_batch(pair):
    _, encoder = pair
    lengths = [FRAMES, 133, 8, 1]
    features_BTF = features(4, FRAMES)  # what stands in the padding must not matter
    with torch.no_grad():
        together_BSD, lengths_B = encoder(features_BTF, torch.tensor(lengths))
        for row, length in enumerate(lengths):
            alone_1SD, _ = encoder(features_BTF[row : row + 1, :length], torch.tensor([length]))
            assert alone_1SD.shape[1] == lengths_B[row] == (length + 1) // 2
            torch.testing.assert_close(together_BSD[row, : lengths_B[row]], alone_1SD[0], atol=1e-6, rtol=1e-5)
            assert together_BSD[row, lengths_B[row] :].abs().sum() == 0


def test_the_positions_of_a_new_encoder_are_those_of_the_reference():
    encoder = WhisperEncoder(size=32, layers=1, heads=2, inner_size=32, positions=50)
    encoder.build(80)
    from transformers.models.whisper.modeling_whisper import sinusoids

    torch.testing.assert_close(encoder.embed_positions, sinusoids(50, 32), atol=1e-6, rtol=0)
    assert "embed_positions" not in dict(encoder.named_parameters())


def test_a_config_builds_it_without_any_folder():
    model = loads(
        "{class: Recogniser, vocabulary_size: 8, features: 80, encoder: {class: WhisperEncoder, size: 32, layers: 1,"
        " heads: 2, inner_size: 32}}",
        Recogniser,
    )
    assert model.encoder.blocks[0].self_attn.q_proj.weight.shape == (32, 32)
    assert model.encoder.conv1.weight.shape == (32, 80, 3)
    assert "inner_size: 32" in dumps(model, state=False)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"size": 30, "heads": 4}, "multiple of `heads`"),
        ({"size": 33, "heads": 3}, "even"),
        ({"layers": 0}, "at least 1"),
        ({"dropout": 1.0}, "less than 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(fields, expected):
    with pytest.raises(UsageError, match=expected):
        WhisperEncoder(**fields)


def test_an_utterance_that_is_too_long_is_refused_with_the_remedy(pair):
    with pytest.raises(UsageError, match=r"at most 200 frames(.|\n)*`max_duration`"):
        pair[1](features(1, FRAMES + 1), torch.tensor([FRAMES + 1]))
