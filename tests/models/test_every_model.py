"""What holds for every model: shapes, padding, gradients, learning, precision, and YAML."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from sonosco_like.models import SpeechModel
from sonosco_like.records import END, Batch, Output
from sonosco_like.serialization import dumps, load, loads, save

FRAMES, LABELS = [41, 64, 17], [5, 3, 2]


def joint_loss(output: Output, batch: Batch) -> torch.Tensor:
    """The sum of whatever the model can be trained with."""
    loss = torch.zeros(())
    if output.ctc_logits_BSV is not None:
        log_probs = output.ctc_logits_BSV.float().log_softmax(-1).transpose(0, 1)
        loss = loss + functional.ctc_loss(log_probs, batch.labels_BU, output.encoded_lengths_B, batch.label_lengths_B)
    if output.attention_logits_BUV is not None:
        loss = loss + functional.cross_entropy(output.attention_logits_BUV.float().transpose(1, 2), targets(batch))
    return loss


def targets(batch: Batch) -> torch.Tensor:
    """Labels, END, and -100 beyond."""
    expected = functional.pad(batch.labels_BU, (0, 1), value=-100)
    positions = torch.arange(expected.shape[1])
    expected = expected.masked_fill(positions > batch.label_lengths_B[:, None], -100)
    return expected.masked_fill(positions == batch.label_lengths_B[:, None], END)


def test_output_has_the_shapes_it_promises(model, make_batch):
    batch = make_batch(FRAMES, LABELS)
    output = model(batch)
    frames = -(-64 // model.frame_reduction)
    assert isinstance(model, SpeechModel)
    assert output.encoded_lengths_B.tolist() == [-(-length // model.frame_reduction) for length in FRAMES]
    assert torch.equal(output.encoded_lengths_B, model.output_lengths(batch.feature_lengths_B))
    assert output.encoded_BSD.shape == (3, frames, model.encoder.output_size)
    assert (output.ctc_logits_BSV is not None) == model.has_ctc
    if model.has_ctc:
        assert output.ctc_logits_BSV.shape == (3, frames, model.vocabulary_size)
    if model.attention_decoder is not None:
        heads = output.attention_BHUS.shape[1]
        assert output.attention_logits_BUV.shape == (3, 6, model.vocabulary_size)
        assert output.attention_BHUS.shape == (3, heads, 6, frames)


def test_padding_does_not_change_an_utterance(model, make_batch):
    """Neither the frames nor what stands in the padding may matter: the batch here is padded with noise."""
    model.eval()
    batch = make_batch(FRAMES, LABELS)
    padding = torch.arange(64) >= batch.feature_lengths_B[:, None]
    batch.features_BTF[padding] = 7.0 * torch.randn(int(padding.sum()), 16)
    together = model(batch)
    for row, (frames, labels) in enumerate(zip(FRAMES, LABELS, strict=True)):
        alone = model(
            Batch(batch.features_BTF[row : row + 1, :frames], torch.tensor([frames]),
                  batch.labels_BU[row : row + 1, :labels], torch.tensor([labels]))
        )  # fmt: skip
        for name in ("encoded_BSD", "ctc_logits_BSV", "attention_logits_BUV", "attention_BHUS"):
            expected, got = getattr(alone, name), getattr(together, name)
            if expected is not None:
                corner = tuple(slice(size) for size in expected.shape[1:])
                torch.testing.assert_close(got[row][corner], expected[0], atol=1e-5, rtol=1e-5)


def test_what_lies_beyond_an_utterance_is_zero(model, make_batch):
    output = model.train()(make_batch(FRAMES, LABELS))
    for row, length in enumerate(output.encoded_lengths_B):
        assert output.encoded_BSD[row, length:].abs().sum() == 0
        if output.attention_BHUS is not None:
            weights_HUS = output.attention_BHUS[row]
            assert weights_HUS[..., length:].abs().sum() == 0
            torch.testing.assert_close(weights_HUS.sum(-1), torch.ones_like(weights_HUS.sum(-1)))


def test_gradients_reach_every_parameter(model, make_batch):
    batch = make_batch(FRAMES, LABELS)
    joint_loss(model.train()(batch), batch).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} is not part of the loss"
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, f"{name} gets no gradient"


def test_overfits_four_utterances_to_zero_error(model, make_batch):
    batch = make_batch([32, 40, 36, 38], [3, 3, 2, 3])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for step in range(400):
        if model.attention_decoder is not None:
            model.attention_decoder.soft_window = step < 20
        loss = joint_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if loss < 0.05 and step > 40:
            break
    for _ in range(30):  # running moments need batches to settle
        with torch.no_grad():
            model(batch)
    assert errors(model.eval()(batch), batch) == 0


def errors(output: Output, batch: Batch) -> int:
    """Wrong utterances of the CTC output and wrong labels of the attention output."""
    wrong = 0
    if output.ctc_logits_BSV is not None:
        best_BS = output.ctc_logits_BSV.argmax(-1)
        for row, length in enumerate(output.encoded_lengths_B):
            heard = [label for label in best_BS[row, :length].unique_consecutive().tolist() if label]
            wrong += heard != batch.labels_BU[row, : batch.label_lengths_B[row]].tolist()
    if output.attention_logits_BUV is not None:
        expected = targets(batch)
        wrong += int(((output.attention_logits_BUV.argmax(-1) != expected) & (expected >= 0)).sum())
    return wrong


def test_runs_under_bfloat16_autocast(model, make_batch):
    batch = make_batch(FRAMES, LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model.train()(batch)
    loss = joint_loss(output, batch)
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_the_same_seed_gives_the_same_training_step(model, make_batch):
    """All randomness comes from torch's generator, which a checkpoint keeps."""
    batch = make_batch(FRAMES, LABELS)
    model.train()
    losses = []
    for _ in range(2):
        torch.manual_seed(3)
        losses.append(joint_loss(model(batch), batch).item())
    assert losses[0] == losses[1]


def test_yaml_gives_back_an_equal_model(model):
    text = dumps(model, state=False)
    again = loads(text)
    assert dumps(again, state=False) == text
    assert {name: value.shape for name, value in again.state_dict().items()} == {
        name: value.shape for name, value in model.state_dict().items()
    }


def test_a_saved_model_comes_back_with_its_weights(model, make_batch, tmp_path):
    batch = make_batch(FRAMES, LABELS)
    model.train()(batch)  # moves running moments
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    before, after = model.eval()(batch), again.eval()(batch)
    assert torch.equal(before.encoded_BSD, after.encoded_BSD)
    if before.attention_logits_BUV is not None:
        assert torch.equal(before.attention_logits_BUV, after.attention_logits_BUV)


@pytest.mark.parametrize("frames", [1, 2, 9])
def test_very_short_utterances_have_at_least_one_encoded_frame(model, make_batch, frames):
    output = model.eval()(make_batch([frames], [1]))
    assert output.encoded_lengths_B.tolist() == [-(-frames // model.frame_reduction)]
    assert output.encoded_BSD.isfinite().all()
