"""`sonosco transcribe` as a user types it."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
import soundfile
from warm import warm_python

from sonosco_like import load_transcriber
from sonosco_like.cli import run


@pytest.fixture
def audio(digits) -> list[str]:
    """Three recordings."""
    return [str(digits.audio(row)) for row in digits.rows()[:3]]


def lines(capsys) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_one_file_gives_its_text_alone(digits, audio, capsys):
    assert run(["transcribe", str(digits.run), audio[0]]) == 0
    assert lines(capsys) == [load_transcriber(digits.run)(audio[0]).text]


def test_several_files_give_a_line_each_in_their_order(digits, audio, capsys):
    assert run(["transcribe", str(digits.run / "final"), *audio]) == 0
    expected = load_transcriber(digits.run).transcribe(audio)
    assert lines(capsys) == [f"{path}: {each.text}" for path, each in zip(audio, expected, strict=True)]


def test_json_has_an_object_per_line(digits, audio, capsys):
    assert run(["transcribe", str(digits.run), *audio, "--json", "--n-best", "2"]) == 0
    rows = [json.loads(line) for line in lines(capsys)]
    assert [row["audio"] for row in rows] == audio
    assert " ".join(word["word"] for word in rows[0]["words"]) == rows[0]["text"]
    assert {"word", "start", "end", "confidence"} == set(rows[0]["words"][0])
    assert len(rows[0]["segments"][0]["hypotheses"]) == 2


def test_subtitles_of_one_file_are_printed(digits, audio, capsys):
    assert run(["transcribe", str(digits.run), audio[0], "--format", "srt"]) == 0
    said = lines(capsys)
    assert said[0] == "1"
    assert " --> " in said[1]
    assert run(["transcribe", str(digits.run), audio[0], "--format", "vtt"]) == 0
    assert lines(capsys)[0] == "WEBVTT"


def test_an_output_folder_gets_a_file_for_each_recording(digits, audio, tmp_path, capsys):
    folder = digits.audio(digits.rows()[0]).parent
    assert run(["transcribe", str(digits.run), str(folder), "--format", "srt", "--output", str(tmp_path)]) == 0
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(path.stem for path in folder.iterdir())
    assert {path.suffix for path in tmp_path.iterdir()} == {".srt"}
    assert lines(capsys) == []


def test_a_bad_file_is_named_the_others_are_done_and_the_exit_code_says_so(digits, audio, tmp_path, capsys):
    bad = tmp_path / "text.wav"
    bad.write_text("this is no audio\n" * 40)
    assert run(["transcribe", str(digits.run), audio[0], str(bad), str(tmp_path / "none.wav"), audio[1]]) == 1
    said = capsys.readouterr()
    assert [line.split(":")[0] for line in said.out.splitlines()] == audio[:2]
    assert f"Skipped: {bad} cannot be read as audio" in said.err
    assert "There is no file" in said.err
    assert "2 of 4 recordings could not be transcribed." in said.err


@pytest.mark.parametrize("kind", ["empty", "header", "text", "missing"])
def test_a_single_bad_file_is_one_line(digits, tmp_path, capsys, kind):
    path = tmp_path / f"{kind}.wav"
    if kind == "empty":
        path.touch()
    elif kind == "header":
        soundfile.write(path, np.zeros(0), 16000)
    elif kind == "text":
        path.write_text("no audio\n" * 40)
    assert run(["transcribe", str(digits.run), str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Error: ")
    assert path.name in said.err
    assert len(said.err.splitlines()) == 1


def test_silence_is_an_empty_line_and_no_failure(digits, tmp_path, capsys):
    soundfile.write(tmp_path / "silence.wav", np.zeros(16000), 16000)
    assert run(["transcribe", str(digits.run), str(tmp_path / "silence.wav")]) == 0
    assert capsys.readouterr().out == "\n"


def test_standard_input_is_a_recording(digits, audio):
    command = [*warm_python(), "-m", "sonosco_like", "transcribe", str(digits.run), "-"]
    with open(audio[0], "rb") as stream:  # noqa: PTH123
        done = subprocess.run(command, stdin=stream, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == load_transcriber(digits.run)(audio[0]).text
    done = subprocess.run(command, input="no audio", capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1
    assert "The standard input cannot be read as audio" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "{audio}"], "There is no run or checkpoint at nowhere"),
        (["{run}"], "Missing argument 'AUDIO"),
        (["{run}", "{audio}", "--n-best", "3"], "--n-best is shown in JSON only"),
        (["{run}", "{audio}", "{audio}", "--format", "srt"], "need a folder: give --output"),
        (["{run}", "{audio}", "{audio}", "--output", "out"], "would both be written to"),
        (["{run}", "{audio}", "--longest", "0.1"], "`longest` must be at least 1 s"),
        (["{run}", "{audio}", "--ctc-weight", "0.5"], "CTCBeamDecoder has no setting `ctc_weight`"),
        (["{run}", "{empty}"], "There is no audio in the folder"),
    ],
    ids=["run", "no-audio", "n-best", "subtitles", "same-name", "longest", "decoder", "empty-folder"],
)  # fmt: skip
def test_mistakes_are_said_in_a_line_with_exit_code_2(digits, audio, tmp_path, capsys, arguments, said):
    arguments = [part.format(run=digits.run, audio=audio[0], empty=tmp_path) for part in arguments]
    assert run(["transcribe", *arguments]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message
