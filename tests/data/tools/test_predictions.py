"""Manifests with what recognisers wrote, as NeMo and its tools exchange them."""

from __future__ import annotations

import json

import pytest

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.tools.predictions import prediction_columns, read_predictions, write_predictions
from sonosco_like.data.tools.stats import gather_statistics, statistics_tables
from sonosco_like.errors import DataError

NEMO = [
    {"audio_filepath": "a.wav", "duration": 1.5, "text": "one two", "pred_text": "one too", "lang": "en", "snr": 1.25},
    {"audio_filepath": "b.wav", "duration": 2.0, "text": "Three, four", "pred_text": "three four", "tags": ["x", {}]},
]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_other_column_is_kept_and_paths_lead_from_the_new_file(tmp_path):
    manifest = write(tmp_path / "corpus" / "test.jsonl", NEMO)
    output = write_predictions(tmp_path / "out" / "heard.jsonl", manifest, {"a": "one two", "b": "three for"})
    assert rows_of(output) == [
        {**NEMO[0], "id": "a", "audio_filepath": "../corpus/a.wav", "pred_text": "one two"},
        {**NEMO[1], "id": "b", "audio_filepath": "../corpus/b.wav", "pred_text": "three for"},
    ]
    assert [row.id for row in Manifest.read(output)] == ["a", "b"]
    assert [path.name for path in output.parent.iterdir()] == ["heard.jsonl"]


def test_a_row_that_could_not_be_recognised_stays_without_a_prediction(tmp_path):
    output = write_predictions(tmp_path / "o.jsonl", write(tmp_path / "m.jsonl", NEMO), {"b": ""})
    assert ["pred_text" in row for row in rows_of(output)] == [False, True]
    rows = read_predictions(output)
    assert [dict(row.predictions) for row in rows] == [{}, {"pred_text": ""}]


def test_a_manifest_can_be_written_over_itself(tmp_path):
    manifest = write(tmp_path / "m.jsonl", NEMO)
    write_predictions(manifest, manifest, {"a": "x", "b": "y"})
    assert [row["pred_text"] for row in rows_of(manifest)] == ["x", "y"]
    assert [row.get("lang") for row in rows_of(manifest)] == ["en", None]


@pytest.mark.parametrize(
    "value",
    ["NaN", "-Infinity", "1e999", '"\\ud800"', "[[1, null], {}]", "123456789012345678901234567890"],
)
def test_what_other_tools_write_into_other_columns_does_not_stop_it(tmp_path, value):
    line = f'{{"audio_filepath": "a.wav", "duration": 1.0, "text": "x", "score": {value}}}'
    output = write_predictions(tmp_path / "o.jsonl", write(tmp_path / "m.jsonl", [line]), {"a": "x"})
    [row] = rows_of(output)
    kept = json.loads(value)
    is_number = isinstance(kept, float)
    assert row["score"] == (None if is_number else kept)
    json.loads(output.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_csv_manifest_gets_its_predictions_too(tmp_path):
    (tmp_path / "m.csv").write_text("audio_filepath,text,duration\na.wav,one,1.0\n")
    output = write_predictions(tmp_path / "o.jsonl", tmp_path / "m.csv", {"a": "won"})
    assert rows_of(output) == [
        {"id": "a", "audio_filepath": "a.wav", "duration": 1.0, "text": "one", "pred_text": "won"}
    ]


def test_several_recognisers_in_one_manifest(tmp_path):
    rows = [{**row, "pred_text_big": "x", "predicted": "no"} for row in NEMO]
    found = read_predictions(write(tmp_path / "m.jsonl", rows))
    assert prediction_columns(found) == ["pred_text", "pred_text_big"]
    assert (found[1].reference, found[1].predictions["pred_text_big"]) == ("Three, four", "x")


def test_every_bad_row_is_named(tmp_path):
    bad = [{**NEMO[0], "pred_text": 7}, {"text": "x"}, "{", NEMO[1], NEMO[1]]
    with pytest.raises(DataError) as caught:
        read_predictions(write(tmp_path / "m.jsonl", bad))
    message = str(caught.value)
    assert "row 1: `pred_text` must be a text, got 7" in message
    assert "row 2: `audio_filepath` must be" in message
    assert "row 3: is not JSON" in message
    assert "row 5: has the same id as row 4: 'b'" in message
    with pytest.raises(DataError, match=r"gone\.jsonl cannot be read: No such file"):
        read_predictions(tmp_path / "gone.jsonl")


def test_statistics_show_the_rates_of_predictions(tmp_path):
    manifest = Manifest.read(write(tmp_path / "m.jsonl", NEMO))
    statistics = gather_statistics(manifest, opening="none")
    [rates] = statistics.predictions
    assert (rates.column, rates.utterances, rates.wer) == ("pred_text", 2, 1 / 4)
    assert rates.cer == 1 / len("one two" + "three four")
    assert "predictions" in str([table.title for table in statistics_tables(statistics, "m", 5)])
    plain = [{key: value for key, value in row.items() if key != "pred_text"} for row in NEMO]
    assert gather_statistics(Manifest.read(write(tmp_path / "p.jsonl", plain)), opening="none").predictions == []
