"""`init_from`: weights of another run, matched by name, with a report; refused with a remedy where they do not fit."""

from __future__ import annotations

import copy
import logging
from pathlib import Path

import pytest
import torch
from tiny import Net, make_trainer
from torch import nn

from sonosco_like import save, serializable
from sonosco_like.data import AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.features import LogMel
from sonosco_like.data.text import Alphabet, SentencePieceTokenizer
from sonosco_like.errors import UsageError
from sonosco_like.losses import JointLoss
from sonosco_like.models.attention import Attention
from sonosco_like.models.las import LAS, Listener, Speller
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.training import ModelTrainer
from sonosco_like.training.initialisation import InitialWeights, initialise


@serializable
class Headed(nn.Module):
    """The layers of `Net` under another name, and a head of any size."""

    outputs: int = 1

    def __post_init__(self):
        self.body = Net().layers
        self.head = nn.Linear(1, self.outputs)


@pytest.fixture
def source(tmp_path):
    """The checkpoint of a trained `Net`."""
    trainer = make_trainer(max_duration="3ba")
    trainer.start_training()
    save(trainer, tmp_path / "checkpoints" / "step-00000003")
    return tmp_path / "checkpoints" / "step-00000003", trainer.model.state_dict()


def test_all_weights_and_buffers_are_taken_and_no_random_number_is_drawn(source):
    checkpoint, weights = source
    model = Net()
    before = torch.get_rng_state()
    matching = initialise(model, checkpoint)
    assert torch.equal(torch.get_rng_state(), before)
    assert set(matching.matched) == set(weights)
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_a_run_stands_for_its_best_checkpoint(source, tmp_path):
    checkpoint, weights = source
    Checkpoints(tmp_path).point("best", checkpoint)
    model = Net()
    assert initialise(model, tmp_path).source == checkpoint
    assert torch.equal(model.layers[0].weight, weights["layers.0.weight"])


def test_averaged_weights_are_preferred_as_they_are_for_recognising(tmp_path):
    from sonosco_like.training.saver import WeightAverage

    trainer = make_trainer(max_duration="5ba", averaging=WeightAverage())
    trainer.start_training()
    save(trainer, tmp_path / "saved")
    model = Net()
    initialise(model, tmp_path / "saved")
    averaged = trainer.averaging.state_dict()["weights"]
    assert torch.equal(model.layers[0].weight, averaged["layers.0.weight"])
    assert not torch.equal(model.layers[0].weight, trainer.model.layers[0].weight)


def test_names_are_matched_after_renaming_and_the_rest_is_reported(source, caplog):
    checkpoint, weights = source
    model = Headed()
    head = model.head.weight.clone()
    with caplog.at_level(logging.INFO):
        matching = initialise(model, InitialWeights(run=checkpoint, rename={"layers.": "body."}))
    assert torch.equal(model.body[0].weight, weights["layers.0.weight"])
    assert torch.equal(model.head.weight, head)
    assert matching.missing == ("head.weight", "head.bias")
    assert f"init_from: 9 of 11 weights taken from {checkpoint}" in caplog.text
    assert "2 not in the checkpoint, so drawn from the seed: head.weight, head.bias" in caplog.text


def test_other_shapes_are_refused_with_the_pattern_that_leaves_them_out(source, tmp_path):
    checkpoint, _ = source
    model = Net(size=6)
    drawn = model.layers[0].weight.clone()
    with pytest.raises(UsageError) as caught:
        initialise(model, checkpoint)
    assert "layers.0.weight (8 x 4 in the checkpoint, 8 x 6 in the model)" in str(caught.value)
    assert "leave_out: ['layers.0.weight']" in str(caught.value)
    assert torch.equal(model.layers[0].weight, drawn)
    matching = initialise(model, InitialWeights(run=checkpoint, leave_out=["layers.0.*"]))
    assert matching.left_out == ("layers.0.weight", "layers.0.bias")
    assert torch.equal(model.layers[0].weight, drawn)


def test_the_suggested_pattern_is_as_short_as_it_can_be(tmp_path):
    save(make_trainer(model=Headed(outputs=3)), tmp_path / "headed")
    with pytest.raises(UsageError, match=r"leave_out: \['head\.\*'\]"):
        initialise(Headed(outputs=5), tmp_path / "headed")


def test_what_only_the_checkpoint_has_is_reported(tmp_path):
    trainer = make_trainer(model=Headed())
    save(trainer, tmp_path / "headed")
    matching = initialise(Net(), InitialWeights(run=tmp_path / "headed", rename={"body.": "layers."}))
    assert matching.unexpected == ("head.weight", "head.bias")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"leave_out": ["layer.*"]}, r"'layer\.\*', which matches no weight; did you mean 'layers\.\*'\?"),
        ({"rename": {"body.": "layers."}}, "the prefix 'body.', with which no weight begins"),
        ({"rename": {"layers.0.": "layers.1."}}, "gives two weights the name"),
        ({"rename": {"layers.": "other."}}, "no weight of .* has the name of a weight of this model"),
    ],
)
def test_settings_that_do_not_fit_are_refused(wanted, said, source):
    checkpoint, _ = source
    with pytest.raises(UsageError, match=said):
        initialise(Net(), InitialWeights(run=checkpoint, **wanted))


