"""Texts while somebody speaks, over a real WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import json

import numpy as np
import pytest
import soundfile
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

PATIENCE = 120  # seconds
READY = '{"sample_rate": 16000}'


async def talk(server, first, pieces, stop=True, **options):
    """What the server says to a stream; each piece is sent when the server had time for the one before."""
    address = server.address.replace("http", "ws") + "/v1/stream"
    heard = []
    async with connect(address, **options) as socket:
        await socket.send(first if isinstance(first, str | bytes) else json.dumps(first))

        async def listen():
            with contextlib.suppress(ConnectionClosed):  # as after an error
                async for message in socket:
                    heard.append(json.loads(message))

        listening = asyncio.create_task(listen())
        try:
            for piece in pieces:
                await socket.send(piece)
                await asyncio.sleep(0.1)
            if stop:
                await socket.send('{"type": "stop"}')
        except ConnectionClosed:
            pass
        await asyncio.wait_for(listening, PATIENCE)
    return heard


@pytest.fixture(scope="module")
def speech(digits):
    """Samples of two recordings with a pause between them, and a file of the same."""
    parts = [soundfile.read(digits.audio(row), dtype="int16")[0] for row in digits.rows()[:2]]
    return np.concatenate([parts[0], np.zeros(16000, dtype=np.int16), parts[1]])


async def talk_slowly(server, samples):
    """As `talk`, in two halves; the second one is sent when there is a text for the first one."""
    async with connect(server.address.replace("http", "ws") + "/v1/stream") as socket:
        await socket.send(json.dumps({"model": "digits", "sample_rate": 16000}))
        heard = [json.loads(await socket.recv())]
        for half in np.array_split(samples, 2):
            await socket.send(half.tobytes())
            heard.append(json.loads(await asyncio.wait_for(socket.recv(), PATIENCE)))
        await socket.send('{"type": "stop"}')
        heard += [json.loads(message) async for message in socket]
    return heard


def test_texts_grow_and_the_last_one_is_that_of_the_whole(server, speech, tmp_path):
    heard = asyncio.run(talk_slowly(server, speech))
    soundfile.write(tmp_path / "whole.wav", speech, 16000)
    (whole,) = server.transcribe(tmp_path / "whole.wav").json()["results"]
    assert heard[0] == {"type": "ready", "model": "digits"}
    assert [each["type"] for each in heard[1:]] == ["partial", "partial", "final"]
    assert heard[-1] == {"type": "final", **whole}
    assert [each["seconds"] for each in heard[1:-1]] == [
        pytest.approx(len(speech) / 32000, abs=0.01),
        round(whole["duration"], 2),
    ]
    assert len(heard[1]["text"]) < len(heard[2]["text"])


def test_a_microphone_of_another_rate_and_odd_pieces_are_taken(server, speech):
    content = np.repeat(speech[:16000], 3).tobytes()  # 48000 samples per second
    pieces = [content[start : start + 9999] for start in range(0, len(content), 9999)]
    heard = asyncio.run(talk(server, {"sample_rate": 48000}, pieces))
    assert heard[-1]["type"] == "final"
    assert heard[-1]["duration"] == pytest.approx(1.0, abs=0.01)


def test_silence_and_nothing_are_empty_texts(server):
    for pieces in ([], [bytes(32000)]):
        heard = asyncio.run(talk(server, {"sample_rate": 16000}, pieces))
        assert (heard[-1]["type"], heard[-1]["text"]) == ("final", "")


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ({}, "invalid_field"),
        ({"sample_rate": "x"}, "invalid_field"),
        ({"sample_rate": 10**9}, "invalid_field"),
        ({"sample_rate": 16000, "model": "none"}, "model_not_found"),
        ("[]", "bad_request"),
        ("{", "bad_request"),
        ("[" * 100_000, "bad_request"),
        (b"\xff\x00", "bad_request"),
    ],
)
def test_what_makes_no_sense_is_refused(server, first, code):
    heard = asyncio.run(talk(server, first, [], stop=False))
    assert [each["type"] for each in heard] == ["error"]
    assert heard[0]["error"]["code"] == code


def test_a_stream_that_is_too_long_is_refused(server):
    second = bytes(2 * 16000)
    heard = asyncio.run(talk(server, {"sample_rate": 16000}, [20 * second, 2 * second]))
    assert heard[-1]["error"]["code"] == "audio_too_long"


def test_who_says_nothing_or_nothing_to_the_point_loses_the_place(serve, digits):
    running = serve(digits.run, "--timeout", 1, "--max-seconds", 1)
    address = running.address.replace("http", "ws") + "/v1/stream"

    async def last_error(*said, chatters=False):
        """The message of the server's last answer; a chatter sends messages without samples until then."""
        heard = []
        with contextlib.suppress(ConnectionClosed):
            async with connect(address) as socket:
                for each in said:
                    await socket.send(each)
                while True:
                    if chatters:
                        await socket.send("{}")
                    with contextlib.suppress(TimeoutError):
                        heard.append(json.loads(await asyncio.wait_for(socket.recv(), 0.1 if chatters else PATIENCE)))
        return heard[-1]["error"]["message"]

    async def many():
        return await asyncio.gather(*(last_error() for _ in range(10)), *(last_error(READY) for _ in range(10)))

    for _ in range(2):  # more streams than there are places: those that ended hold none
        assert set(asyncio.run(many())) == {"Nothing came in time. Begin another one."}
    assert asyncio.run(last_error(READY, chatters=True)) == "The stream was open for too long. Begin another one."


def test_streams_of_other_sites_and_without_the_token_are_refused(server, serve, digits, tmp_path):
    with pytest.raises(InvalidStatus):
        asyncio.run(talk(server, {"sample_rate": 16000}, [], origin="http://evil.example"))
    (tmp_path / "token").write_text("correct-horse-battery")
    strict = serve(digits.run, "--token-file", tmp_path / "token")
    for token in ({}, {"token": "wrong"}, {"token": 5}):
        heard = asyncio.run(talk(strict, {"sample_rate": 16000, **token}, [], stop=False))
        assert heard[0]["error"]["code"] == "wrong_token"
    heard = asyncio.run(talk(strict, {"sample_rate": 16000, "token": "correct-horse-battery"}, []))
    assert heard[-1]["type"] == "final"
