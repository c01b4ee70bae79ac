"""Folders of foreign weights: old and new names, shards, small floats; damaged, hostile or pickled ones are refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from foreign_weights import save_foreign, save_vocabulary, wav2vec2, whisper, with_old_names
from safetensors.torch import load_file, save_file

from sonosco_like.errors import UsageError
from sonosco_like.models.pretrained import is_foreign, read_weights


@pytest.fixture
def folder(tmp_path) -> Path:
    return save_foreign(wav2vec2(), tmp_path / "weights")


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def change_config(folder: Path, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def test_old_names_of_the_position_kernel_are_the_same_weights(folder):
    expected = read_weights(folder).tensors
    tensors = tensors_of(folder)
    got = read_weights(with_old_names(folder)).tensors
    assert len(tensors_of(folder).keys() - tensors) == 2
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[name], expected[name]) for name in got)
    save_file({**tensors, **tensors_of(folder)}, folder / "model.safetensors")
    with pytest.raises(UsageError, match="more than once, under old and new names"):
        read_weights(folder)


@pytest.mark.parametrize("kind", ["Wav2Vec2Model", "Wav2Vec2ForCTC", "Wav2Vec2ForPreTraining"])
def test_shards_and_heads_in_front_of_the_names_are_the_same_weights(kind, tmp_path):
    reference = wav2vec2(kind)
    whole = read_weights(save_foreign(reference, tmp_path / "whole"))
    shards = read_weights(save_foreign(reference, tmp_path / "shards", max_shard_size="20KB"))
    assert len(shards.folder.files) > 2
    assert all(torch.equal(shards.tensors[name], each) for name, each in whole.tensors.items())
    heads = {"Wav2Vec2Model": 0, "Wav2Vec2ForCTC": 2, "Wav2Vec2ForPreTraining": 7}
    assert len(whole.unused) + 2 * (whole.output is not None) == heads[kind]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_floats_of_other_sizes_become_float32(folder, dtype):
    expected = read_weights(folder).tensors
    save_file({name: each.to(dtype) for name, each in tensors_of(folder).items()}, folder / "model.safetensors")
    for name, tensor in read_weights(folder).tensors.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, expected[name].to(dtype).float())


def test_weights_of_eight_bits_are_refused(folder):
    tensors = tensors_of(folder)
    name = next(iter(tensors))
    save_file({**tensors, name: tensors[name].to(torch.int8)}, folder / "model.safetensors")
    with pytest.raises(UsageError, match="holds int8; floats of 16, 32 or 64 bits are expected"):
        _ = read_weights(folder).tensors


def test_the_symbols_of_an_output_layer_are_in_our_words(tmp_path):
    save_vocabulary(tmp_path / "w", {"_": 3, "[UNK]": 1, "é": 0, "[PAD]": 5, "a": 7, "far": 99}, delimiter="_")
    save_foreign(wav2vec2("Wav2Vec2ForCTC", pad_token_id=5), tmp_path / "w")
    output = read_weights(tmp_path / "w").output
    assert output.symbols == ["é", "<unk>", "<row 2>", " ", "<row 4>", "<blank>", "<row 6>", "a"]
    (tmp_path / "w" / "vocab.json").write_text(json.dumps({"eng": {"a": 0}, "fra": {"b": 0}}))
    assert read_weights(tmp_path / "w").output.symbols is None  # one vocabulary for each language, as MMS has it


def test_the_features_are_those_of_either_file_of_the_preprocessor(folder):
    assert read_weights(folder).features == {"sample_rate": 16000, "normalize": True}
    (folder / "processor_config.json").write_text(json.dumps({"feature_extractor": {"do_normalize": False}}))
    assert read_weights(folder).features["normalize"] is False
    (folder / "preprocessor_config.json").write_text(json.dumps({"do_normalize": True, "sampling_rate": 8000}))
    assert read_weights(folder).features == {"sample_rate": 8000, "normalize": True}


def test_the_licence_is_read_from_the_readme_or_the_config(folder):
    assert read_weights(folder).folder.licence == ""
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: cc-by-nc-4.0\n---\n# Model\nlicense: none\n")
    assert read_weights(folder).folder.licence == "cc-by-nc-4.0"
    change_config(folder, license="mit\x1b[31m")
    assert read_weights(folder).folder.licence == "mit[31m"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "wavlm"}, "model_type 'wavlm'.*There are encoders for wav2vec2, hubert, whisper"),
        ({"model_type": "hubrt"}, "did you mean 'hubert'"),
        ({"model_type": None}, "model_type 'None'"),
        ({"hidden_size": 64}, "tensors have another shape: .*32.* in the file"),
        ({"num_hidden_layers": 3}, r"lacks 16 of the \d+ tensors that its config needs"),
        ({"hidden_size": "big"}, "A size is 'big', but `size` must be like 768"),
        ({"hidden_size": 10**15}, "A size is"),
        ({"num_hidden_layers": 10**9}, "A size is"),
        ({"conv_dim": [16] * 10**4}, "A size is"),
        ({"hidden_act": "relu"}, "hidden_act: 'relu', and Wav2Vec2Encoder can only do 'gelu'"),
        ({"adapter_attn_dim": 16}, "has no adapters. Take a model without them, such as mms-300m"),
        ({"add_adapter": True}, "add_adapter: True"),
    ],
)
def test_a_config_that_no_encoder_fits_is_refused(folder, changes, expected):
    change_config(folder, **changes)
    with pytest.raises(UsageError, match=expected):
        read_weights(folder)


def test_a_whisper_of_other_mel_bands_is_refused_as_a_shape(tmp_path):
    folder = save_foreign(whisper(), tmp_path / "w")
    change_config(folder, num_mel_bins=128)
    with pytest.raises(UsageError, match=r"conv1.weight \(32 x 80 x 3 in the file, 32 x 128 x 3 by the config\)"):
        read_weights(folder)
    change_config(folder, num_mel_bins=-1)
    with pytest.raises(UsageError, match="number of mel bands must be a whole number, got '-1'"):
        read_weights(folder)


def test_pickles_are_refused_with_the_way_to_convert_them(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "wav2vec2"}')
    torch.save({}, tmp_path / "pytorch_model.bin")
    for path in (tmp_path, tmp_path / "pytorch_model.bin"):
        assert is_foreign(path)
        with pytest.raises(
            UsageError, match=r"can run a program when it is opened \(pytorch_model.bin\)(.|\n)*save_pre"
        ):
            read_weights(path)
    (tmp_path / "parakeet.nemo").write_bytes(b"tar")
    with pytest.raises(UsageError, match="NeMo"):
        read_weights(tmp_path / "parakeet.nemo")


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "model.bin", 5])
def test_an_index_cannot_lead_out_of_the_folder(folder, name):
    shards = dict.fromkeys(tensors_of(folder), name)
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(UsageError, match="Only safetensors files of the folder itself are read"):
        read_weights(folder)


def test_what_git_leaves_in_place_of_a_large_file_is_named(folder):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 377664473\n"
    (folder / "model.safetensors").write_text(pointer)
    with pytest.raises(UsageError, match=r"pointer of Git LFS(.|\n)*`git lfs pull`"):
        read_weights(folder)


def test_what_is_damaged_is_named(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:5000])
    with pytest.raises(UsageError, match=r"model.safetensors is not a whole safetensors file(.|\n)*Fetch it again"):
        read_weights(folder)
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(UsageError, match="named pipe"):
        read_weights(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"holds no weights: model.safetensors"):
        read_weights(folder)


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000, '{"a": 1' + " " * (17 << 20) + "}"])
def test_a_config_that_is_no_object_is_named(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(UsageError, match=r"config.json (is not JSON|must hold an object|cannot be read)"):
        read_weights(folder)


def test_a_shard_that_is_missing_or_another_is_named(tmp_path):
    folder = save_foreign(wav2vec2(), tmp_path / "w", max_shard_size="20KB")
    first = sorted(folder.glob("*.safetensors"))[0]
    tensors = load_file(first)
    save_file(dict(list(tensors.items())[1:]), first)
    with pytest.raises(UsageError, match=r"do not agree about 1 tensors(.|\n)*not whole"):
        read_weights(folder)
    first.unlink()
    with pytest.raises(UsageError, match=f"{first.name} is missing, and .* needs it"):
        read_weights(folder)


def test_a_run_of_ours_is_not_foreign(tmp_path):
    assert not is_foreign(tmp_path)
    (tmp_path / "model.ckpt").write_bytes(b"")
    assert is_foreign(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    assert not is_foreign(tmp_path)
