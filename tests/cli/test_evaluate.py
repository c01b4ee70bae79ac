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


def rates(path):
    content = json.loads(path.read_text())
    return content["wer"], content["cer"], content["ser"], content["reference_words"]


def test_predictions_give_the_same_rates_as_the_recogniser_that_wrote_them(digits, tmp_path, capsys):
    """Also under a normalizer, since the file holds the texts as they were before it."""
    heard, direct, again = tmp_path / "out" / "heard.jsonl", tmp_path / "direct.json", tmp_path / "again.json"
    command = ["evaluate", str(digits.run), "--manifest", str(digits.test), "--pred-text", str(heard)]
    assert run([*command, "--json", str(direct)]) == 0
    assert f"written: {heard}" in capsys.readouterr().out
    assert run(["evaluate", str(heard), "--json", str(again), "--against", str(direct)]) == 0
    assert "No real difference" in capsys.readouterr().out
    assert rates(again) == rates(direct)
    assert json.loads(again.read_text())["column"] == "pred_text"
    rows = [json.loads(line) for line in heard.read_text().splitlines()]
    assert [row["text"] for row in rows] == [row["text"] for row in digits.rows("test.jsonl")]
    assert (heard.parent / rows[0]["audio_filepath"]).resolve() == digits.audio(digits.rows("test.jsonl")[0])

    for path, subject in ((direct, command[1:-2]), (again, [str(heard)])):
        assert run(["evaluate", *subject, "--normalizer", "english", "--json", str(path)]) == 0
        assert json.loads(path.read_text())["normalizer"]["name"] == "english"
    assert rates(again) == rates(direct)


def test_predictions_are_not_written_over_a_file_without_being_told(digits, tmp_path, capsys):
    command = ["evaluate", str(digits.run), "--manifest", str(digits.test), "--pred-text", str(tmp_path / "h.jsonl")]
    (tmp_path / "h.jsonl").write_text("mine")
    assert run(command) == 2
    assert "write over it with --force" in capsys.readouterr().err
    assert (tmp_path / "h.jsonl").read_text() == "mine"
    assert run([*command, "--force"]) == 0
    assert "pred_text" in (tmp_path / "h.jsonl").read_text()


def predictions(path, **columns):
    rows = [
        {"audio_filepath": f"{n}.wav", "duration": 2.0, "text": "Colour one, two"}
        | {k: v[n] for k, v in columns.items()}
        for n in range(2)
    ]
    path.write_text("".join(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in rows))
    return str(path)


def test_several_columns_are_compared_with_each_other(tmp_path, capsys):
    path = predictions(
        tmp_path / "both.jsonl", pred_text=["color one", "color one two"], pred_text_b=["colour one two"] * 2
    )
    written, page = tmp_path / "e.json", tmp_path / "e.html"
    assert run(["evaluate", path, "--column", "pred_text_b", "--json", str(written), "--html", str(page)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "all predictions" in said
    assert "This one makes 50.00 points fewer word errors than pred_text" in said
    content = json.loads(written.read_text())
    assert (content["wer"], content["column"], content["columns"]["pred_text"]["wer"]) == (0.0, "pred_text_b", 0.5)
    assert content["columns"]["pred_text"]["comparison"]["other_wer"] == 0.5
    assert content["columns"]["pred_text_b"]["comparison"] is None
    assert "All predictions" in page.read_text()


def test_another_tool_is_compared_with_a_run_in_one_form(digits, tmp_path, capsys):
    """The other tool writes case and punctuation, which the training does not."""
    rows = digits.rows("test.jsonl")
    path = tmp_path / "tool.json"  # as NeMo calls its manifests
    path.write_text("".join(json.dumps({**row, "pred_text": row["text"].upper() + "."}) + "\n" for row in rows))
    command = ["evaluate", str(digits.run), "--manifest", str(digits.test), "--json", str(tmp_path / "e.json")]
    assert run([*command, "--against", str(path)]) == 0
    comparison = json.loads((tmp_path / "e.json").read_text())["comparison"]
    assert (comparison["other_wer"], comparison["is_real"]) == (0.0, True)
    assert run([*command, "--against", str(path), "--normalizer", "none"]) == 0
    assert json.loads((tmp_path / "e.json").read_text())["comparison"]["other_wer"] == 1.0


def test_names_in_square_brackets_are_printed_as_they_are(tmp_path, capsys):
    """They are no commands of the terminal's library."""
    rows = [
        {"id": f"[/i{n}]", "audio_filepath": "[/a].wav", "duration": 1.0, "text": "one", "speaker": f"[/s{n}]",
         "pred_text_[/p]": "[red]two[/q]", "pred_text_b": None}
        for n in range(2)
    ]  # fmt: skip
    path = tmp_path / "[bold].jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["evaluate", str(path), "--normalizer", "none"]) == 0
    said = capsys.readouterr().out
    assert "pred_text_[/p] of" in said.replace("\n", "")
    assert "[/s1]" in said
    assert "[red]two[/q]" in said
    assert run(["data", "stats", str(path), "--open", "none"]) == 0
    assert "[/i1]" in capsys.readouterr().out


def test_a_row_without_a_prediction_is_named_and_the_exit_code_says_so(tmp_path, capsys):
    assert run(["evaluate", predictions(tmp_path / "m.jsonl", pred_text=[None, "colour one two"])]) == 1
    assert "0 has no `pred_text`." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}"], "--manifest FILE"),
        (["{run}", "--manifest", "{test}", "--normalizer", "inglish"], "did you mean 'english'?"),
        (["{run}", "--manifest", "{test}", "--column", "pred_text"], "needs a manifest with predictions"),
        (["{test}"], "sonosco evaluate RUN --manifest {test}"),
        (["gone.jsonl"], "gone.jsonl cannot be read: No such file or directory"),
        (["{both}", "--column", "pred_text_c"], "has no column 'pred_text_c'; it has pred_text."),
        (["{both}", "--beam", "8"], "--beam is for a recogniser; {both} is a file"),
        (["{both}", "--pred-text", "x.jsonl"], "--pred-text is for a recogniser"),
        (["{run}", "--manifest", "{test}", "--json", "{test}"], "Choose another name"),
        (["{run}", "--manifest", "{test}", "--json", "{test}/x/y.json"], "y.json cannot be written"),
        (["{run}", "--manifest", "{test}", "--html", "{test}/y.html"], "y.html cannot be written"),
        (["{run}", "--manifest", "{test}", "--errors", "{test}/y.txt"], "y.txt cannot be written"),
        (["{run}", "--manifest", "{test}", "--pred-text", "{test}/y.jsonl"], "y.jsonl cannot be written"),
        (["{run}", "--manifest", "{test}", "--against", "{english}"], "Use one for both, such as --normalizer english"),
    ],
)
def test_mistakes_are_found_before_the_long_work(digits, tmp_path, capsys, arguments, said):
    both = predictions(tmp_path / "both.jsonl", pred_text=["a", "b"])
    english = tmp_path / "english.json"
    english.write_text(json.dumps({"normalizer": {"name": "english", "version": "1"}, "results": []}))
    names = {"run": digits.run, "test": digits.test, "both": both, "english": english}
    assert run(["evaluate", *(part.format(**names) for part in arguments)]) == 2
    message = capsys.readouterr().err
    assert said.format(**names) in message
    assert "evaluating" not in message
    assert "Traceback" not in message
