"""Parameters do not learn while they are frozen, and the soft window is turned off when its time is over."""

from __future__ import annotations

import logging

import pytest
import torch
from killing import run_until_killed
from tiny import SaveAt
from tiny_speech import FEATURES, TOKENIZER, differences, speech_trainer, whole_and_resumed

from sonosco_like.callbacks import DisableSoftWindowAttention, FreezeParameters
from sonosco_like.errors import UsageError
from sonosco_like.events import CallbackError
from sonosco_like.models import KeyValueDecoder, Recogniser, TDSEncoder, TDSGroup
from sonosco_like.optim import SGD, Adagrad, AdamW
from sonosco_like.serialization import load


def changed_at(trainer) -> dict[str, set[int]]:
    """Have a trainer note the steps at which each parameter changed; decay would change one without a gradient too."""
    before: dict[str, torch.Tensor] = {}
    found: dict[str, set[int]] = {}

    def look(epoch, step, performance_measures, context):
        for name, parameter in context.model.named_parameters():
            if name in before and not torch.equal(before[name], parameter):
                found.setdefault(name, set()).add(context.global_step)
            before[name] = parameter.detach().clone()

    trainer.add_callback(look)
    return found


@pytest.mark.parametrize(("until", "first"), [(None, None), ("5ba", 6), ("1ep", 5), ("0.5dur", 7)])
def test_what_fits_a_pattern_learns_only_after_the_time(until, first):
    trainer = speech_trainer(FreezeParameters(patterns=["encoder.*", "ctc_output.bias"], until=until))
    changed = changed_at(trainer)
    trainer.start_training()
    frozen = {name for name, _ in trainer.model.named_parameters() if name.startswith("encoder.")} | {"ctc_output.bias"}
    assert changed["ctc_output.weight"] == set(range(2, 13))
    for name in frozen:
        assert min(changed.get(name, {None}), default=None) == first
    assert trainer.callbacks[0].thawed is (until is not None)


@pytest.mark.parametrize("at", [3, 5, 6])
def test_a_resumed_run_thaws_at_the_same_batch_and_ends_the_same(at, tmp_path):
    whole, resumed = whole_and_resumed(at, tmp_path, FreezeParameters(until="5ba"))
    assert load(tmp_path / f"at-{at}").callbacks[0].thawed is (at > 5)
    assert differences(whole, resumed) == []
    assert all(parameter.requires_grad for parameter in resumed.model.parameters())


@pytest.mark.parametrize("until", ["0.5dur", "6ba", "2ep"])
def test_a_run_killed_around_the_thaw_ends_the_same(until, tmp_path):
    whole = speech_trainer(FreezeParameters(until=until))
    whole.start_training()
    checkpoint = run_until_killed(tmp_path, f'FreezeParameters(until="{until}")', saved_at=5, killed_at=10)
    resumed = load(checkpoint)
    assert not resumed.callbacks[0].thawed
    resumed.continue_training()
    assert resumed.callbacks[0].thawed
    others = ("callbacks", "gradient_norm")  # the callback that kills reads all measures
    assert [path for path in differences(whole, resumed) if not any(each in path for each in others)] == []


