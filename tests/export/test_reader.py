"""Exported folders read again: the searches of this package find in their graphs what they find in the run."""

from __future__ import annotations

import pytest

import sonosco_like
from sonosco_like import load_transcriber
from sonosco_like.decoding import AttentionBeamDecoder
from sonosco_like.inference import DecoderSettings, load_recogniser
from sonosco_like.inference.exporters import open_transcriber

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    ("kind", "format"),
    [("las", "onnx"), ("las", "torch-export"), ("las", "sherpa"), ("conformer", "onnx"), ("conformer", "sherpa")],
)
def test_every_form_of_export_hears_what_the_recogniser_hears(format, kind, trained, tones, rows, tmp_path):
    if format == "sherpa":
        pytest.importorskip("sherpa_onnx")
    sonosco_like.export(trained(kind), tmp_path / "export", format, verify=False)
    decode = DecoderSettings(kind="ctc") if format == "sherpa" else None
    paths = [tones / row["audio_filepath"] for row in rows[:12]]
    wanted = load_transcriber(trained(kind), "cpu", decode).transcribe(paths)
    exported = open_transcriber(tmp_path / "export", None, DecoderSettings(), None)
    for found, expected in zip(exported.transcribe(paths), wanted, strict=True):
        assert found.text == expected.text
        times = [(word.start, word.end, word.confidence) for word in expected.words]
        assert [(word.start, word.end, word.confidence) for word in found.words] == [
            pytest.approx(each, abs=0.01) for each in times
        ]
    assert exported.about["kind"] == format


def test_an_export_that_takes_features_and_searches_that_it_does_not_have(trained, tones, rows, tmp_path):
    recogniser = load_recogniser(trained("las"), "cpu")
    recogniser.decoder = AttentionBeamDecoder(beam_size=4, ctc_weight=0.3)
    sonosco_like.export(recogniser, tmp_path / "export", verify=False, input="features")
    paths = [tones / row["audio_filepath"] for row in rows[:6]]
    for settings in (DecoderSettings(n_best=3), DecoderSettings(kind="ctc", beam=4, n_best=3)):
        wanted = load_transcriber(trained("las"), "cpu", AttentionBeamDecoder(beam_size=4, ctc_weight=0.3))
        wanted.decoder = settings.apply(wanted.decoder, wanted.model)
        exported = open_transcriber(tmp_path / "export", None, settings, None)
        assert n_best(exported, paths) == n_best(wanted, paths)


def n_best(transcriber, paths):
    """The hypotheses of each recording."""
    found = [each.segments[0].hypotheses for each in transcriber.transcribe(paths)]
    assert [len(hypotheses) for hypotheses in found] == [3] * len(paths)
    return [[hypothesis.text for hypothesis in hypotheses] for hypotheses in found]
