"""The format `sherpa`: sherpa-onnx hears the same, in a process that has neither torch nor this package."""

from __future__ import annotations

import json

import pytest
import soundfile
import torch
from tone_speech import ALPHABET, KINDS, MELS

import sonosco_like
from sonosco_like.data.features import MFCC, LogMel
from sonosco_like.data.text import SentencePieceTokenizer
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.errors import UsageError
from sonosco_like.export.formats import ExportSettings
from sonosco_like.export.sherpa_format import SherpaFormat, tokens_text
from sonosco_like.export.verification import compare
from sonosco_like.inference import TrainedRecogniser, load_recogniser
from sonosco_like.models import TDS, Conformer, ConformerEncoder, TDSEncoder, TDSGroup
from sonosco_like.progress import no_progress

pytest.importorskip("onnx")
pytest.importorskip("sherpa_onnx")

HEAR_ALL = f"""
import json
import wave
import numpy
import sherpa_onnx

folder = sys.argv[1]
recognizer = sherpa_onnx.OfflineRecognizer.from_zipformer_ctc(
    model=folder + "/model.onnx", tokens=folder + "/tokens.txt", feature_dim={MELS}
)
for start in range(2, len(sys.argv), 10):
    streams = []
    for path in sys.argv[start : start + 10]:
        with wave.open(path) as file:
            samples = numpy.frombuffer(file.readframes(file.getnframes()), dtype="<i2") / numpy.float32(32768)
        streams.append(recognizer.create_stream())
        streams[-1].accept_waveform(16000, samples)
    recognizer.decode_streams(streams)
    for stream in streams:
        print(json.dumps([stream.result.text, stream.result.timestamps]))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_sherpa_hears_the_same_texts(kind, trained, tones, rows, texts_of_run, run_alone, tmp_path):
    folder = tmp_path / "exported"
    exported = sonosco_like.export(trained(kind), folder, "sherpa", verify=False)
    lines = run_alone(HEAR_ALL, folder, *(tones / row["audio_filepath"] for row in rows))
    heard = [json.loads(line)[0].strip() for line in lines]
    assert heard == texts_of_run(trained(kind), GreedyCTCDecoder())
    assert len(set(heard)) > 50
    assert any("CTC output" in note for note in exported.notes) == (kind == "las")


def test_the_command_verifies_with_sherpa_itself(trained, tones, tmp_path):
    exported = sonosco_like.export(
        trained("conformer"), tmp_path / "exported", "sherpa", int8=True, verify=tones / "val.jsonl"
    )
    whole, small = exported.comparisons
    assert exported.agrees
    assert "in sherpa-onnx" in whole.name
    assert (whole.utterances, whole.differing) == (100, [])
    assert small.theirs.rate < 0.2
    assert {path.name for path in (tmp_path / "exported").iterdir()} == {
        "model.onnx", "model.int8.onnx", "tokens.txt", "README.md", "verification.json",
    }  # fmt: skip


def test_times_are_right_for_a_model_with_eight_frames_per_output(tones, rows, run_alone, tmp_path):
    torch.manual_seed(3)
    groups = [TDSGroup(channels=2, blocks=1, kernel=5) for _ in range(3)]
    encoder = TDSEncoder(groups=groups, dropout=0.0, norm_over="frame")
    recogniser = TrainedRecogniser(
        features=LogMel(mels=MELS, high_frequency=7600.0),
        model=TDS(vocabulary_size=9, features=MELS, encoder=encoder, decoder=None, ctc=True),
        decoder=GreedyCTCDecoder(),
        tokenizer=ALPHABET,
    )
    sonosco_like.export(recogniser, tmp_path / "exported", "sherpa", verify=False)
    path = tones / max(rows, key=lambda row: row["duration"])["audio_filepath"]
    ((text, times),) = map(json.loads, run_alone(HEAR_ALL, tmp_path / "exported", path))
    recogniser.model.eval()
    batch = recogniser.batch([torch.from_numpy(soundfile.read(path, dtype="float32")[0])])
    (hypothesis,) = recogniser.decode(batch)[0]
    assert text.split() == hypothesis.text.split()
    assert times == pytest.approx([token.start for token in hypothesis.tokens], abs=1e-3)
    assert times[-1] > 0.5


def test_texts_of_word_pieces_are_the_same(tones, tmp_path):
    """Random weights give random pieces, also the lone mark of a word, one after the other."""
    pytest.importorskip("sentencepiece")
    texts = [json.loads(line)["text"] for line in (tones / "train.jsonl").read_text().splitlines()]
    pieces = SentencePieceTokenizer.train(texts, tmp_path / "pieces.model", 40)
    torch.manual_seed(2)
    encoder = ConformerEncoder(size=32, layers=1, heads=2, kernel=7, channels=4)
    model = Conformer(vocabulary_size=len(pieces.symbols), features=MELS, encoder=encoder)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    features = LogMel(mels=MELS, high_frequency=-400.0)
    recogniser = TrainedRecogniser(features=features, model=model, decoder=GreedyCTCDecoder(), tokenizer=pieces)
    exported = sonosco_like.export(recogniser, tmp_path / "exported", "sherpa", verify=tones / "val.jsonl")
    assert exported.comparisons[0].differing == []


def test_what_the_engine_hides_is_named_when_the_graph_agrees(trained, tones, tmp_path):
    made = SherpaFormat(load_recogniser(trained("tds"), "cpu"), ExportSettings())
    made.recogniser.decoder = GreedyCTCDecoder()
    made.write(tmp_path)
    tokens = (tmp_path / "tokens.txt").read_text()
    (tmp_path / "tokens.txt").write_text(tokens.replace("a 4", "d 4"))
    (found,), _ = compare(made, tmp_path, tones / "val.jsonl", no_progress)
    assert "they part in what it does not show" in found.cause


def test_tokens_of_letters_and_of_word_pieces():
    assert tokens_text(("<blank>", "<s>", "</s>", "<unk>", "a", " ", "7")) == (
        "<blk> 0\n<s> 1\n</s> 2\n⁇ 3\na 4\n5\n7 6\n"
    )
    assert tokens_text(("<blank>", "<s>", "</s>", "<unk>", "▁the", "re")) == (
        "<blk> 0\n<s> 1\n</s> 2\n▁⁇ 3\n▁the 4\nre 5\n"
    )


def test_other_features_are_refused_with_each_setting_that_differs(trained, tmp_path):
    recogniser = load_recogniser(trained("tds"), "cpu")
    recogniser.features = LogMel(mels=MELS, window="hann")
    with pytest.raises(UsageError, match=r"`window` is hann and must be povey; `high_frequency` is 0 and must be -400"):
        sonosco_like.export(recogniser, tmp_path / "exported", "sherpa")
    recogniser.features = MFCC()
    with pytest.raises(UsageError, match=r"trained with MFCC(.|\n)*--format onnx"):
        sonosco_like.export(recogniser, tmp_path / "exported", "sherpa")
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_ctc_output_is_refused(tmp_path):
    recogniser = TrainedRecogniser(
        features=LogMel(mels=40, high_frequency=-400.0),
        model=TDS(vocabulary_size=9, features=40),
        decoder=GreedyCTCDecoder(),
        tokenizer=ALPHABET,
    )
    with pytest.raises(UsageError, match=r"sherpa-onnx runs CTC models, and this TDS has no CTC output"):
        sonosco_like.export(recogniser, tmp_path / "exported", "sherpa")
