"""What a survey of training and validation data finds, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from tones import write_rows, write_tone

from sonosco_like.data.tools.survey import concerns, survey_data
from sonosco_like.errors import DataError, UsageError


def corpus(folder: Path, name: str, rates: list[int], channels: int = 1, **row: object) -> Path:
    """A manifest with a recording of a second for each sample rate; `row` adds to every row, lists one by one."""
    rows = []
    for number, rate in enumerate(rates):
        audio = write_tone(folder / name / f"{number}.wav", 1.0, rate=rate, channels=channels)
        own = {key: value[number] if isinstance(value, list) else value for key, value in row.items()}
        given = {"audio_filepath": str(audio), "duration": 1.0, "text": "one two", "speaker": f"{name} {number}"}
        rows.append({**given, **own})
    return write_rows(folder / f"{name}.jsonl", rows)


@pytest.fixture
def val(tmp_path) -> Path:
    return corpus(tmp_path, "val", [16000] * 3)


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [([16000] * 8, 16000), ([44100] * 8, 16000), ([8000] * 8, 8000), ([16000] * 6 + [8000] * 2, 8000),
     ([16000] * 19 + [8000], 16000), ([11025] * 8, 11025),
     ([8000 + 10 * number for number in range(12)], 8000)],
)  # fmt: skip
def test_the_features_follow_the_sample_rate_of_the_recordings(tmp_path, val, rates, chosen):
    assert survey_data(corpus(tmp_path, "train", rates), val).sample_rate == chosen


def test_telephone_speech_is_said_and_so_is_a_rest_of_it(tmp_path, val):
    low = " ".join(concerns(survey_data(corpus(tmp_path, "low", [8000] * 8), val)))
    assert "only 8,000 samples per second" in low
    rest = " ".join(concerns(survey_data(corpus(tmp_path, "rest", [16000] * 19 + [8000]), val)))
    assert "1 of 8,000 Hz" in rest


def test_good_data_raises_no_concern(tmp_path, val):
    survey = survey_data(corpus(tmp_path, "train", [16000] * 8), val)
    assert list(concerns(survey)) == []
    assert survey.train.hours == pytest.approx(8 / 3600)
    assert len(survey.train.speakers) == 8


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"speaker": ["val 0"] * 3 + ["x"] * 5}, "1 of 3 speakers"),
        ({"speaker": None}, "do not name speakers"),
        ({"speaker": "ann"}, "only ann"),
        ({"text": "one 2"}, "numbers in digits"),
        ({"text": ["one two"] * 7 + ["one two q"]}, "Rare characters, fewer than 5 times each: 'q'"),
        ({"text": "one"}, "that training does not have: ' ', 't', 'w'"),
        ({"text": ["one two"] * 7 + ["?"]}, "1 of 8 texts of training are empty"),
        ({"text": "one, two"}, "turns into spaces: ','"),
        ({"audio_filepath": ["gone.wav"] + [""] * 7}, "missing file"),
    ],
)
def test_what_may_go_wrong_is_said(tmp_path, val, row, said):
    if "audio_filepath" in row:
        good = corpus(tmp_path, "good", [16000] * 8).parent
        row = {"audio_filepath": ["gone.wav", *(str(good / "good" / f"{number}.wav") for number in range(1, 8))]}
    sentences = list(concerns(survey_data(corpus(tmp_path, "train", [16000] * 8, **row), val)))
    assert any(said in each for each in sentences), sentences


def test_the_same_recordings_in_both_sets_are_refused_with_the_command_that_splits(tmp_path, val):
    with pytest.raises(UsageError, match=r"3 of 3 recordings .* sonosco data split .*val.jsonl corpus --by speaker"):
        survey_data(val, val)
    unnamed = corpus(tmp_path, "unnamed", [16000] * 3, speaker=None)
    with pytest.raises(UsageError, match="--by text"):
        survey_data(unnamed, unnamed)


def test_data_without_texts_or_without_recordings_is_refused(tmp_path, val):
    with pytest.raises(DataError, match=r"None of the 2 rows .* has a text.*sonosco data manifest"):
        survey_data(corpus(tmp_path, "a", [16000] * 2, text=" "), val)
    with pytest.raises(DataError, match=r"got nothing\n.*sonosco data manifest"):
        survey_data(corpus(tmp_path, "b", [16000] * 2, text=None), val)
    with pytest.raises(DataError, match=r"No recording .* can be used.*missing file"):
        survey_data(corpus(tmp_path, "c", [16000] * 2, audio_filepath=["x.wav", "y.wav"]), val)


def test_channels_are_counted(tmp_path, val):
    assert survey_data(corpus(tmp_path, "train", [16000] * 2, channels=2), val).train.examined.channels == {2: 2}
