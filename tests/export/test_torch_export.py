"""The format `torch-export`: torch alone loads it, at lengths and batch sizes that it was not traced with."""

from __future__ import annotations

import pytest
import torch
from tone_speech import KINDS

import sonosco_like
from sonosco_like.errors import UsageError
from sonosco_like.export.torch_format import _whole_recurrent_layers

TRANSCRIBE_ALL = """
from transcribe import Recogniser, read_audio

recogniser = Recogniser(sys.argv[1])
waveforms = [read_audio(path)[0] for path in sys.argv[2:]]
print(recogniser.texts(waveforms[:1])[0])
for start in range(1, len(waveforms), 11):
    print("\\n".join(recogniser.texts(waveforms[start : start + 11])))
"""


@pytest.mark.parametrize(
    "kind", [kind if kind in ("las", "deepspeech2") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_torch_without_this_package_hears_the_same_texts(kind, trained, tones, rows, texts_of_run, run_alone, tmp_path):
    folder = tmp_path / "exported"
    sonosco_like.export(trained(kind), folder, "torch-export", verify=False)
    paths = [tones / row["audio_filepath"] for row in rows]
    heard = run_alone(TRANSCRIBE_ALL, folder, *paths, refused=["sonosco_like"])
    assert heard == texts_of_run(trained(kind))
    assert len(set(heard)) > 50


def test_it_is_verified_like_the_other_formats(trained, tones, tmp_path):
    exported = sonosco_like.export(
        trained("deepspeech2"), tmp_path / "exported", "torch-export", verify=tones / "val.jsonl", input="features"
    )
    assert exported.agrees
    assert exported.comparisons[0].name == "model.pt2 in torch"
    assert exported.comparisons[0].utterances == 100
    names = {path.name for path in (tmp_path / "exported").iterdir()}
    assert names == {"model.pt2", "transcribe.py", "README.md", "verification.json"}


def test_small_weights_are_refused(trained, tmp_path):
    with pytest.raises(UsageError, match=r"leave out --int8"):
        sonosco_like.export(trained("tds"), tmp_path / "exported", "torch-export", int8=True)


def test_recurrent_layers_of_torch_are_as_before_after_an_export():
    layer, frames = torch.nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3)
    before = layer(frames)[0]
    with _whole_recurrent_layers():
        pass
    assert torch.equal(layer(frames)[0], before)
    assert torch.ops.aten.lstm.input.py_kernels
