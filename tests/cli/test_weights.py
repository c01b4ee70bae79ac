"""`sonosco weights`: facts for people and for programs, and lines that make a config which loads the folder."""

from __future__ import annotations

import json

import pytest
import torch
from foreign_weights import save_foreign, save_vocabulary, wav2vec2, whisper

from sonosco_like.cli import run
from sonosco_like.models import Recogniser
from sonosco_like.serialization import dumps, loads
from sonosco_like.training.initialisation import initialise

VARIANTS = {
    "wav2vec2": lambda: wav2vec2("Wav2Vec2ForCTC"),
    "xls-r": lambda: wav2vec2("Wav2Vec2ForPreTraining", feat_extract_norm="layer", do_stable_layer_norm=True),
    "hubert": lambda: wav2vec2("HubertModel"),
    "whisper": whisper,
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_lines_it_prints_make_a_model_that_the_weights_fit(name, tmp_path, capsys):
    folder = save_foreign(VARIANTS[name](), tmp_path / name)
    capsys.readouterr()
    assert run(["weights", str(folder)]) == 0
    shown = capsys.readouterr().out
    for line in ("licence       not named", "files         model.safetensors, 0.", "F32)", "parameters"):
        assert line in shown
    text = "class: Experiment\nname: x\n" + shown.partition("In a config:\n")[2]
    import yaml

    config = yaml.safe_load(text)
    assert config["init_from"] == str(folder)
    dataset = config["trainer"]["train_data_loader"]["dataset"]
    assert config["trainer"]["val_data_loader"]["dataset"] == dataset
    given = {**dataset, "class": "AudioDataset", "manifest": "a.jsonl"}
    features = loads(json.dumps(given)).features
    sizes = {"vocabulary_size": 8, "features": features.size}
    model = loads(json.dumps({**config["trainer"]["model"], **sizes}), Recogniser)
    matching = initialise(model, folder, None, features)
    assert all(each.startswith("ctc_output") for each in matching.missing)
    assert not any("features" in each for each in matching.remarks)


def test_json_names_everything(tmp_path, capsys):
    save_vocabulary(tmp_path / "w", {"<pad>": 0, "|": 4, "a": 5})
    folder = save_foreign(wav2vec2("Wav2Vec2ForCTC"), tmp_path / "w")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    capsys.readouterr()
    assert run(["weights", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["family"], facts["licence"], facts["dtypes"]) == ("wav2vec2", "mit", {"F32": 49})
    assert facts["architectures"] == ["Wav2Vec2ForCTC"]
    assert facts["features"] == {"class": "Waveform"}
    assert facts["symbols"][:6] == ["<blank>", "<row 1>", "<row 2>", "<row 3>", " ", "a"]
    model = loads(json.dumps({"class": "Recogniser", "vocabulary_size": 8, "features": 1, "encoder": facts["encoder"]}))
    assert facts["parameters"] == sum(each.numel() for each in model.encoder.parameters())
    assert "Wav2Vec2Encoder" in dumps(model, state=False)


def test_pickles_and_unknown_families_are_a_wrong_usage(tmp_path, capsys):
    torch.save({}, tmp_path / "model.pt")
    assert run(["weights", str(tmp_path)]) == 2
    assert "can run a program when it is opened (model.pt)" in capsys.readouterr().err
    assert run(["weights", str(tmp_path / "nowhere")]) == 2
    assert "nowhere does not exist; give the folder" in capsys.readouterr().err