def test_what_is_no_checkpoint_of_ours_is_refused(tmp_path):
    torch.save({}, tmp_path / "model.pt")
    for path in (tmp_path, tmp_path / "model.pt"):
        with pytest.raises(UsageError, match=r"init_from: .* can run a program when it is opened \(model.pt\)"):
            initialise(Net(), path)
    with pytest.raises(UsageError, match=r"init_from: There is no run.*nowhere.*config.json and model.safetensors"):
        initialise(Net(), tmp_path / "nowhere")


def test_a_damaged_checkpoint_is_refused(source):
    checkpoint, _ = source
    (checkpoint / "tensors.safetensors").write_bytes(b"torn")
    with pytest.raises(UsageError, match=r"init_from: .* cannot be read: .* is torn"):
        initialise(Net(), checkpoint)


def test_a_saved_object_without_a_model_is_refused(tmp_path):
    save(Net(), tmp_path / "net")
    with pytest.raises(UsageError, match="holds no `model` with weights"):
        initialise(Net(), tmp_path / "net")


def recogniser_trainer(characters: str) -> ModelTrainer:
    """A trainer of a small LAS with a CTC output, for texts of these characters; its data is never read."""
    dataset = AudioDataset(
        manifest=Path("train.jsonl"), features=LogMel(mels=4), tokenizer=Alphabet(characters=characters)
    )
    decoder = Speller(hidden_size=4, layers=1, embedding_size=3, attention=Attention(size=4))
    model = LAS(encoder=Listener(hidden_size=2, layers=0), attention_decoder=decoder, ctc=True)
    loader = AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=2))
    return make_trainer(model=model, loss=JointLoss(), train_data_loader=loader, val_data_loader=None)


BY_SYMBOL = {
    "decoder.embedding.weight", "decoder.output.weight", "decoder.output.bias", "ctc_output.weight", "ctc_output.bias",
}  # fmt: skip


def initialise_from(old: ModelTrainer, new: ModelTrainer, folder: Path, **fields):
    save(old, folder / "old")
    tokenizer = new.train_data_loader.dataset.tokenizer
    return initialise(new.model, InitialWeights(run=folder / "old", **fields), tokenizer)


def test_another_alphabet_keeps_the_rows_of_the_symbols_that_stay(tmp_path, caplog):
    old, new = recogniser_trainer("abc d"), recogniser_trainer("äd bz")
    before = copy.deepcopy(new.model.state_dict())
    matching = initialise_from(old, new, tmp_path)
    there, here = old.model.state_dict(), new.model.state_dict()
    assert set(matching.by_symbol.names) == BY_SYMBOL
    assert set(matching.matched) == set(here) - BY_SYMBOL
    places = {symbol: place for place, symbol in enumerate(old.train_data_loader.dataset.tokenizer.symbols)}
    for place, symbol in enumerate(new.train_data_loader.dataset.tokenizer.symbols):
        for name in BY_SYMBOL:
            wanted = before[name][place] if symbol in "äz" else there[name][places[symbol]]
            assert torch.equal(here[name][place], wanted), (symbol, name)
    assert "the alphabet differs: 7 of 9 symbols keep their rows of" in caplog.text
    assert "drawn from the seed: 'ä', 'z'; not used here: 'a', 'c'" in caplog.text


def test_the_same_alphabet_keeps_the_output_layer_and_says_nothing_of_symbols(tmp_path):
    old, new = recogniser_trainer("ab "), recogniser_trainer("ab ")
    matching = initialise_from(old, new, tmp_path)
    assert set(matching.matched) == set(new.model.state_dict())
    assert matching.lines()[1:] == []


def test_an_alphabet_in_another_order_moves_the_rows(tmp_path):
    old, new = recogniser_trainer("ab"), recogniser_trainer("ba")
    initialise_from(old, new, tmp_path)
    there, here = old.model.state_dict(), new.model.state_dict()
    assert torch.equal(here["ctc_output.weight"][[4, 5]], there["ctc_output.weight"][[5, 4]])


def test_rows_can_be_left_out_like_any_weight(tmp_path):
    old, new = recogniser_trainer("ab"), recogniser_trainer("abc")
    matching = initialise_from(old, new, tmp_path, leave_out=["decoder.*"])
    assert matching.by_symbol.names == ("ctc_output.weight", "ctc_output.bias")
    assert all(name.startswith("decoder.") for name in matching.left_out)


def test_only_takes_a_part_of_the_weights(tmp_path):
    old, new = recogniser_trainer("ab"), recogniser_trainer("abc")
    output = new.model.ctc_output.weight.clone()
    matching = initialise_from(old, new, tmp_path, only=["encoder.*"])
    assert all(name.startswith("encoder.") for name in matching.matched)
    assert torch.equal(new.model.ctc_output.weight, output)
    with pytest.raises(UsageError, match=r"`only` has 'encodr\.\*', which matches no weight; did you mean 'encoder"):
        initialise_from(old, new, tmp_path, only=["encodr.*"])


def test_a_tokenizer_that_cannot_be_read_is_said(tmp_path, caplog):
    old, new = recogniser_trainer("ab"), recogniser_trainer("ab")
    old.train_data_loader.dataset.tokenizer = SentencePieceTokenizer(model=tmp_path / "gone.model")
    matching = initialise_from(old, new, tmp_path)
    assert set(matching.matched) == set(new.model.state_dict())
    assert "whether its symbols are those of this data is not known" in caplog.text
