"""The format `onnx`: the same texts in a process that has neither torch nor this package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tone_speech import COMMON, KINDS, loader

import sonosco_like
from sonosco_like.callbacks import ExportForInference
from sonosco_like.decoding import AttentionBeamDecoder, GreedyAttentionDecoder, GreedyCTCDecoder
from sonosco_like.edits import count_errors
from sonosco_like.inference import load_recogniser
from sonosco_like.losses import CTCLoss
from sonosco_like.models import TDS, LowRankAdapters
from sonosco_like.optim import AdamW
from sonosco_like.training import Experiment, ModelTrainer, seed_everything

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TRANSCRIBE_ALL = """
import wave
import numpy
from transcribe import Recogniser, read_audio

recogniser = Recogniser(sys.argv[1])
waveforms = [read_audio(path)[0] for path in sys.argv[2:]]
for start in range(0, len(waveforms), 10):
    print("\\n".join(recogniser.texts(waveforms[start : start + 10])))
"""


def utterances(tones, rows):
    return [tones / row["audio_filepath"] for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_without_torch_a_batch_of_each_kind_has_the_same_texts(
    kind, trained, tones, rows, texts_of_run, run_alone, tmp_path
):
    folder = tmp_path / "exported"
    exported = sonosco_like.export(trained(kind), folder, verify=False)
    heard = run_alone(TRANSCRIBE_ALL, folder, *utterances(tones, rows))
    expected = texts_of_run(trained(kind))
    assert heard == expected
    assert len(set(heard)) > 50, "A recogniser that always hears the same would prove nothing."
    assert exported.notes == []


def test_a_run_with_adapters_is_exported_and_used_with_merged_ones(
    trained, tones, rows, texts_of_run, run_alone, tmp_path
):
    seed_everything(1)
    model = KINDS["tds"][0]()
    names = set(model.state_dict())
    tuned = TDS(**COMMON, encoder=model.encoder, attention_decoder=None, ctc=True, adapters=LowRankAdapters(rank=4))
    trainer = ModelTrainer(
        model=tuned, loss=CTCLoss(), epochs=1, train_data_loader=loader(tones / "train.jsonl"),
        val_data_loader=loader(tones / "val.jsonl"), decoder=GreedyCTCDecoder(), optimizer=AdamW(lr=0.03),
        test_step=None, callbacks=[ExportForInference(path="used")],
    )  # fmt: skip
    Experiment(name="tuned", trainer=trainer, init_from=trained("tds")).start(tmp_path / "run")
    unmerged = {each.id: " ".join(each.hypothesis.split()) for each in trainer.predict(trainer.val_data_loader)}
    expected = [unmerged[Path(row["audio_filepath"]).stem] for row in rows]
    assert expected != texts_of_run(trained("tds")), "Adapters that change nothing would prove nothing."
    for place in ("", "used"):
        recogniser = load_recogniser(tmp_path / "run" / place, "cpu")
        assert recogniser.model.adapters is None
        assert set(recogniser.model.state_dict()) == names
        assert texts_of_run(tmp_path / "run" / place) == expected
    assert "adapters: null" in (tmp_path / "run" / "used" / "trainer.yaml").read_text()
    sonosco_like.export(tmp_path / "run", tmp_path / "exported", verify=False)
    assert run_alone(TRANSCRIBE_ALL, tmp_path / "exported", *utterances(tones, rows)) == expected


DECODERS = {
    "ctc": GreedyCTCDecoder(),
    "greedy": GreedyAttentionDecoder(),
    "beam": AttentionBeamDecoder(beam_size=5),
    "beam-with-all": AttentionBeamDecoder(
        beam_size=4, ctc_weight=0.5, ctc_candidates=5, length_power=0.6, coverage_weight=0.1, end_threshold=1.5
    ),
}


@pytest.mark.parametrize("name", DECODERS)
def test_every_search_is_the_one_of_the_decoder(name, trained, tones, rows, texts_of_run, run_alone, tmp_path):
    recogniser = load_recogniser(trained("las"), "cpu")
    recogniser.decoder = DECODERS[name]
    sonosco_like.export(recogniser, tmp_path / "exported", verify=False)
    heard = run_alone(TRANSCRIBE_ALL, tmp_path / "exported", *utterances(tones, rows))
    assert heard == texts_of_run(trained("las"), DECODERS[name])


def test_the_script_transcribes_files_and_names_those_that_it_cannot_read(trained, tones, rows, run_alone, tmp_path):
    folder = tmp_path / "exported"
    sonosco_like.export(trained("tds"), folder, verify=False)
    first = utterances(tones, rows)[0]
    (tmp_path / "broken.wav").write_bytes(b"no audio")
    soundfile.write(tmp_path / "slow.wav", np.zeros(800), 8000)
    code = "import transcribe; sys.argv[1:2] = []; print('code', transcribe.main())"
    assert run_alone(code, folder, first) == [rows[0]["text"], "code 0"]
    lines = run_alone(code, folder, first, tmp_path / "broken.wav", tmp_path / "slow.wav", tmp_path / "no.wav")
    assert lines == [f"{first}: {rows[0]['text']}", "code 1"]


@pytest.mark.parametrize(("subtype", "channels"), [("PCM_U8", 1), ("PCM_16", 2), ("PCM_24", 1), ("PCM_32", 2)])
def test_wav_files_are_read_as_everywhere(subtype, channels, tmp_path):
    from sonosco_like.export.transcribe import read_audio

    samples = np.random.default_rng(0).uniform(-1.0, 1.0, (500, channels))
    soundfile.write(tmp_path / "any.wav", samples, 8000, subtype=subtype)
    found, rate = read_audio(str(tmp_path / "any.wav"))
    expected = soundfile.read(tmp_path / "any.wav", dtype="float32", always_2d=True)[0].mean(axis=1)
    assert rate == 8000
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_other_formats_are_read_by_soundfile_if_it_is_there(tmp_path):
    from sonosco_like.export.transcribe import read_audio

    soundfile.write(tmp_path / "any.flac", np.full(800, 0.25), 16000)
    found, rate = read_audio(str(tmp_path / "any.flac"))
    assert (len(found), rate) == (800, 16000)
    np.testing.assert_allclose(found, 0.25, atol=1e-3)


def test_a_long_recording_is_cut_where_it_is_quiet(trained, tones, rows, tmp_path):
    from sonosco_like.export.transcribe import Recogniser, cut

    recogniser = load_recogniser(trained("tds"), "cpu")
    recogniser.max_duration = 3.0
    sonosco_like.export(recogniser, tmp_path / "exported", verify=False)
    pieces = [soundfile.read(path, dtype="float32")[0] for path in utterances(tones, rows)[:12]]
    long = np.concatenate([each for piece in pieces for each in (piece, np.zeros(3000, dtype=np.float32))])
    found = cut(long, 16000, 3.0)
    assert max(map(len, found)) <= 48000
    assert np.array_equal(np.concatenate(found), long)
    heard = Recogniser(tmp_path / "exported")(long, 16000).replace(" ", "")
    spoken = "".join(row["text"] for row in rows[:12]).replace(" ", "")
    assert count_errors(spoken, heard).rate < 0.25


def test_metadata_say_what_a_program_must_know(trained, tmp_path):
    onnx = pytest.importorskip("onnx")
    sonosco_like.export(trained("las"), tmp_path / "exported", verify=False)
    for name in ("encoder", "decoder"):
        model = onnx.load(tmp_path / "exported" / f"{name}.onnx")
        onnx.checker.check_model(model)
        metadata = {each.key: each.value for each in model.metadata_props}
        assert metadata["sonosco_like"] == sonosco_like.__version__
        assert json.loads(metadata["symbols"])[4:] == list("abcd ")
        assert (metadata["sample_rate"], metadata["input"]) == ("16000", "waveform")
        assert json.loads(metadata["search"])["beam_size"] == 3
        assert len(metadata["weights_sha256"]) == 64
        assert metadata["step"] == "240"
    text = (tmp_path / "exported" / "README.md").read_text()
    assert "python transcribe.py call.wav" in text
    assert metadata["run"] in text


def test_features_may_be_the_input(trained, tones, tmp_path):
    exported = sonosco_like.export(
        trained("conformer"), tmp_path / "exported", verify=tones / "val.jsonl", input="features"
    )
    assert exported.agrees
    assert exported.comparisons[0].utterances == 100


def test_small_weights_are_smaller_and_their_cost_is_said(trained, tones, tmp_path):
    exported = sonosco_like.export(
        trained("conformer"), tmp_path / "exported", verify=tones / "val.jsonl", int8=True, input="features"
    )
    whole, small = exported.comparisons
    assert whole.exact
    assert whole.differing == []
    assert not small.exact
    assert 0 <= small.theirs.rate < 0.2
    sizes = [(tmp_path / "exported" / name).stat().st_size for name in ("model.onnx", "model.int8.onnx")]
    assert sizes[1] < 0.8 * sizes[0]
