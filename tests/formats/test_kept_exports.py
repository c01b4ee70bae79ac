"""A folder for inference of every format there ever was is kept here, and is read for ever.

`export-1` was made by `ExportForInference` before the redraw of the package, when the exported object was an
`InferenceModel`: the config of `run-1` with 16 hidden units, a moving average and no dropout, trained for 40 epochs.
`expected.json` holds the texts and confidences that the code of that time gave for the recordings of `run-1`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sonosco_like.inference import load_recogniser, load_transcriber
from sonosco_like.inference.audio_stream import open_recordings

HERE = Path(__file__).parent
EXPORTS = sorted(HERE.glob("export-*"))
RECORDINGS = HERE / "run-1" / "data"


@pytest.fixture(params=EXPORTS, ids=lambda path: path.name)
def kept(request):
    return request.param


def test_a_kept_export_is_read(kept):
    recogniser = load_recogniser(kept / "inference", "cpu")
    assert type(recogniser.model).__name__ == "DeepSpeech2"
    assert type(recogniser.decoder).__name__ == "GreedyCTCDecoder"
    assert recogniser.tokenizer.characters == "ab "
    assert recogniser.weights == "averaged"


def test_a_kept_export_transcribes_as_it_did(kept):
    expected = json.loads((kept / "expected.json").read_text())
    transcriber = load_transcriber(kept / "inference", "cpu")
    with open_recordings([RECORDINGS]) as recordings:
        found = {Path(each.name).name: each for each in transcriber.stream(recordings)}
    assert {name: each.text for name, each in found.items()} == {name: row["text"] for name, row in expected.items()}
    for name, row in expected.items():
        assert found[name].confidence == pytest.approx(row["confidence"], abs=0.01)
