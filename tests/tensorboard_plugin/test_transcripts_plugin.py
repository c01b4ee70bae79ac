"""What the plugin answers, without a browser: by TensorBoard's own reader, of files that anybody may have written."""

from __future__ import annotations

import csv
import io
import json
import time
from types import SimpleNamespace
from urllib.parse import urlencode

import numpy as np
import pytest
import soundfile
from transcript_asking import Asking
from transcript_runs import SAMPLED, TEXTS, tone_trainer, write_transcripts

from sonosco_like.callbacks import tensorboard
from sonosco_like.callbacks.text_comparison.dashboard import PLUGIN as WRITTEN_AS
from sonosco_like.edits import align, character_diff, characters_of, count_errors, word_diff, words_of
from sonosco_like.serialization import load, save
from sonosco_like.tensorboard_plugin.records import PLUGIN
from sonosco_like.tensorboard_plugin.table import confusions


def test_reader_and_writer_agree_on_the_name():
    assert PLUGIN == WRITTEN_AS


def test_the_runs_are_those_that_were_trained(tiny_runs):
    logdir, heard = tiny_runs
    runs = Asking(logdir).json("/runs")["runs"]
    assert list(runs) == ["first/tensorboard", "second/tensorboard"]
    for name, truth in heard.items():
        found = runs[f"{name}/tensorboard"]["val"]
        assert found["steps"] == sorted(truth)
        assert found["modes"] == ["free", "teacher_forced"]
        for step, rates in zip(found["steps"], found["rates"]["free"], strict=True):
            texts = truth[step]["free"]
            errors = [count_errors(words_of(TEXTS[n]), words_of(texts[f"tone-{n}"])) for n in range(len(TEXTS))]
            assert rates["wer"] == pytest.approx(sum(errors[1:], errors[0]).rate)


@pytest.mark.parametrize("mode", ["free", "teacher_forced"])
def test_rows_have_the_errors_that_metrics_count(tiny_runs, mode):
    logdir, heard = tiny_runs
    truth = heard["first"]
    last, before = sorted(truth)[-1], sorted(truth)[-2]
    asking = Asking(logdir)
    rows = asking.rows(run="first/tensorboard", mode=mode)["rows"]
    curves = asking.json("/curves", run="first/tensorboard", mode=mode, set="val", step=last)["curves"][0]
    assert len(rows) == len(TEXTS)
    for row in rows:
        reference, text = TEXTS[int(row["id"][-1])], truth[last][mode][row["id"]]
        lane = row["lanes"][0]
        assert (row["reference"], lane["text"]) == (reference, text)
        assert lane["wer"] == count_errors(words_of(reference), words_of(text)).rate
        assert lane["cer"] == count_errors(characters_of(reference), characters_of(text)).rate
        assert lane["before"] == count_errors(words_of(reference), words_of(truth[before][mode][row["id"]])).rate
        assert len(curves[row["id"]]) == len(truth)
        assert curves[row["id"]][-1] == pytest.approx(lane["wer"], abs=1e-4)


def test_words_are_aligned_as_metrics_align_them():
    kinds = {"=": "equal", "s": "substitution", "d": "deletion", "i": "insertion"}
    for reference, text in [("a b c", "a c d"), ("one two", "won too free"), ("", "x"), ("x", ""), ("same", "same")]:
        edits = align(words_of(reference), words_of(text)).edits
        assert [(kinds[kind], said, heard) for kind, said, heard in word_diff(reference, text)] == [
            (edit.kind, edit.reference, edit.hypothesis) for edit in edits
        ]


def test_characters_are_compared_in_runs():
    assert character_diff("three  four", "tree four") == [
        ["=", "t", "t"],
        ["d", "h", None],
        ["=", "ree four", "ree four"],
    ]


def test_confusions_are_counted_over_all_utterances():
    said = ["one two", "one two", "three", "four"]
    heard = ["won two", "won", "three five", "four"]
    assert confusions(said, heard, 5) == {
        "substitutions": [["one", "won", 2]], "deletions": [["two", "", 1]], "insertions": [["", "five", 1]],
    }  # fmt: skip
    assert confusions(["a"] * 3, ["b", "c", "c"], 1)["substitutions"] == [["a", "c", 2]]


