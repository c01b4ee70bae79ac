"""Low-rank adapters: equal at the start, they alone learn, merged in use, exact over a resume."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from tiny_speech import TOKENIZER, differences, make_batch, make_model, speech_trainer, whole_and_resumed
from torch import Tensor, nn

from sonosco_like import load, save
from sonosco_like.callbacks import FreezeParameters
from sonosco_like.errors import UsageError
from sonosco_like.models import LAS, Conformer, ConformerEncoder, Listener, LowRankAdapters, Speller, Wav2Vec2Encoder
from sonosco_like.models.adapters import is_of_adapter, merge_adapters, merged_weights, without_adapters
from sonosco_like.models.recogniser import Recogniser
from sonosco_like.optim import AdamW, ParameterGroup
from sonosco_like.training.initialisation import InitialWeights, initialise
from sonosco_like.training.saver import WeightAverage


def conformer(adapters: LowRankAdapters | None = None) -> Conformer:
    torch.manual_seed(4)
    encoder = ConformerEncoder(size=8, layers=3, heads=2, kernel=3, channels=4, dropout=0.0)
    return Conformer(vocabulary_size=7, features=6, encoder=encoder, adapters=adapters)


def logits(model: Recogniser) -> Tensor:
    model.eval()
    return model(make_batch(1)).ctc_logits_BSV


def shaken(model: Any) -> Any:
    """The model with adapters that have learned something."""
    for name, parameter in model.named_parameters():
        if name.endswith("adapter_b"):
            nn.init.normal_(parameter, std=0.02)
    return model


def with_weights_of(model: Recogniser, plain: Recogniser) -> Recogniser:
    model.load_state_dict({**model.state_dict(), **plain.state_dict()})
    return model


def test_at_the_start_the_output_is_that_of_the_frozen_model():
    plain = conformer()
    adapted = with_weights_of(conformer(LowRankAdapters(rank=2)), plain)
    assert torch.allclose(logits(adapted), logits(plain), rtol=0, atol=1e-6)
    assert not torch.allclose(logits(shaken(adapted)), logits(plain), rtol=0, atol=1e-3)


def test_only_adapters_and_what_is_named_beside_them_get_gradients():
    model = shaken(conformer(LowRankAdapters(rank=2, also_train=["ctc_output.*"])))
    logits(model).square().sum().backward()
    learned = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    expected = {name for name in model.state_dict() if is_of_adapter(name) and not name.endswith("scale")}
    assert learned == {*expected, "ctc_output.weight", "ctc_output.bias"}
    assert sum(name.endswith("adapter_a") for name in expected) > 10


@pytest.mark.parametrize("alpha", [1.0, 16.0])
def test_merged_is_unmerged_and_is_a_plain_model(alpha):
    model = shaken(conformer(LowRankAdapters(rank=2, alpha=alpha, patterns=["*"])))
    before, names = logits(model), set(conformer().state_dict())
    merged = without_adapters(model)
    assert torch.allclose(logits(merged), before, rtol=0, atol=1e-6)
    assert set(merged.state_dict()) == names
    assert merged.adapters is None
    assert {type(layer) for layer in merged.modules()} == {type(layer) for layer in conformer().modules()}
    assert torch.equal(logits(model), before), "the model itself stays as it was"
    of_tensors = merged_weights(model.state_dict())
    assert all(torch.equal(of_tensors[name], weight) for name, weight in merged.state_dict().items())
    assert without_adapters(merged) is merged


def test_a_layer_is_merged_wherever_it_is_used():
    encoder = Wav2Vec2Encoder(
        size=16, layers=2, heads=2, inner_size=16, channels=[4, 4], kernels=[10, 3], strides=[5, 2], position_kernel=4,
        position_groups=2,
    )  # fmt: skip
    adapters = LowRankAdapters(rank=2, patterns=["*.attention.*_proj"])
    model = shaken(Recogniser(vocabulary_size=7, features=1, encoder=encoder, adapters=adapters)).eval()
    assert sum(name.endswith("adapter_a") for name in model.state_dict()) == 8
    samples_BN1, lengths_B = torch.randn(2, 400, 1), torch.tensor([400, 300])
    before = model.encode(samples_BN1, lengths_B)[0]
    merge_adapters(model)
    assert torch.allclose(model.encode(samples_BN1, lengths_B)[0], before, atol=1e-5)


def test_wrong_settings_are_told_with_the_names_there_are():
    with pytest.raises(UsageError, match=r"'encodr\.\*' of `adapters` fits no linear layer.*encoder\.blocks\.0"):
        conformer(LowRankAdapters(patterns=["encodr.*"]))
    with pytest.raises(UsageError, match=r"`adapters.rank` is 99, and encoder\..* has \d+ inputs"):
        conformer(LowRankAdapters(rank=99))
    with pytest.raises(UsageError, match="The pattern 'output' fits no parameter"):
        conformer(LowRankAdapters(rank=2, also_train=["output"]))
    for wrong in ({"rank": 0}, {"alpha": 0.0}, {"alpha": float("nan")}, {"patterns": []}):
        with pytest.raises(UsageError):
            LowRankAdapters(**wrong)


def test_the_range_of_initial_weights_of_las_leaves_adapters_at_zero():
    speller = Speller(hidden_size=4, layers=1, embedding_size=4)
    model = LAS(
        vocabulary_size=7, features=6, encoder=Listener(hidden_size=4, layers=1), attention_decoder=speller,
        initial_range=0.1, adapters=LowRankAdapters(rank=1, patterns=["decoder.*"]),
    )  # fmt: skip
    started = [value for name, value in model.state_dict().items() if name.endswith("adapter_b")]
    assert started
    assert not any(value.any() for value in started)


def fine_tuned(*callbacks: Any, **fields: Any) -> dict[str, Any]:
    model = make_model(adapters=LowRankAdapters(rank=1, also_train=["ctc_output.*"]))
    return {"model": model, "optimizer": AdamW(lr=0.01), **fields}


def test_the_optimizer_has_only_what_learns_and_the_rest_keeps_its_bits():
    trainer = speech_trainer(**fine_tuned())
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.start_training()
    after = trainer.model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.startswith("ctc_output.") or name.endswith(("_a", "_b"))}
    held = {id(each) for group in trainer.optimizer.param_groups for each in group["params"]}
    assert held == {id(each) for name, each in trainer.model.named_parameters() if name in changed}


def test_a_resumed_run_ends_with_the_bits_of_the_unbroken_one_also_with_an_average(tmp_path):
    whole, resumed = whole_and_resumed(5, tmp_path, **fine_tuned(averaging=WeightAverage()))
    assert differences(whole, resumed) == []


def test_freezing_for_a_time_thaws_adapters_and_never_what_they_freeze():
    trainer = speech_trainer(FreezeParameters(patterns=["encoder.*"], until="2ba"), **fine_tuned(max_duration="1ba"))
    frozen = trainer.model.adapters.frozen
    trainer.start_training()
    named = dict(trainer.model.named_parameters())
    assert not any(named[name].requires_grad for name in named if name.startswith("encoder."))
    trainer.max_duration = "4ba"
    trainer.continue_training()
    assert {name for name, each in named.items() if not each.requires_grad} == frozen


def test_rates_fall_with_the_depth_of_adapted_layers_and_groups_name_them():
    adapters = LowRankAdapters(rank=2, patterns=["encoder.blocks.*"], also_train=["ctc_output.*"])
    named = [pair for pair in conformer(adapters).named_parameters() if pair[0] not in adapters.frozen]
    optimizer = AdamW(lr=1.0, layer_decay=0.5, groups=[ParameterGroup(pattern="*.adapter_b", weight_decay=0.0)])
    rates = {
        group["name"]: group["lr"] for group in optimizer.build(conformer(adapters).named_parameters()).param_groups
    }
    assert rates["rest"] == 1.0
    built = optimizer.build(named)
    assert sorted({group["lr"] for group in built.param_groups}) == [0.125, 0.25, 0.5, 1.0]


def test_a_fine_tuned_run_is_a_source_of_plain_weights(tmp_path):
    trainer = speech_trainer(**fine_tuned(max_duration="3ba"))
    trainer.start_training()
    save(trainer, tmp_path / "saved")
    expected = without_adapters(trainer.model).state_dict()
    plain, adapted = make_model(), make_model(adapters=LowRankAdapters(rank=2))
    for model in (plain, adapted):
        matching = initialise(model, tmp_path / "saved", TOKENIZER)
        assert matching.missing == matching.unexpected == ()
        assert all(torch.equal(model.state_dict()[name], weight) for name, weight in expected.items())
    again = load(tmp_path / "saved").model
    assert all(torch.equal(again.state_dict()[name], weight) for name, weight in trainer.model.state_dict().items())


def test_weights_that_are_new_and_frozen_are_told(tmp_path, caplog):
    trainer = speech_trainer(model=make_model(), max_duration="1ba")
    trainer.start_training()
    save(trainer, tmp_path / "saved")
    caplog.set_level(logging.INFO)
    source = {"run": tmp_path / "saved", "leave_out": ["ctc_output.*"]}
    initialise(make_model(adapters=LowRankAdapters(rank=1)), InitialWeights(**source), TOKENIZER)
    assert "drawn from the seed: they would never learn. Let them: `also_train: ['ctc_output.*']`" in caplog.text
    other = make_model(adapters=LowRankAdapters(rank=1, patterns=["decoder.*"]))
    left_out = next(name for name in other.state_dict() if name.startswith("encoder."))
    initialise(other, InitialWeights(run=tmp_path / "saved", leave_out=[left_out]), TOKENIZER)
    assert f"also_train: ['{left_out}']" in caplog.text, "not all of the encoder"
    caplog.clear()
    initialise(make_model(adapters=LowRankAdapters(rank=1, also_train=["ctc_output.*"])), InitialWeights(**source))
    assert "never learn" not in caplog.text
