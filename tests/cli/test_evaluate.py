"""`sonosco evaluate` as a user types it."""

from __future__ import annotations

import json

import pytest

from sonosco_like.cli import run


def test_the_table_the_json_the_page_and_the_error_file(digits, tmp_path, capsys):
    written = {kind: tmp_path / "out" / f"e.{kind}" for kind in ("json", "html", "errors")}
    options = [part for kind, path in written.items() for part in (f"--{kind}", str(path))]
    assert run(["evaluate", str(digits.run), "--manifest", str(digits.test), "--bootstraps", "50", *options]) == 0
    said = capsys.readouterr()
    assert "word error rate" in said.out
    assert "95% interval" in said.out
    assert "real-time factor" in said.out
    assert "evaluating:" in said.err
    content = json.loads(written["json"].read_text())
    assert content["wer"] == (
        content["substitutions"] + content["deletions"] + content["insertions"]
    ) / content["reference_words"]  # fmt: skip
    assert content["utterances"] == len(digits.rows("test.jsonl"))
    assert content["wer_interval"][0] <= content["wer"] <= content["wer_interval"][1]
    assert content["checkpoint"] == str(digits.run / "final")
    assert "<title>" in written["html"].read_text()
    assert written["errors"].read_text().startswith("%WER = ")


def test_the_same_command_gives_the_same_json(digits, tmp_path):
    texts = []
    for number in (1, 2):
        path = tmp_path / f"{number}.json"
        assert run(["evaluate", str(digits.run), "--manifest", str(digits.test), "--json", str(path)]) == 0
        texts.append({key: value for key, value in json.loads(path.read_text()).items() if key != "real_time_factor"})
    assert texts[0] == texts[1]


def test_against_a_run_or_its_json(digits, tmp_path, capsys):
    command = ["evaluate", str(digits.run), "--manifest", str(digits.test), "--bootstraps", "50"]
    assert run([*command, "--json", str(tmp_path / "a.json"), "--against", str(digits.run / "final")]) == 0
    assert "No real difference" in capsys.readouterr().out
    comparison = json.loads((tmp_path / "a.json").read_text())["comparison"]
    assert (comparison["difference"], comparison["is_real"]) == (0.0, False)
    assert run([*command, "--against", str(tmp_path / "a.json"), "--beam", "8"]) == 0
    assert "a.json" in capsys.readouterr().out


def test_an_utterance_that_cannot_be_read_is_named_and_the_exit_code_says_so(digits, tmp_path, capsys):
    row = digits.rows()[0]
    row["audio_filepath"] = str(digits.audio(row))
    broken = {"audio_filepath": "gone.wav", "duration": 1.0, "text": "one"}
    (tmp_path / "m.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(broken)}\n")
    assert run(["evaluate", str(digits.run), "--manifest", str(tmp_path / "m.jsonl")]) == 1
    said = capsys.readouterr()
    assert "1 utterances could not be used" in said.out
    assert "gone.wav does not exist" in " ".join((said.out + said.err).split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}", "--manifest", "nothing.jsonl"], "nothing.jsonl"),
        (["nowhere", "--manifest", "{test}"], "There is no run or checkpoint at nowhere"),
        (["{run}", "--manifest", "{test}", "--lm", "no.arpa"], "There is no language model at no.arpa"),
        (["{run}", "--manifest", "{test}", "--decode", "attention"], "has no attention decoder"),
        (["{run}", "--manifest", "{test}", "--against", "no.json"], "--against no.json"),
        (["{run}", "--manifest", "{test}", "--device", "nonsense"], "The device 'nonsense' cannot be used here"),
        (["{run}", "--manifest", "{test}", "--import", "no_such_module"], "--import no_such_module"),
    ],
    ids=["manifest", "run", "language-model", "decode", "against", "device", "import"],
)  # fmt: skip
def test_mistakes_are_said_in_a_line_with_exit_code_2(digits, capsys, arguments, said):
    arguments = [part.format(run=digits.run, test=digits.test) for part in arguments]
    assert run(["evaluate", *arguments]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message
    assert "should not have happened" not in message
