"""`sonosco export`: what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

import sonosco_like
from sonosco_like import serializable
from sonosco_like.cli import run
from sonosco_like.errors import UsageError
from sonosco_like.inference import load_recogniser
from sonosco_like.models import DeepSpeech2Encoder

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def test_a_run_is_exported_and_verified_on_a_manifest(digits, tmp_path, capsys):
    folder = tmp_path / "exported"
    assert run(["export", str(digits.run), "--output", str(folder), "--verify", str(digits.train)]) == 0
    said = capsys.readouterr().out
    assert "model.onnx in onnxruntime: 40 of 40 texts are the same; WER " in said
    assert {path.name for path in folder.iterdir()} == {
        "model.onnx", "transcribe.py", "README.md", "verification.json",
    }  # fmt: skip
    found = json.loads((folder / "verification.json").read_text())
    assert found["agrees"]
    assert found["comparisons"][0]["wer"] == found["comparisons"][0]["wer_of_the_recogniser"] < 0.5


def test_the_function_can_be_called_whether_its_package_was_imported_before_or_not(run_python):
    calls = "try:\n    sonosco_like.export('nowhere', 'out', 'tflite')\nexcept ValueError as error:\n    print(error)\n"
    for first in ("import sonosco_like", "import sonosco_like\nimport sonosco_like.export.exporter"):
        done = run_python(f"{first}\n{calls}")
        assert done.stdout.startswith("`format` must be one of onnx, sherpa, torch-export, got 'tflite'"), done.stderr


def test_a_run_whose_validation_data_is_gone_is_exported_with_a_note(digits, tmp_path, capsys):
    assert run(["export", str(digits.run), "--output", str(tmp_path / "exported")]) == 0
    assert "The export was not verified: the validation manifest of the run is not here" in capsys.readouterr().out


@serializable
class MoodyEncoder(DeepSpeech2Encoder):
    """Does something else with two utterances, as many as graphs are traced with."""

    def forward(self, features_BTF, feature_lengths_B):
        encoded_BSD, lengths_B = super().forward(features_BTF, feature_lengths_B)
        return (-encoded_BSD if len(features_BTF) == 2 else encoded_BSD), lengths_B


@serializable
class NumpyEncoder(DeepSpeech2Encoder):
    """Leaves torch for NumPy."""

    def forward(self, features_BTF, feature_lengths_B):
        encoded_BSD, lengths_B = super().forward(torch.from_numpy(features_BTF.numpy()), feature_lengths_B)
        return torch.from_numpy(list(encoded_BSD)), lengths_B  # fails


def with_encoder(run_folder, kind):
    recogniser = load_recogniser(run_folder, "cpu")
    recogniser.model.encoder.__class__ = kind
    return recogniser


def test_a_model_that_cannot_be_traced_is_refused_in_a_sentence(digits, tmp_path):
    with pytest.raises(UsageError, match=r"DeepSpeech2 cannot be written as ONNX: TypeError"):
        sonosco_like.export(with_encoder(digits.run, NumpyEncoder), tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []


def test_texts_that_differ_are_exit_code_1_and_the_result_is_kept(digits, tmp_path, capsys):
    from sonosco_like.cli.export import _report

    recogniser = with_encoder(digits.run, MoodyEncoder)
    exported = sonosco_like.export(recogniser, tmp_path / "exported", verify=digits.train)
    assert _report(exported, tmp_path / "exported") == 1
    captured = capsys.readouterr()
    assert "They part in the encoder" in captured.out
    assert "the texts of the export differ from those of the recogniser" in captured.err
    assert not json.loads((tmp_path / "exported" / "verification.json").read_text())["agrees"]


REFUSED = {
    "--opset 9": "`opset` must be from 14 to 20, got 9",
    "--verify missing.jsonl": "There is no manifest missing.jsonl",
    "--decode attention": "has no attention decoder",
}


@pytest.mark.parametrize("options", REFUSED)
def test_wrong_options_are_refused_and_nothing_is_written(options, digits, tmp_path, capsys):
    assert run(["export", str(digits.run), "--output", str(tmp_path / "exported"), *options.split()]) == 2
    said = capsys.readouterr().err
    assert REFUSED[options] in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_replaced_only_when_told(digits, tmp_path, capsys):
    folder = tmp_path / "exported"
    folder.mkdir()
    (folder / "precious").write_text("keep")
    command = ["export", str(digits.run), "--output", str(folder), "--no-verify"]
    assert run(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert run([*command, "--force"]) == 2
    assert "it holds more than an export: precious" in capsys.readouterr().err
    assert (folder / "precious").read_text() == "keep"
    (folder / "precious").rename(folder / "tokens.txt")
    assert run([*command, "--force"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "model.onnx", "transcribe.py"]


def test_a_missing_package_is_named_with_the_way_to_install_it(digits, tmp_path):
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "from sonosco_like.cli import main; main(sys.argv[1:])"
    )  # fmt: skip
    command = [sys.executable, "-c", code, "export", str(digits.run), "--output", str(tmp_path / "exported")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "needs the package onnxruntime" in ended.stderr
    assert "sonosco_like[export]" in ended.stderr


def test_a_full_disk_is_told_and_leaves_nothing_behind(digits, tmp_path, capsys):
    place = tmp_path / "disk"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        assert run(["export", str(digits.run), "--output", str(place / "exported"), "--no-verify", "--int8"]) == 1
        assert "No space left on device" in capsys.readouterr().err
        assert list(place.iterdir()) == []
    finally:
        subprocess.run(["umount", str(place)], check=True)
