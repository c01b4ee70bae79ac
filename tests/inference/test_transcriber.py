"""A trained recogniser and real recordings: what comes out is what was said."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import soundfile

import sonosco_like
from sonosco_like.data import load_audio
from sonosco_like.decoding import CTCBeamDecoder, GreedyAttentionDecoder
from sonosco_like.edits import count_word_errors
from sonosco_like.errors import DataError, UsageError
from sonosco_like.inference import DecoderSettings, Failure, TrainedRecogniser, Transcriber, load_transcriber
from sonosco_like.inference.audio_stream import Recording
from sonosco_like.models import LAS, Attention, Listener, Speller
from sonosco_like.training import seed_everything

RATE = 16000


@pytest.fixture(scope="module")
def transcriber(digits) -> Transcriber:
    return load_transcriber(digits.run)


@pytest.fixture(scope="module")
def conversation(digits, tmp_path_factory) -> tuple:
    """An utterance ten times in one recording, with pauses, and what is heard in it alone, as often."""
    row = digits.rows()[0]
    noise = np.random.default_rng(0).normal(scale=1e-3, size=RATE // 2)
    path = tmp_path_factory.mktemp("long") / "conversation.wav"
    soundfile.write(path, np.concatenate([load_audio(digits.audio(row), RATE).numpy(), noise] * 10), RATE)
    return path, " ".join([load_transcriber(digits.run)(digits.audio(row)).text] * 10)


def test_three_lines_are_enough(digits):
    row = digits.rows()[0]
    transcriber = sonosco_like.load_transcriber(digits.run)
    transcript = transcriber(digits.audio(row))
    assert transcript.text == str(transcript) != ""
    assert transcript.duration == pytest.approx(row["duration"], abs=0.01)


def test_it_hears_what_it_was_trained_on(digits, transcriber):
    rows = digits.rows()
    found = transcriber.transcribe([digits.audio(row) for row in rows])
    counts = count_word_errors([row["text"] for row in rows], [each.text for each in found])
    assert counts.rate < 0.5


def test_alone_and_in_a_batch_the_text_is_the_same(digits, transcriber):
    paths = [digits.audio(row) for name in ("train.jsonl", "test.jsonl") for row in digits.rows(name)]
    together = transcriber.transcribe(paths)
    assert [each.text for each in together] == [transcriber(path).text for path in paths]
    assert len({each.text for each in together}) > 10


def test_an_attention_model_writes_the_same_alone_and_in_a_batch(digits, transcriber):
    seed_everything(4)
    model = LAS(
        vocabulary_size=32,
        features=24,
        ctc=False,
        encoder=Listener(hidden_size=16, layers=1, plain_layers=1, stack=2),
        attention_decoder=Speller(
            hidden_size=16, layers=1, embedding_size=8, attention=Attention(kind="location", size=16)
        ),
    )
    parts = transcriber.recogniser
    recogniser = TrainedRecogniser(
        features=parts.features,
        normalization=parts.normalization,
        model=model,
        decoder=GreedyAttentionDecoder(),
        tokenizer=parts.tokenizer,
    )
    untrained = Transcriber(recogniser)
    paths = [digits.audio(row) for row in digits.rows()[:6]]
    together = untrained.transcribe(paths)
    assert [each.text for each in together] == [untrained(path).text for path in paths]


def test_words_have_times_in_the_order_in_which_they_were_said(digits, transcriber):
    row = max(digits.rows(), key=lambda row: row["duration"])
    words = transcriber(digits.audio(row)).words
    starts = [word.start for word in words]
    assert starts == sorted(starts)
    assert all(0 <= word.start < word.end <= row["duration"] and 0 < word.confidence <= 1 for word in words)
    assert words[-1].start - words[0].start > row["duration"] / 3


def test_a_long_recording_is_cut_at_pauses_and_joined(transcriber, conversation):
    path, text = conversation
    transcript = transcriber(path)
    assert len(transcript.segments) > 2
    assert [each.start for each in transcript.segments[1:]] == [each.end for each in transcript.segments[:-1]]
    assert transcript.duration == pytest.approx(soundfile.info(path).duration, abs=0.01)
    assert (Counter(text.split()) & Counter(transcript.text.split())).total() >= len(text.split()) / 2
    assert abs(len(transcript.text.split()) - len(text.split())) <= len(text.split()) / 2
    starts = [word.start for word in transcript.words]
    assert starts == sorted(starts)


def test_windows_that_overlap_lose_and_double_few_words(digits, conversation, monkeypatch):
    path, text = conversation
    monkeypatch.setattr("sonosco_like.inference.audio_stream._CONTRAST", np.inf)  # so that no pause is found
    transcript = load_transcriber(digits.run, longest=6.0, overlap=2.0)(path)
    assert len(transcript.segments) > 5
    assert abs(len(transcript.text.split()) - len(text.split())) <= len(text.split()) / 2
    assert [each.start for each in transcript.segments[1:]] == [each.end for each in transcript.segments[:-1]]


def test_another_rate_and_a_second_channel_change_hardly_anything(digits, transcriber, tmp_path):
    rows = digits.rows()[:10]
    for number, row in enumerate(rows):
        samples = load_audio(digits.audio(row), 44100).numpy()
        soundfile.write(tmp_path / f"{number:02d}.wav", np.stack([samples, samples], axis=1), 44100)
    changed = [each.text for each in transcriber.transcribe([tmp_path])]
    plain = [each.text for each in transcriber.transcribe([digits.audio(row) for row in rows])]
    assert count_word_errors(plain, changed).rate < 0.1


def test_silence_has_no_text(tmp_path, transcriber):
    soundfile.write(tmp_path / "silence.wav", np.zeros(20 * RATE), RATE)
    soundfile.write(tmp_path / "click.wav", np.array([0.5]), RATE)
    silent, click = transcriber.transcribe([tmp_path / "silence.wav", tmp_path / "click.wav"])
    assert (silent.text, silent.words, silent.confidence, silent.duration) == ("", (), None, 20.0)
    assert click.duration == pytest.approx(1 / RATE)


def test_an_array_is_heard_as_its_file(digits, transcriber):
    path = digits.audio(digits.rows()[0])
    samples, rate = soundfile.read(path, dtype="float32")
    assert transcriber(samples, rate).text == transcriber(path).text
    with pytest.raises(UsageError, match="sample_rate"):
        transcriber(samples)


def test_a_bad_file_is_named_and_the_others_are_done(digits, transcriber, tmp_path):
    (tmp_path / "text.wav").write_text("no audio\n" * 100)
    good = digits.audio(digits.rows()[0])
    first, bad, last = transcriber.transcribe([good, tmp_path / "text.wav", good])
    assert isinstance(bad, Failure)
    assert bad.name == str(tmp_path / "text.wav")
    assert first.text == last.text != ""
    with pytest.raises(DataError, match="cannot be read as audio"):
        transcriber(tmp_path / "text.wav")


def test_one_call_takes_one_recording(digits, transcriber):
    with pytest.raises(UsageError, match="call `transcribe`"):
        transcriber(digits.corpus)


def test_results_come_before_all_is_read(digits, transcriber):
    taken = []

    def recordings():
        for row in digits.rows() * 5:
            taken.append(row)
            yield Recording(digits.audio(row), row["id"])

    next(transcriber.stream(recordings()))
    assert len(taken) < 4 * len(digits.rows())


def test_the_decoder_of_the_run_gives_way_to_the_settings(digits):
    settings = DecoderSettings(beam=4, n_best=3, hot_words=("nine",))
    transcriber = load_transcriber(digits.run, decoder=settings)
    assert isinstance(transcriber.recogniser.decoder, CTCBeamDecoder)
    segment = transcriber(digits.audio(digits.rows()[0])).segments[0]
    assert len(segment.hypotheses) == 3
    assert segment.hypotheses[0].text == segment.text
    scores = [hypothesis.score for hypothesis in segment.hypotheses]
    assert scores == sorted(scores, reverse=True)