@pytest.fixture(scope="module")
def crafted(tmp_path_factory):
    """A run whose texts we know."""
    references = {"u1": "one two three four", "u2": "five", "u3": "six seven", "u4": "eight", "u5": "=nine"}
    steps = {
        10: {"u1": "one", "u2": "five", "u3": "six seven", "u4": "", "u5": "x"},
        20: {"u1": "one two three", "u2": "fife", "u3": "six seven", "u4": "ate", "u5": "-nine"},
    }
    logdir = tmp_path_factory.mktemp("crafted")
    write_transcripts(logdir / "run", references, steps)
    other = {name: text for name, text in references.items() if name != "u2"}
    write_transcripts(logdir / "other", other, {15: dict.fromkeys(other, "six")})
    return Asking(logdir)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ["u4", "u2", "u5", "u1", "u3"]),
        ({"order": "asc"}, ["u3", "u1", "u5", "u2", "u4"]),
        ({"sort": "id", "order": "asc"}, ["u1", "u2", "u3", "u4", "u5"]),
        ({"sort": "words"}, ["u1", "u3", "u4", "u2", "u5"]),
        ({"filter": "wrong", "sort": "id", "order": "asc"}, ["u1", "u2", "u4", "u5"]),
        ({"filter": "right"}, ["u3"]),
        ({"filter": "improved"}, ["u1"]),
        ({"filter": "worsened"}, ["u2"]),
        ({"sort": "change", "order": "asc", "limit": 1}, ["u1"]),
        ({"filter": "audio"}, []),
        ({"search": "SEVEN"}, ["u3"]),
        ({"search": "fife"}, ["u2"]),
        ({"search": "u4"}, ["u4"]),
        ({"sort": "id", "order": "asc", "offset": 3, "limit": 1}, ["u4"]),
        ({"step": 10, "filter": "right", "sort": "id", "order": "asc"}, ["u2", "u3"]),
    ],
)
def test_rows_are_filtered_and_sorted_as_a_whole(crafted, asked, expected):
    assert [row["id"] for row in crafted.rows(run="run", **asked)["rows"]] == expected


def test_runs_are_matched_by_utterance_and_each_is_at_its_own_step(crafted):
    found = crafted.rows(run=["run", "other"], sort="id", order="asc", step=20)
    assert [(lane["run"], lane["step"]) for lane in found["lanes"]] == [("run", 20), ("other", 15)]
    assert found["rows"][0]["lanes"][1]["text"] == "six"
    assert found["rows"][1]["lanes"][1] is None
    assert crafted.rows(run=["run", "other"], step=12)["lanes"] == [{"run": "run", "mode": "free", "step": 10}]


def test_the_file_of_all_rows_is_safe_for_spreadsheets(crafted):
    answer = crafted.get(
        "/transcripts.csv", run="run", set="val", mode="free", step=20, sort="id", order="asc", limit=1
    )
    rows = list(csv.reader(io.StringIO(answer.get_data(as_text=True))))
    assert rows[0][:3] == ["id", "seconds", "reference"]
    assert [row[0] for row in rows[1:]] == ["u1", "u2", "u3", "u4", "u5"]
    assert rows[5][2:4] == ["'=nine", "'-nine"]
    assert rows[1][4:] == ["0.2500", f"{5 / 18:.4f}"]


@pytest.mark.parametrize(
    ("path", "asked", "said"),
    [
        ("/rows", {"run": "nobody"}, "There is no run 'nobody'"),
        ("/rows", {"run": "run", "set": "<b>"}, "There is no validation set"),
        ("/rows", {"run": "run", "step": "x"}, "`step` must be a whole number, got 'x'"),
        ("/rows", {"run": "run", "sort": "x"}, "`sort` must be one of wer"),
        ("/rows", {"run": "run", "filter": "x"}, "`filter` must be one of all"),
        ("/rows", {"run": []}, "at least one run"),
        ("/rows", {"run": "run", "step": 3}, "None of these runs"),
        ("/rows", {"run": ["run"] * 13}, "at most 12"),
        ("/sample", {"run": "run", "id": "u1"}, "There is no sample 'u1'"),
        ("/audio", {"run": "run", "id": "../../etc/passwd"}, "There is no sample"),
    ],
)
def test_senseless_questions_are_answered_with_a_sentence(crafted, path, asked, said):
    answer = crafted.get(path, **{"set": "val", "mode": "free", "step": 20, **asked})
    assert answer.status_code == 400
    assert said in json.loads(answer.get_data())["error"]


def test_samples_have_features_and_alignments(tiny_runs):
    logdir, heard = tiny_runs
    asking = Asking(logdir)
    last = max(heard["first"])
    sample = asking.json("/sample", run="first/tensorboard", set="val", step=last, id=SAMPLED[1])
    assert sample["step"] == last
    assert sample["duration"] == pytest.approx(7 * 0.12)
    assert sample["features"]["rows"] == 20
    assert [each["name"] for each in sample["alignments"]] == ["attention", "ctc"]
    attention = sample["alignments"][0]
    assert attention["tokens"] == [*"a␣b␣b␣a", "end"]
    assert attention["rows"] == 8
    assert " ".join(word[0] for word in sample["words"]) == " ".join(heard["first"][last]["free"][SAMPLED[1]].split())


