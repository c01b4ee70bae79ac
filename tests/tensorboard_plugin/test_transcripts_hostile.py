"""Records that no run of ours has written: passed over, or refused with a sentence, and everything else is shown."""

from __future__ import annotations

import json
import zlib

import pytest
from transcript_asking import Asking, multiplexers
from transcript_runs import write_transcripts

from sonosco_like.callbacks.destination import DashboardData
from sonosco_like.callbacks.tensorboard import EventFile, make_summary
from sonosco_like.tensorboard_plugin.records import PLUGIN, UnreadableError, unpack


def with_record(folder, about, parts):
    """A folder with one good run and one with such a record beside good ones."""
    write_transcripts(folder / "good", {"u1": "one"}, {10: {"u1": "one"}})
    write_transcripts(folder / "bad", {"u1": "one"}, {10: {"u1": "one"}})
    file = EventFile(folder / "bad" / "events.out.tfevents.1800000000.other")
    content = about if isinstance(about, bytes) else json.dumps({"version": 1, "set": "val", **about}).encode()
    file.add(make_summary("transcripts/val/heard/00000020", DashboardData(PLUGIN, content, tuple(parts))), 20)
    file.close()
    return Asking(folder)


@pytest.mark.parametrize(
    "about", [b"", b"{", b"[]", b"\xff", b'{"version": 99, "set": "val"}', {"set": 5}, {"kind": "heard", "step": "x"}]
)
def test_records_of_no_known_kind_are_passed_over(tmp_path, about):
    asking = with_record(tmp_path, about, [b"x"])
    runs = asking.json("/runs")["runs"]
    assert set(runs) == {"good", "bad"}
    assert runs["bad"]["val"]["steps"] == [10]


BOMB = zlib.compress(bytes(70 << 20), 1)
NONE = zlib.compress(b"")


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"not packed", b"x"],
        [BOMB, BOMB],
        [zlib.compress(bytes(8)), BOMB],
        [zlib.compress(bytes(8)), zlib.compress(b"{}")],
        [zlib.compress(bytes(8)), zlib.compress(b"[1]")],
        [zlib.compress(bytes(8)), zlib.compress(b'["a", "b"]')],
        [zlib.compress(bytes(8)), zlib.compress(b'["a"]')[:-3]],
        [NONE, zlib.compress(b'["a"]')],
        [zlib.compress(bytes(8))],
    ],
    ids=[
        "no parts",
        "not packed",
        "bomb",
        "bomb of texts",
        "no list",
        "no texts",
        "too many",
        "torn",
        "no errors",
        "missing",
    ],
)
def test_torn_and_hostile_records_are_refused_with_a_sentence(tmp_path, parts):
    write_transcripts(tmp_path / "bad", {"u1": "one"}, {10: {"u1": "one"}})
    about = {"kind": "heard", "step": 20, "modes": ["free"], "utterances": key_of(tmp_path / "bad")}
    asking = with_record(tmp_path, about, parts)
    answer = asking.get("/rows", run="bad", set="val", mode="free", step=20)
    assert answer.status_code == 422
    assert "cannot be read" in json.loads(answer.get_data())["error"]
    assert asking.rows(run="bad", step=10)["rows"][0]["id"] == "u1"
    curves = asking.json("/curves", run="bad", set="val", mode="free", step=10)["curves"]
    assert curves[0]["u1"][0] == 0.0
    assert asking.rows(run="good")["rows"][0]["id"] == "u1"


@pytest.mark.parametrize(
    "entries",
    [
        '[{"id": "u1", "features": 5}]',
        '[{"id": "u1"}]',
        '[{"id": "u1", "features": {"rows": "a", "columns": "b", "part": 1}}]',
        '[{"id": "u1", "features": {"rows": 1, "columns": 9, "part": 1}}]',
        "[" * 100_000,
    ],
    ids=["no picture", "nothing", "no numbers", "too few pixels", "deep"],
)
def test_hostile_samples_are_refused_with_a_sentence(tmp_path, entries):
    write_transcripts(tmp_path / "bad", {"u1": "one"}, {10: {"u1": "one"}})
    asking = with_record(tmp_path, {"kind": "recordings"}, [zlib.compress(entries.encode()), NONE])
    answer = asking.get("/sample", run="bad", set="val", id="u1", step=10)
    assert answer.status_code == 422
    assert "cannot be read" in json.loads(answer.get_data())["error"]


def key_of(folder):
    """The key of the utterances that a run has written."""
    multiplexer = multiplexers.EventMultiplexer().AddRunsFromDirectory(str(folder.parent))
    multiplexer.Reload()
    tags = multiplexer.PluginRunToTagToContent(PLUGIN)[folder.name]
    return next(json.loads(content)["key"] for content in tags.values() if b'"kind":"utterances"' in content)


def test_a_part_is_unpacked_up_to_a_size_only():
    with pytest.raises(UnreadableError, match="larger than anything"):
        unpack(BOMB)
