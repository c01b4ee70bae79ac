"""Corrections that a server saves."""

from __future__ import annotations

import io
import json
import os
import signal
import threading

import numpy as np
import pytest
import soundfile

from sonosco_like.data.manifest import Manifest
from sonosco_like.errors import UsageError
from sonosco_like.server.collect import Collection, clean_text


def wav(number: int, seconds: float = 0.2) -> bytes:
    """A recording of its own for each number."""
    buffer = io.BytesIO()
    samples = np.random.default_rng(number).normal(0, 0.1, round(seconds * 16000))
    soundfile.write(buffer, samples, 16000, format="WAV")
    return buffer.getvalue()


def save(client, number, text):
    return client.post("/v1/corrections", files={"file": wav(number)}, data={"text": text})


def test_no_answered_correction_is_lost_when_everything_is_killed(serve, digits, tmp_path):
    folder = tmp_path / "corrections"
    running = serve(digits.run, "--collect", folder)
    answered = []

    def work():
        with running.client() as client:
            for number in range(10_000):
                try:
                    answer = save(client, number, f"text {number}")
                except Exception:  # the server is gone
                    return
                if answer.status_code == 200:
                    answered.append(number)

    thread = threading.Thread(target=work)
    thread.start()
    running.wait_until(lambda: len(answered) > 10)
    (collector,) = running.processes("collector")
    os.kill(collector, signal.SIGKILL)
    running.wait_until(lambda: running.processes("collector") not in ([], [collector]))
    count = len(answered)
    running.wait_until(lambda: len(answered) > count + 10)
    os.killpg(running.process.pid, signal.SIGKILL)
    thread.join()
    kept = Manifest.read(folder / "corrections.jsonl")
    assert {f"text {number}" for number in answered} <= {row.text for row in kept}
    for row in kept:
        assert soundfile.info(row.audio_filepath).duration == pytest.approx(row.duration, abs=1e-4)
    again = serve(digits.run, "--collect", folder)
    with again.client() as client:
        first = save(client, answered[0], "another text").json()
    assert (first["saved"], first["rows"]) == ("changed", len(kept))


def test_one_recording_is_one_row_with_its_last_text(tmp_path):
    collection = Collection(tmp_path)
    samples = np.linspace(-1, 1, 1600, dtype=np.float32)
    assert collection.save(samples, 16000, "one\n two\t")["saved"] == "added"
    assert collection.save(samples, 16000, "one two")["saved"] == "unchanged"
    assert collection.save(samples, 16000, "one")["saved"] == "changed"
    assert collection.save(samples, 8000, "one")["rows"] == 2
    assert Collection(tmp_path).save(samples, 8000, "one") == {**collection.save(samples, 8000, "one")}
    rows = [json.loads(line) for line in (tmp_path / "corrections.jsonl").read_text().splitlines()]
    assert [(row["text"], row["duration"]) for row in rows] == [("one", 0.1), ("one", 0.2)]
    assert sorted(path.suffix for path in (tmp_path / "audio").iterdir()) == [".flac", ".flac"]


def test_texts_become_words_of_one_line():
    assert clean_text(" a\r\nb\u2028c\0d\u00a0e\u0301 ") == "a b c d \u00e9"
    for empty in ("", "  ", "\n\0"):
        with pytest.raises(UsageError):
            clean_text(empty)


def test_hostile_texts_and_folders_are_refused(serve, digits, tmp_path):
    folder = tmp_path / "corrections"
    running = serve(digits.run, "--collect", folder)
    with running.client() as client:
        answer = save(client, 1, '"}\n{"audio_filepath": "/etc/passwd", "text": "x"}')
        assert answer.json()["rows"] == 1
        assert save(client, 2, "\n").status_code == 422
        assert save(client, 2, "x" * 5001).status_code == 422
        assert client.post("/v1/corrections", files={"file": b"no audio"}, data={"text": "x"}).status_code == 422
        cross = client.post(
            "/v1/corrections", files={"file": wav(3)}, data={"text": "x"}, headers={"Origin": "http://evil.example"}
        )
        assert cross.status_code == 403
    assert len((folder / "corrections.jsonl").read_text().splitlines()) == 1
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "audio").symlink_to(tmp_path)
    with pytest.raises(AssertionError, match="is a link"):
        serve(digits.run, "--collect", tmp_path / "linked")
    with pytest.raises(AssertionError, match="Another server collects"):
        serve(digits.run, "--collect", folder)


def test_without_a_folder_nothing_is_saved(server):
    with server.client() as client:
        assert save(client, 1, "x").status_code == 404
        assert not client.get("/healthz").json()["collecting"]
