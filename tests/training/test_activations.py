"""Activations that are computed again: the same gradients, the same statistics, and no more work than that."""

from __future__ import annotations

import pytest
import torch
from tiny import Net, make_trainer
from torch import nn

from sonosco_like import serializable
from sonosco_like.losses import JointLoss
from sonosco_like.models import (
    ConformerEncoder,
    DeepSpeech2Encoder,
    KeyValueDecoder,
    Listener,
    Recogniser,
    SpectrogramConvolution,
    Speller,
    TDSEncoder,
    TDSGroup,
)
from sonosco_like.models.layers import MaskedBatchNorm
from sonosco_like.records import Batch
from sonosco_like.training import seed_everything
from sonosco_like.training.assembly import recompute_activations


class Block(nn.Module):
    """Two normalisations, dropout, and parts within parts."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))
        self.masked = MaskedBatchNorm(4)
        self.calls = 0

    def forward(self, inputs):
        """The same shape."""
        self.calls += 1
        maps_BCTF = self.inner(inputs)[:, :, None, None]
        return inputs + self.masked(maps_BCTF, torch.ones(len(inputs), dtype=torch.int64)).tanh()[:, :, 0, 0]


@serializable
class Tower(nn.Module):
    """Blocks in a list."""

    blocks_count: int = 3

    def __post_init__(self) -> None:
        self.encoder = nn.Module()
        self.encoder.blocks = nn.ModuleList(Block() for _ in range(self.blocks_count))
        self.last = nn.Linear(4, 1)

    def forward(self, inputs):
        """A number for each row."""
        for block in self.encoder.blocks:
            inputs = block(inputs)
        return self.last(inputs)


def trained(patterns, **changes):
    seed_everything(2)
    trainer = make_trainer(model=Tower(), epochs=2, gradient_checkpointing=patterns, **changes)
    seed_everything(5)
    trainer.start_training()
    return trainer.model


PATTERNS = [
    ["encoder.blocks.*"],
    ["encoder.blocks"],
    ["encoder.*"],
    ["*"],
    ["encoder.blocks.?"],
    ["encoder.blocks.*.inner", "encoder.blocks.1"],
    ["encoder.blocks.*.inner.1", "*.masked.moments"],
]


@pytest.mark.parametrize("patterns", PATTERNS, ids=str)
def test_weights_statistics_and_draws_are_those_without(patterns):
    plain, again = trained([]), trained(patterns)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


@pytest.mark.parametrize("patterns", PATTERNS[:5], ids=str)
def test_a_block_is_computed_twice_and_no_more(patterns):
    model = Tower()
    recompute_activations(model, patterns)
    model(torch.randn(6, 4)).sum().backward()
    assert [block.calls for block in model.encoder.blocks] == [2, 2, 2]


def test_a_list_of_modules_stands_for_its_members():
    model = Tower()
    recompute_activations(model, ["encoder.blocks"])
    assert all("forward" in vars(block) for block in model.encoder.blocks)
    assert "forward" not in vars(model.encoder.blocks)


@pytest.mark.parametrize("changes", [{"precision": "bfloat16"}, {"accumulate_gradients": 2}], ids=str)
def test_it_goes_with_other_settings(changes):
    plain, again = trained([], **changes), trained(["encoder.blocks.*"], **changes)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_statistics_move_once_where_the_model_is_compiled_too():
    plain, again = trained([], compile="aot_eager"), trained(["encoder.blocks.*"], compile="aot_eager")
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(value, again.state_dict()[name], msg=name)


def test_statistics_of_torch_are_held_too():
    model = Net()
    recompute_activations(model, ["layers"])
    model(torch.randn(6, 4)).sum().backward()
    assert model.layers[1].num_batches_tracked == 1


ENCODERS = {
    "listener": lambda: Listener(hidden_size=4, layers=2, plain_layers=1, dropout=0.3, batch_norm=True),
    "deepspeech2": lambda: DeepSpeech2Encoder(convolutions=[maps()], hidden_size=6, layers=2, dropout=0.2),
    "conformer": lambda: ConformerEncoder(size=8, layers=2, heads=2, kernel=5, channels=4, dropout=0.2),
    "tds": lambda: TDSEncoder(groups=[TDSGroup(channels=2, blocks=2, kernel=5, stride=2)], dropout=0.2),
}
DECODERS = {
    "speller": lambda: Speller(hidden_size=4, embedding_size=4, dropout=0.3, scheduled_sampling=0.4),
    "key value": lambda: KeyValueDecoder(size=8, dropout=0.2, random_sampling=0.3),
}


def maps():
    return SpectrogramConvolution(channels=4, time_kernel=5, frequency_kernel=3, time_stride=2)


def left_by_training(encoder, decoder, patterns) -> list[torch.Tensor]:
    """Gradients and buffers of a recogniser after two batches, and what the generator gives then."""
    seed_everything(3)
    parts = {"encoder": ENCODERS[encoder](), "decoder": DECODERS[decoder]()}
    model = Recogniser(vocabulary_size=9, features=8, ctc=True, **parts).train()
    recompute_activations(model, patterns)
    for length in (3, 5):
        labels = torch.randint(4, 9, (2, length))
        sizes = [torch.tensor([8 * length + 8] * 2), torch.tensor([length, length - 1])]
        batch = Batch(torch.randn(2, 8 * length + 8, 8), sizes[0], labels, sizes[1])
        JointLoss()(model(batch), batch).backward()
    return [*(each.grad for each in model.parameters()), *model.buffers(), torch.rand(3)]


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_recogniser_of_ours_learns_the_same_to_the_bit(encoder, decoder):
    plain = left_by_training(encoder, decoder, [])
    for patterns in (["*"], ["encoder.*"], ["decoder"], ["encoder", "decoder.*"]):
        for wanted, found in zip(plain, left_by_training(encoder, decoder, patterns), strict=True):
            assert torch.equal(wanted, found), patterns
