"""An export that does not give the same texts is found out, and the part that is the cause is named."""

from __future__ import annotations

import json

import pytest
import torch
from tone_speech import MELS, write_corpus

from sonosco_like.data.features import LogMel
from sonosco_like.export.formats import ExportSettings
from sonosco_like.export.front import Front, make_normalization, make_transform
from sonosco_like.export.onnx_format import OnnxFormat
from sonosco_like.export.verification import compare
from sonosco_like.inference import load_recogniser
from sonosco_like.progress import no_progress

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture
def few(tmp_path):
    """A manifest of a few utterances, one of which cannot be read."""
    manifest = write_corpus(tmp_path, "few", 9, seed=5)
    missing = {"audio_filepath": "missing.wav", "duration": 1.0, "text": "a"}
    manifest.write_text(manifest.read_text() + json.dumps(missing) + "\n")
    return manifest


def written_from(run, folder, change=lambda made: None):
    made = OnnxFormat(load_recogniser(run, "cpu"), ExportSettings())
    change(made)
    folder.mkdir()
    made.write(folder)
    return made


def test_an_honest_export_agrees_and_unreadable_rows_are_counted(trained, few, tmp_path):
    made = written_from(trained("tds"), tmp_path / "exported")
    (found,), unreadable = compare(made, tmp_path / "exported", few, no_progress)
    assert found.agrees
    assert found.cause == ""
    assert (found.utterances, unreadable) == (9, 1)
    assert 0 < max(found.largest_differences.values()) < 1e-3, "It is computed by another program, and not copied."


def test_other_features_are_named_as_the_cause(trained, few, tmp_path):
    def spoil(made):
        wrong = make_transform(LogMel(mels=MELS, low_frequency=300.0))
        made.front = Front(wrong, make_normalization(made.recogniser.normalization))

    made = written_from(trained("tds"), tmp_path / "exported", spoil)
    (found,), _ = compare(made, tmp_path / "exported", few, no_progress)
    assert not found.agrees
    assert "They part in the features" in found.cause
    assert found.theirs.rate > found.ours.rate
    assert any(found.cause in line for line in found.lines())


def test_other_weights_are_named_as_the_cause(trained, few, tmp_path):
    made = written_from(trained("tds"), tmp_path / "exported")
    with torch.no_grad():
        made.recogniser.model.ctc_output.weight.mul_(-1)
    (found,), _ = compare(made, tmp_path / "exported", few, no_progress)
    assert not found.agrees
    assert "They part in the encoder: its output 'log_probs'" in found.cause


def test_another_search_is_named_as_the_cause(trained, few, tmp_path):
    made = written_from(trained("las"), tmp_path / "exported")
    with torch.no_grad():  # the decoder is no part of the encoder's numbers
        made.recogniser.model.decoder.output.weight.mul_(-1)
    (found,), _ = compare(made, tmp_path / "exported", few, no_progress)
    assert not found.agrees
    assert "They part in the search" in found.cause
    assert found.as_dict()["differing"][0].keys() == {"id", "reference", "ours", "exported"}
