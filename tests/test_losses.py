import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sonosco_like.errors import DataError, UsageError
from sonosco_like.losses import CrossEntropyLoss, CTCLoss, JointLoss, frames_needed
from sonosco_like.records import BLANK, END, Batch, Output
from sonosco_like.serialization import dumps, loads

VOCABULARY = 6


def batch_of(label_rows, ids=()):
    longest = max(1, *map(len, label_rows))
    return Batch(
        features_BTF=torch.zeros(len(label_rows), 1, 1),
        feature_lengths_B=torch.ones(len(label_rows), dtype=torch.int64),
        labels_BU=torch.tensor([[*row, *[BLANK] * (longest - len(row))] for row in label_rows]),
        label_lengths_B=torch.tensor([len(row) for row in label_rows]),
        ids=list(ids),
    )


def output_for(batch, frames, lengths=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    size = len(batch)
    return Output(
        encoded_BSD=torch.zeros(size, frames, 1),
        encoded_lengths_B=torch.full((size,), frames) if lengths is None else torch.tensor(lengths),
        ctc_logits_BSV=torch.randn(size, frames, VOCABULARY, generator=generator).requires_grad_(),
        attention_logits_BUV=torch.randn(
            size, batch.labels_BU.shape[1] + 1, VOCABULARY, generator=generator
        ).requires_grad_(),
    )


def ctc_by_enumeration(logits_SV, labels):
    """The negative log of the summed probability of every path that collapses to the labels."""
    probabilities_SV = logits_SV.softmax(-1).tolist()
    total = 0.0
    for path in itertools.product(range(VOCABULARY), repeat=len(logits_SV)):
        collapsed = [label for label, _ in itertools.groupby(path) if label != BLANK]
        if collapsed == list(labels):
            total += math.prod(probabilities_SV[s][label] for s, label in enumerate(path))
    return -math.log(total)


label_rows = st.lists(st.lists(st.integers(3, VOCABULARY - 1), max_size=2), min_size=1, max_size=2)


@settings(max_examples=10, deadline=None)
@given(label_rows, st.integers(0, 100))
def test_ctc_is_the_summed_probability_of_all_alignments(rows, seed):
    batch = batch_of(rows)
    output = output_for(batch, frames=4, seed=seed)
    losses = [ctc_by_enumeration(output.ctc_logits_BSV[i], row) for i, row in enumerate(rows)]
    by_utterances, by_tokens = CTCLoss(weighted_by="utterances"), CTCLoss(weighted_by="tokens")
    assert by_utterances(output, batch).item() == pytest.approx(sum(losses) / len(rows), rel=1e-4)
    assert by_tokens(output, batch).item() == pytest.approx(sum(losses) / sum(len(row) + 1 for row in rows), rel=1e-4)


@pytest.mark.parametrize("loss", [CTCLoss(), CTCLoss(weighted_by="utterances"), CrossEntropyLoss(), JointLoss()])
def test_mean_times_weight_adds_up_over_batches(loss):
    rows = [[3, 4, 5], [4], [5, 5], []]
    whole = batch_of(rows)
    output = output_for(whole, frames=9, lengths=[9, 5, 7, 3])
    total = 0.0
    for i, row in enumerate(rows):
        batch = batch_of([row])
        width = batch.labels_BU.shape[1] + 1
        alone = Output(
            output.encoded_BSD[i : i + 1],
            output.encoded_lengths_B[i : i + 1],
            output.ctc_logits_BSV[i : i + 1],
            output.attention_logits_BUV[i : i + 1, :width],
        )
        total += (loss(alone, batch) * loss.weight(batch)).item()
    assert loss(output, whole).item() == pytest.approx(total / float(loss.weight(whole)), rel=1e-5)


def test_cross_entropy_includes_end_and_no_padding():
    batch = batch_of([[3, 4], [5]])
    output = output_for(batch, frames=1)
    log_probs = output.attention_logits_BUV.log_softmax(-1)
    expected = (
        log_probs[0, 0, 3] + log_probs[0, 1, 4] + log_probs[0, 2, END] + log_probs[1, 0, 5] + log_probs[1, 1, END]
    )
    assert CrossEntropyLoss()(output, batch).item() == pytest.approx(-expected.item() / 5)
    assert CrossEntropyLoss(weighted_by="utterances")(output, batch).item() == pytest.approx(-expected.item() / 2)
    CrossEntropyLoss()(output, batch).backward()
    assert output.attention_logits_BUV.grad[1, 2].abs().sum() == 0


def test_label_smoothing_spreads_its_share_evenly():
    batch = batch_of([[3]])
    output = output_for(batch, frames=1)
    log_probs = output.attention_logits_BUV.log_softmax(-1)[0]
    expected = sum(0.9 * log_probs[u, label] + 0.1 * log_probs[u].mean() for u, label in enumerate([3, END]))
    assert CrossEntropyLoss(label_smoothing=0.1)(output, batch).item() == pytest.approx(-expected.item() / 2)


def test_joint_loss_is_the_weighted_sum_and_leaves_out_a_part_without_weight():
    batch = batch_of([[3, 4], [5]])
    output = output_for(batch, frames=6)
    ctc, attention = CTCLoss()(output, batch), CrossEntropyLoss()(output, batch)
    assert JointLoss(ctc_weight=0.25)(output, batch).item() == pytest.approx((0.25 * ctc + 0.75 * attention).item())
    output.ctc_logits_BSV = None
    assert JointLoss(ctc_weight=0.0)(output, batch).item() == pytest.approx(attention.item())
    with pytest.raises(UsageError, match="CTC logits"):
        JointLoss()(output, batch)


def test_frames_needed_counts_a_blank_between_equal_neighbours():
    assert frames_needed(batch_of([[3, 3, 3], [3, 4, 3], [4, 4], []])).tolist() == [5, 3, 3, 0]


def test_target_longer_than_output_is_an_error_that_names_the_utterance():
    batch = batch_of([[3, 4], [5, 5, 5]], ids=["fine", "too-long"])
    with pytest.raises(DataError, match=r"too-long needs at least 5 encoded frames.*has 4"):
        CTCLoss()(output_for(batch, frames=4), batch)


def test_just_long_enough_is_fine():
    batch = batch_of([[3, 4], [5, 5, 5]])
    assert CTCLoss()(output_for(batch, frames=5), batch).isfinite()


@pytest.mark.parametrize("zero_infinity", [True, False])
def test_skipped_utterances_count_with_zero_loss_and_no_gradient(zero_infinity):
    loss = CTCLoss(too_long="skip", zero_infinity=zero_infinity)
    batch = batch_of([[3, 4], [5, 5, 5]], ids=["fine", "too-long"])
    output = output_for(batch, frames=4)
    value = loss(output, batch)
    value.backward()
    assert value.item() == pytest.approx(ctc_by_enumeration(output.ctc_logits_BSV[0], [3, 4]) / 7, rel=1e-4)
    assert output.ctc_logits_BSV.grad[1].abs().sum() == 0
    assert output.ctc_logits_BSV.grad[0].abs().sum() > 0
    loss(output, batch)
    assert loss.skipped == 2


def test_skipping_is_said_once(caplog):
    loss = CTCLoss(too_long="skip")
    batch = batch_of([[5, 5, 5]], ids=["too-long"])
    loss(output_for(batch, frames=4), batch)
    loss(output_for(batch, frames=4), batch)
    assert [record.message.split(" needs")[0] for record in caplog.records] == ["Utterance too-long"]


def test_padding_frames_do_not_matter_to_ctc():
    batch = batch_of([[3, 4]])
    output = output_for(batch, frames=8, lengths=[5])
    before = CTCLoss()(output, batch)
    output.ctc_logits_BSV = output.ctc_logits_BSV.detach().clone()
    output.ctc_logits_BSV[:, 5:] = 100.0
    assert torch.equal(CTCLoss()(output, batch), before)


def test_losses_in_half_precision_are_computed_in_full():
    batch = batch_of([[3, 4]])
    output = output_for(batch, frames=8)
    output.ctc_logits_BSV = output.ctc_logits_BSV.bfloat16()
    output.attention_logits_BUV = output.attention_logits_BUV.bfloat16()
    assert JointLoss()(output, batch).dtype == torch.float32


@pytest.mark.parametrize(
    "make",
    [
        lambda: CrossEntropyLoss(label_smoothing=1.0),
        lambda: JointLoss(ctc_weight=1.5),
        lambda: JointLoss(ctc=CTCLoss(weighted_by="utterances")),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(UsageError):
        make()


def test_losses_survive_yaml():
    loss = CTCLoss(too_long="skip", weighted_by="utterances")
    loss.skipped = 3
    restored = loads(dumps(loss), CTCLoss)
    assert (restored.too_long, restored.weighted_by, restored.skipped) == ("skip", "utterances", 3)
    joint = loads("{class: JointLoss, ctc_weight: 0.5, attention: {label_smoothing: 0.1}}", JointLoss)
    assert (joint.ctc_weight, joint.attention.label_smoothing, joint.weighted_by) == (0.5, 0.1, "tokens")
