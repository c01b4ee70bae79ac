"""Exported folders behind the server: the same words as those of the run, at the same times."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from trained_runs import Digits

import sonosco_like
from sonosco_like import load_transcriber
from sonosco_like.cli.serve import named_models
from sonosco_like.inference import DecoderSettings
from sonosco_like.inference.exporters import open_transcriber

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

PATIENCE = 120
FORMATS = ["onnx", "torch-export"]


@pytest.fixture(scope="module")
def exports(digits: Digits, tmp_path_factory):
    """An export of the digits in each format that has one graph from the waveform on."""
    folder = tmp_path_factory.mktemp("exports")
    for name in FORMATS:
        sonosco_like.export(digits.run, folder / name, name, int8=name == "onnx", verify=False)
    return folder


def test_the_server_answers_with_an_export_as_with_its_run(serve, digits, exports):
    script = exports / "onnx" / "transcribe.py"
    script.write_text(f"import pathlib\npathlib.Path({str(exports / 'executed')!r}).touch()\n")
    running = serve(*(exports / name for name in FORMATS), f"run={digits.run}", "--max-seconds", 60)
    with running.client() as client:
        about = client.get("/v1/models").json()["data"]
    assert [(each["id"], each["kind"]) for each in about] == [
        ("onnx", "onnx"),
        ("torch-export", "torch-export"),
        ("run", "run"),
    ]
    for field in ("architecture", "parameters", "sample_rate", "decoder", "weights"):
        assert len({each[field] for each in about}) == 1, field
    transcriber = load_transcriber(digits.run)
    for row in digits.rows()[:4]:
        answers = running.transcribe(digits.audio(row), model=[*FORMATS, "run"]).json()["results"]
        assert len(answers) == 3
        wanted = transcriber(digits.audio(row)).as_dict()
        assert wanted["words"]
        for found in answers:
            assert found["text"] == wanted["text"]
            for word, expected in zip(found["words"], wanted["words"], strict=True):
                assert word["word"] == expected["word"]
                assert (word["start"], word["end"]) == pytest.approx((expected["start"], expected["end"]), abs=0.002)
                assert word["confidence"] == pytest.approx(expected["confidence"], abs=0.01)
    several = running.transcribe(digits.audio(row), model="onnx", n_best=3).json()["results"][0]
    assert len(several["segments"][0]["hypotheses"]) == 3
    assert not (exports / "executed").exists()


def test_graphs_of_8_bits_are_taken_if_their_file_is_named_or_there_are_no_others(digits, exports, tmp_path):
    def heard(path):
        transcriber = open_transcriber(path, None, DecoderSettings(), None)
        return [transcriber(digits.audio(row)).as_dict()["segments"] for row in digits.rows()[:4]]

    whole, small = heard(exports / "onnx"), heard(exports / "onnx" / "model.int8.onnx")
    assert heard(exports / "onnx" / "model.onnx") == whole
    assert [[each["text"] for each in row] for row in small] == [[each["text"] for each in row] for row in whole]
    assert small != whole  # the confidences of rounded weights are others
    shutil.copytree(exports / "onnx", tmp_path / "small", ignore=shutil.ignore_patterns("model.onnx"))
    assert heard(tmp_path / "small") == small


def test_the_name_of_a_graph_is_that_of_its_folder():
    found = named_models(("las-onnx", "las-onnx/model.int8.onnx", "other/model.onnx", "tiny=las-onnx/model.int8.onnx"))
    assert list(found) == ["las-onnx", "las-onnx-int8", "other", "tiny"]


def test_a_long_recording_is_cut_as_for_the_run(digits, exports):
    parts = [soundfile.read(digits.audio(row), dtype="float32") for row in digits.rows()[:8]]
    samples, rate = np.concatenate([part for part, _ in parts]), parts[0][1]
    wanted = load_transcriber(digits.run, longest=5.0)(samples, rate)
    assert len(wanted.segments) > 2
    for name in FORMATS:
        found = open_transcriber(exports / name, None, DecoderSettings(), 5.0)(samples, rate)
        assert found.text == wanted.text
        assert [each.end for each in found.segments] == pytest.approx([each.end for each in wanted.segments], abs=0.002)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("broken", "cannot be used: "),
        ("foreign", "has no `sample_rate` in its metadata"),
        ("no graph", "neither a run folder nor a checkpoint"),
    ],
)
def test_a_folder_that_is_no_export_of_ours_is_refused_in_a_line(exports, tmp_path, damage, said):
    import onnx

    folder = tmp_path / "export"
    shutil.copytree(exports / "onnx", folder)
    if damage == "broken":
        (folder / "model.onnx").write_bytes(b"no graph")
    elif damage == "foreign":
        model = onnx.load(folder / "model.onnx")
        del model.metadata_props[:]
        onnx.save(model, folder / "model.onnx")
    else:
        for graph in folder.glob("*.onnx"):
            graph.unlink()
    command = [sys.executable, "-m", "sonosco_like", "serve", str(folder), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