@pytest.mark.parametrize(
    "optimizer",
    [
        AdamW(lr=0.01, weight_decay=0.5, amsgrad=True),
        SGD(lr=0.01, momentum=0.9, weight_decay=0.5, nesterov=True),
        Adagrad(lr=0.01, weight_decay=0.5),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("accumulated", [1, 3])
def test_neither_decay_nor_moments_touch_what_is_frozen(optimizer, accumulated, tmp_path):
    fields = {"optimizer": optimizer, "accumulate_gradients": accumulated}
    whole, resumed = whole_and_resumed(7, tmp_path, FreezeParameters(until="7ba"), **fields)
    assert differences(whole, resumed) == []
    drawn = speech_trainer().model.encoder.state_dict()
    saved = load(tmp_path / "at-7").model.encoder.state_dict()
    assert all(torch.equal(saved[name], drawn[name]) for name in drawn)
    assert any(not torch.equal(each, drawn[name]) for name, each in whole.model.encoder.state_dict().items())


def test_what_is_frozen_for_good_is_frozen_after_a_resume_too(tmp_path):
    _, resumed = whole_and_resumed(5, tmp_path, FreezeParameters())
    learning = {name.split(".")[0] for name, each in resumed.model.named_parameters() if each.requires_grad}
    assert "encoder" not in learning
    assert learning


def test_of_two_that_hold_a_parameter_the_later_one_lets_it_go():
    early, late = (
        FreezeParameters(patterns=["encoder.*"], until="2ba"),
        FreezeParameters(patterns=["*.bias"], until="1ep"),
    )
    trainer = speech_trainer(early, late)
    changed = changed_at(trainer)
    trainer.start_training()
    biases = {name for name in changed if name.endswith(".bias")}
    weights = {name for name in changed if name.startswith("encoder.") and name.endswith("weight")}
    assert {min(changed[name]) for name in biases} == {5}
    assert {min(changed[name]) for name in weights} == {3}


def test_what_the_user_froze_stays_frozen():
    trainer = speech_trainer(FreezeParameters(patterns=["encoder.*"], until="2ba"))
    own = next(trainer.model.encoder.parameters()).requires_grad_(False)
    trainer.start_training()
    assert not own.requires_grad
    assert sum(not parameter.requires_grad for parameter in trainer.model.parameters()) == 1


def test_freezing_and_thawing_are_said(caplog):
    with caplog.at_level(logging.INFO):
        speech_trainer(FreezeParameters(until="5ba")).start_training()
    said = [message for message in caplog.messages if "parameters" in message]
    assert "until 5ba are over" in said[0]
    assert said[1].endswith("parameters learn from step 5 on.")


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["encodr.*"], r"'encodr\.\*' fits no parameter; did you mean 'encoder\.\*'"),
        (["*"], r"The patterns \* leave no parameter that learns"),
    ],
)
def test_patterns_that_fit_nothing_or_everything_are_refused_at_the_start(patterns, message):
    trainer = speech_trainer(FreezeParameters(patterns=patterns))
    with pytest.raises(CallbackError, match=message):
        trainer.start_training()
    assert trainer.global_step == 0


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="at least"):
        FreezeParameters(patterns=[])
    with pytest.raises(UsageError, match="not a duration"):
        FreezeParameters(until="soon")


def test_the_optimizer_has_frozen_parameters_from_the_start(tmp_path):
    trainer = speech_trainer(FreezeParameters(until="2ep"), SaveAt(at=2, path=tmp_path / "saved"))
    trainer.start_training()
    groups = trainer.optimizer.param_groups
    assert sum(len(group["params"]) for group in groups) == len(list(trainer.model.parameters()))


def windowed_batches(after: str) -> list[int]:
    """The batches of a run that were trained with the window on."""
    trainer = speech_trainer(DisableSoftWindowAttention(after=after), val_data_loader=None)
    found = []

    def note(moment):
        if moment.context.model.attention_decoder.soft_window:
            found.append(moment.context.global_step)

    trainer.add_callback(("forward_start", note))
    trainer.start_training()
    return found


@pytest.mark.parametrize(("after", "count"), [("1ep", 4), ("2ep", 8), ("3ba", 3), ("0.5dur", 6), ("1h", 12)])
def test_the_window_is_on_for_so_long(after, count):
    assert windowed_batches(after) == list(range(count))


@pytest.mark.parametrize("at", [2, 6])
def test_the_window_of_a_resumed_run_is_that_of_the_whole_one(at, tmp_path):
    whole, resumed = whole_and_resumed(at, tmp_path, DisableSoftWindowAttention(after="5ba"))
    assert load(tmp_path / f"at-{at}").model.attention_decoder.soft_window is (at < 5)
    assert differences(whole, resumed) == []


def test_a_model_without_a_window_is_refused_at_the_start():
    encoder = TDSEncoder(groups=[TDSGroup(channels=1, blocks=1, kernel=3, stride=1)])
    model = Recogniser(
        vocabulary_size=TOKENIZER.size, features=FEATURES, encoder=encoder, attention_decoder=KeyValueDecoder(size=4)
    )
    trainer = speech_trainer(DisableSoftWindowAttention(), model=model)
    with pytest.raises(CallbackError, match="give its attention decoder a `window_sigma`"):
        trainer.start_training()
    assert trainer.global_step == 0