def test_audio_is_the_recording_and_comes_in_parts(tiny_runs, tones):
    asking = Asking(tiny_runs[0])
    asked = {"run": "first/tensorboard", "set": "val", "id": SAMPLED[0]}
    whole = asking.get("/audio", **asked)
    assert whole.headers["Content-Type"] == "audio/wav"
    samples, rate = soundfile.read(io.BytesIO(whole.get_data()))
    truth, _ = soundfile.read(tones.parent / "1.wav")
    assert rate == 16000
    np.testing.assert_allclose(samples, truth, atol=1e-4)
    part = asking.get("/audio", headers={"Range": "bytes=44-143"}, **asked)
    assert part.status_code == 206
    assert part.get_data() == whole.get_data()[44:144]


@pytest.mark.parametrize("name", ["..%2fplugin.py", "../plugin.py", "plugin.py", "nothing.js", ""])
def test_only_files_of_the_dashboard_are_served(crafted, name):
    assert crafted.get(f"/static/{name}").status_code == 400


def test_the_dashboard_loads_nothing_from_elsewhere(crafted):
    for name in ("index.js", "style.css", "dom.js"):
        answer = crafted.get(f"/static/{name}")
        assert answer.status_code == 200
        text = answer.get_data(as_text=True).replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text
        assert "innerHTML" not in text


def test_after_a_resume_a_reader_that_watches_shows_the_new_run(tmp_path):
    references = {"u1": "one"}
    write_transcripts(tmp_path / "run", references, {10: {"u1": "a"}, 20: {"u1": "b"}, 30: {"u1": "c"}})
    asking = Asking(tmp_path)
    assert asking.json("/runs")["runs"]["run"]["val"]["steps"] == [10, 20, 30]
    write_transcripts(tmp_path / "run", references, {25: {"u1": "d"}}, after=10)
    asking.multiplexer.Reload()
    asking.forget()
    assert asking.json("/runs")["runs"]["run"]["val"]["steps"] == [10, 25]
    assert asking.rows(run="run")["rows"][0]["lanes"][0]["text"] == "d"


@pytest.mark.parametrize("clock", [0, -86_400], ids=["clock goes on", "clock goes back"])
def test_a_resumed_training_shows_what_an_unbroken_one_does(tmp_path, tones, clock, monkeypatch):
    whole = tone_trainer(tmp_path / "logs" / "whole", tones, 5)
    whole.start_training()
    broken = tone_trainer(tmp_path / "logs" / "broken", tones, 5)
    broken.max_duration = None
    broken.add_callback(("epoch_end", stop_after_first))
    broken.start_training()
    broken.set_callbacks(broken.callbacks[:-1])
    save(broken, tmp_path / "saved")
    monkeypatch.setattr(tensorboard, "time", SimpleNamespace(time=lambda: time.time() + clock))
    load(tmp_path / "saved").continue_training()
    runs = Asking(tmp_path / "logs").json("/runs")["runs"]
    assert runs["broken/tensorboard"] == runs["whole/tensorboard"]
    assert len(runs["whole/tensorboard"]["val"]["steps"]) == 3


def stop_after_first(moment):
    moment.context.stop_training()


def test_the_plugin_does_without_torch(run_python):
    code = "import sys, sonosco_like.tensorboard_plugin.plugin; sys.exit('torch' in sys.modules)"
    assert run_python(code).returncode == 0


@pytest.mark.parametrize("loading", ["true", "false"])
def test_a_running_tensorboard_forgets_what_a_resumed_run_left_behind(tmp_path, serve, loading):
    references = {"u1": "one"}
    write_transcripts(tmp_path / "run", references, {10: {"u1": "a"}, 20: {"u1": "b"}, 30: {"u1": "c"}})
    running = serve(tmp_path, "--load_fast", loading)
    running.wait_for(lambda runs: runs and runs["run"]["val"]["steps"] == [10, 20, 30])
    write_transcripts(tmp_path / "run", references, {25: {"u1": "d"}}, after=10)
    running.wait_for(lambda runs: runs["run"]["val"]["steps"] == [10, 25])
    asked = urlencode({"run": "run", "set": "val", "mode": "free", "step": 25})
    assert running.get(f"rows?{asked}")["rows"][0]["lanes"][0]["text"] == "d"


def test_steps_are_kept_if_the_one_before_is_missing(tmp_path):
    write_transcripts(tmp_path / "run", {"u1": "one"}, {10: {"u1": "a"}, 20: {"u1": "b"}})
    write_transcripts(tmp_path / "run", {"u1": "one"}, {50: {"u1": "c"}}, after=40)
    assert Asking(tmp_path).json("/runs")["runs"]["run"]["val"]["steps"] == [10, 20, 50]


def test_runs_that_the_page_knows_are_not_sent_again(crafted):
    found = crafted.json("/runs")
    assert crafted.json("/runs", known=found["mark"]) == {"mark": found["mark"]}
    assert crafted.json("/runs", known="other") == found
