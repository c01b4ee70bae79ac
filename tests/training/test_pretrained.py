"""`init_from` a folder that others published: strict comparison, parts by pattern, rows of the output layer."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from foreign_weights import save_foreign, save_vocabulary, wav2vec2, whisper

from sonosco_like.data.features import LogMel
from sonosco_like.data.pretrained_features import Waveform, WhisperLogMel
from sonosco_like.data.text import Alphabet
from sonosco_like.errors import UsageError
from sonosco_like.models import DeepSpeech2, Recogniser, Wav2Vec2Encoder, WhisperEncoder
from sonosco_like.training.initialisation import InitialWeights, initialise

ALPHABET = Alphabet(characters="abc ")  # with four special symbols: eight labels
VOCABULARY = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "c": 6, "|": 7}


def model(tokenizer: Alphabet = ALPHABET, **fields) -> Recogniser:
    sizes = {
        "size": 32, "layers": 2, "heads": 2, "inner_size": 48, "channels": [16] * 3, "kernels": [10, 3, 2],
        "strides": [5, 2, 2], "position_kernel": 16, "position_groups": 4,
    }  # fmt: skip
    torch.manual_seed(7)
    return Recogniser(vocabulary_size=tokenizer.size, features=1, encoder=Wav2Vec2Encoder(**{**sizes, **fields}))


@pytest.fixture
def folder(tmp_path) -> Path:
    """A Wav2Vec2 with an output layer over the characters of VOCABULARY."""
    save_vocabulary(tmp_path / "w2v", VOCABULARY)
    return save_foreign(wav2vec2("Wav2Vec2ForCTC"), tmp_path / "w2v")


def head_of(reference) -> tuple[torch.Tensor, torch.Tensor]:
    return reference.lm_head.weight, reference.lm_head.bias


def test_the_encoder_and_an_output_layer_of_the_same_alphabet_give_the_logits_of_the_reference(folder):
    reference, own = wav2vec2("Wav2Vec2ForCTC"), model(Alphabet(characters="abc "))
    matching = initialise(own, folder, ALPHABET, Waveform())
    assert (matching.missing, matching.unexpected, matching.remarks) == ((), (), ())
    samples_BN = torch.randn(1, 3000, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        encoded_BSD, _ = own.eval().encode(samples_BN[:, :, None], torch.tensor([3000]))
        got_BSV, expected_BSV = own.ctc_logits(encoded_BSD), reference(samples_BN).logits
    # The order of the labels is that of our alphabet.
    order = [VOCABULARY[{"<blank>": "<pad>", " ": "|"}.get(symbol, symbol)] for symbol in ALPHABET.symbols]
    torch.testing.assert_close(got_BSV, expected_BSV[:, :, order], atol=1e-5, rtol=0)


def test_rows_are_taken_symbol_by_symbol_and_the_others_are_named(folder, caplog):
    reference, tokenizer = wav2vec2("Wav2Vec2ForCTC"), Alphabet(characters=" bxa")
    own = model(tokenizer)
    before = own.ctc_output.weight.clone()
    with caplog.at_level(logging.INFO):
        initialise(own, folder, tokenizer, Waveform())
    weight, bias = head_of(reference)
    rows = [0, 1, 2, 3, 7, 5, None, 4]
    for row, theirs in enumerate(rows):
        expected = before[row] if theirs is None else weight[theirs]
        assert torch.equal(own.ctc_output.weight[row], expected), tokenizer.symbols[row]
        assert theirs is None or own.ctc_output.bias[row] == bias[theirs]
    assert "7 of 8 symbols keep their rows of ctc_output.weight, ctc_output.bias" in caplog.text
    assert "drawn from the seed: 'x'; not used here: 'c'" in caplog.text


def test_a_vocabulary_in_capital_letters_serves_a_text_in_small_ones(tmp_path, caplog):
    capital = {text.upper() if len(text) == 1 else text: label for text, label in VOCABULARY.items()}
    save_vocabulary(tmp_path / "w2v", capital)
    save_foreign(reference := wav2vec2("Wav2Vec2ForCTC"), tmp_path / "w2v")
    own = model()
    with caplog.at_level(logging.INFO):
        initialise(own, tmp_path / "w2v", ALPHABET)
    assert torch.equal(own.ctc_output.weight[4], reference.lm_head.weight[4])
    assert "3 capital letters of its vocab.json are taken for the small letters of the data" in caplog.text


def test_an_output_layer_whose_characters_are_unknown_is_not_taken(tmp_path, caplog):
    save_foreign(wav2vec2("Wav2Vec2ForCTC"), tmp_path / "w2v")
    own = model()
    before = own.ctc_output.weight.clone()
    with caplog.at_level(logging.INFO):
        matching = initialise(own, tmp_path / "w2v", ALPHABET)
    assert torch.equal(own.ctc_output.weight, before)
    assert matching.missing == ("ctc_output.weight", "ctc_output.bias")
    assert matching.unexpected == ("lm_head.weight", "lm_head.bias")
    assert "the output layer lm_head is not taken: there is no vocab.json" in caplog.text


def test_parts_are_taken_by_pattern(folder):
    own = model()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    initialise(own, InitialWeights(run=folder, only=["encoder.*"], leave_out=["encoder.transformer.layers.1.*"]))
    for name, value in own.state_dict().items():
        kept = name.startswith(("ctc_output", "encoder.transformer.layers.1."))
        same = torch.equal(value, before[name])
        assert same == kept or value.std() == 0, name  # norms begin with ones here and there


def test_all_sizes_that_differ_are_listed_at_once_with_the_encoder_to_write(folder):
    with pytest.raises(UsageError) as caught:
        initialise(model(size=64, layers=3, norm="layer"), folder, ALPHABET)
    text = str(caught.value)
    assert "3 fields of the Wav2Vec2Encoder differ from" in text
    assert "`size` is 64, and `hidden_size` is 32" in text
    assert "`layers` is 3, and `num_hidden_layers` is 2" in text
    assert "`norm` is layer, and `feat_extract_norm` is group" in text
    line = text.splitlines()[-1].strip()
    assert line.startswith("encoder: {class: Wav2Vec2Encoder, size: 32, layers: 2, heads: 2, inner_size: 48, channels:")


@pytest.mark.parametrize("encoder", [WhisperEncoder(size=32, layers=1, heads=2, inner_size=32), None])
def test_another_encoder_is_refused(folder, encoder):
    own = (
        DeepSpeech2(vocabulary_size=8, features=80)
        if encoder is None
        else Recogniser(vocabulary_size=8, features=80, encoder=encoder)
    )
    with pytest.raises(UsageError, match=r"the weights of a Wav2Vec2Encoder, and the model has the encoder \w+Encoder"):
        initialise(own, folder, ALPHABET)


def test_mel_bands_of_another_number_are_refused_and_other_features_are_remarked(tmp_path, caplog):
    folder = save_foreign(whisper(), tmp_path / "whisper")
    encoder = {"size": 32, "layers": 2, "heads": 2, "inner_size": 48, "positions": 100}
    with pytest.raises(UsageError, match=r"features have 40 values per frame, and `num_mel_bins` is 80"):
        initialise(Recogniser(vocabulary_size=8, features=40, encoder=WhisperEncoder(**encoder)), folder, ALPHABET)
    own = Recogniser(vocabulary_size=8, features=80, encoder=WhisperEncoder(**encoder))
    with caplog.at_level(logging.INFO):
        matching = initialise(own, folder, ALPHABET, LogMel())
    assert "features of the data are LogMel, and the encoder was trained on {class: WhisperLogMel}" in caplog.text
    assert not initialise(own, folder, ALPHABET, WhisperLogMel(padded_seconds=30)).remarks
    assert len([name for name in matching.unexpected if name.startswith("model.decoder") or "decoder" in name]) > 10


def test_samples_that_are_not_normalized_as_in_the_pretraining_are_remarked(folder):
    (folder / "preprocessor_config.json").write_text(json.dumps({"do_normalize": False, "sampling_rate": 16000}))
    remarks = initialise(model(), folder, ALPHABET, Waveform()).remarks
    assert remarks == ("the encoder was trained on {class: Waveform, normalize: false}, and here `normalize` is true",)


def test_a_folder_that_lacks_a_tensor_is_refused_and_the_model_keeps_its_own(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = save_foreign(wav2vec2(), tmp_path / "w2v")
    tensors = load_file(folder / "model.safetensors")
    lacking = [name for name in tensors if "layers.1.attention.q_proj" in name]
    save_file({name: each for name, each in tensors.items() if name not in lacking}, folder / "model.safetensors")
    own = model()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    with pytest.raises(UsageError, match=r"init_from: .* lacks 2 of the \d+ tensors(.|\n)*layers.1.attention.q_proj"):
        initialise(own, folder, ALPHABET)
    assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())
