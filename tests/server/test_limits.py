"""What the server refuses, and how."""

from __future__ import annotations

import io
import random
import socket
import time

import numpy as np
import pytest
import soundfile
from server_process import start_server

from sonosco_like.cli import run
from sonosco_like.server.limits import is_loopback

TOKEN = "correct-horse-battery-staple"


def wav(seconds: float, rate: int = 16000) -> bytes:
    """Some noise."""
    buffer = io.BytesIO()
    samples = np.random.default_rng(0).normal(0, 0.05, round(seconds * rate))
    soundfile.write(buffer, samples, rate, format="WAV")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def recordings(digits):
    return [digits.audio(row).read_bytes() for row in digits.rows()[:4]]


def damaged(recordings: list[bytes], chance: random.Random) -> bytes:
    """A recording that was cut, changed, mixed with noise, or is none at all."""
    content = bytearray(chance.choice(recordings))
    kind = chance.randrange(5)
    if kind == 0:
        return bytes(content[: chance.randrange(len(content))])
    if kind == 1:
        for _ in range(chance.randrange(1, 60)):
            content[chance.randrange(min(len(content), 2000))] = chance.randrange(256)
    elif kind == 2:
        return chance.randbytes(chance.randrange(3000))
    elif kind == 3:
        start = chance.choice(
            [b"RIFF", b"fLaC", b"OggS", b"\x1a\x45\xdf\xa3", b"\0\0\0\x18ftypisom", b"ID3\4", b"#EXTM3U\n"]
        )
        return start + chance.randbytes(chance.randrange(2000))
    else:
        place = chance.randrange(len(content))
        content[place:place] = chance.randbytes(chance.randrange(500))
    return bytes(content)


def test_five_hundred_malformed_uploads_are_answered_and_harm_nobody(server, recordings):
    chance = random.Random(4)
    (before,) = server.transcribe(recordings[0]).json()["results"]
    statuses = []
    pids = server.processes("recogniser")
    with server.client() as client:
        for number in range(500):
            answer = client.post("/v1/transcribe", files={"file": damaged(recordings, chance)})
            statuses.append(answer.status_code)
            if number % 100 == 0:
                (after,) = server.transcribe(recordings[0]).json()["results"]
                assert after == before
    assert set(statuses) <= {200, 413, 422}
    assert statuses.count(422) > 100
    assert server.processes("recogniser") == pids


def test_a_playlist_opens_no_other_file(server, tmp_path, recordings):
    secret = tmp_path / "secret.wav"
    secret.write_bytes(recordings[0])
    for text in (f"#EXTM3U\n#EXTINF:1,\nfile://{secret}\n", f"ffconcat version 1.0\nfile {secret}\n", str(secret)):
        assert server.transcribe(text.encode()).status_code == 422


def test_names_of_uploads_reach_no_file(server, recordings):
    with server.client() as client:
        for name in ("/etc/passwd", "../../../x", "a\0b", "CON", "x" * 1000, "http://127.0.0.1/"):
            answer = client.post("/v1/transcribe", files={"file": (name, recordings[0], "text/html")})
            assert answer.status_code == 200, name


def test_a_recording_that_is_too_long_is_refused(server):
    answer = server.transcribe(wav(21))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "audio_too_long")
    assert server.transcribe(wav(19)).status_code == 200
    packed = io.BytesIO()
    soundfile.write(packed, np.zeros(3600 * 48000, dtype=np.float32), 48000, format="FLAC")
    assert len(packed.getvalue()) < 10_000_000, "an hour of silence is a small file"
    answer = server.transcribe(packed.getvalue())
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "audio_too_long")


def test_silence_is_an_empty_text(server):
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(16000), 16000, format="WAV")
    (result,) = server.transcribe(buffer.getvalue()).json()["results"]
    assert (result["text"], result["words"], result["duration"]) == ("", [], 1.0)


@pytest.fixture(scope="module")
def strict(digits, tmp_path_factory):
    """A server with a token and narrow limits."""
    folder = tmp_path_factory.mktemp("strict")
    (folder / "token").write_text(f"{TOKEN}\n")
    limits = ["--max-megabytes", 0.2, "--max-requests", 2]
    running = start_server(folder / "log", digits.run, "--token-file", folder / "token", *limits)
    yield running
    running.stop()


ASKING = {"Authorization": f"Bearer {TOKEN}"}


def test_a_token_is_asked_for_where_something_is_told(strict, recordings):
    with strict.client() as client:
        for path in ("/healthz", "/openapi.json"):
            assert client.get(path).status_code == 200
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": TOKEN},
            {"Authorization": b"Bearer \xe9"},
        ):
            for answer in (
                client.get("/v1/models", headers=headers),
                client.get("/metrics", headers=headers),
                client.post("/v1/transcribe", headers=headers, files={"file": recordings[0]}),
                client.post("/v1/audio/transcriptions", headers=headers, files={"file": recordings[0]}),
            ):
                assert answer.status_code == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert client.get("/v1/models", headers=ASKING).status_code == 200
        answer = client.post("/v1/transcribe", headers=ASKING, files={"file": recordings[0]})
        assert answer.status_code == 200
        assert answer.json()["results"][0]["model"] == "run", "a model has the name of its folder"


def test_too_many_bytes_are_refused_with_and_without_a_length(strict):
    def chunks():
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        for _ in range(40):
            yield b"x" * 10_000

    with strict.client(headers=ASKING) as client:
        answers = [
            client.post("/v1/transcribe", files={"file": b"x" * 400_000}),
            client.post(
                "/v1/transcribe", content=chunks(), headers={"Content-Type": "multipart/form-data; boundary=x"}
            ),
        ]
    assert [each.status_code for each in answers] == [413, 413]


def slow_upload(address: str) -> socket.socket:
    """A client that has sent a part of what it announced."""
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    head = f"POST /v1/transcribe HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 5000\r\n"
    connection.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n".encode())
    connection.settimeout(60)
    return connection


def test_too_many_requests_are_refused_and_told_when_to_come_again(strict, recordings):
    slow = [slow_upload(strict.address) for _ in range(2)]
    try:
        with strict.client(headers=ASKING) as client:
            strict.wait_until(lambda: "sonosco_active_requests 2.0" in client.get("/metrics").text)
            refused = client.post("/v1/transcribe", files={"file": recordings[0]})
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
            assert client.get("/healthz").status_code == 200, "who looks after the server is always answered"
    finally:
        for each in slow:
            each.close()
    with strict.client(headers=ASKING) as client:
        strict.wait_until(lambda: "sonosco_active_requests 0.0" in client.get("/metrics").text)
        assert client.post("/v1/transcribe", files={"file": recordings[0]}).status_code == 200


def test_a_slow_upload_is_given_up(serve, digits):
    with slow_upload(serve(digits.run, "--timeout", 1).address) as connection:
        head = connection.recv(4096).decode()
    assert head.startswith("HTTP/1.1 408 ")
    assert "retry-after: 2" in head.lower()


def test_pages_of_other_sites_are_refused(server, recordings):
    own = server.address.removeprefix("http://")
    port = own.split(":")[1]
    with server.client() as client:
        for headers, status in (
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"http://127.0.0.1:{int(port) + 1}"}, 403),
            ({"Host": "evil.example"}, 403),
            ({"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}, 403),
            ({"Origin": server.address}, 200),
            ({"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}, 200),
        ):
            answer = client.post("/v1/transcribe", headers=headers, files={"file": recordings[0]})
            assert answer.status_code == status, headers
            assert "access-control-allow-origin" not in answer.headers


def test_every_answer_has_the_headers_of_security(server):
    with server.client() as client:
        for path in ("/healthz", "/nothing", "/v1/models", "/openapi.json"):
            headers = client.get(path).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert "server" not in headers


def test_the_comparison_of_tokens_takes_as_long_for_every_wrong_one():
    from sonosco_like.server.limits import Access

    access = Access("a" * 5000, only_this_machine=True)
    near, far = "a" * 4999 + "b", "b" + "a" * 4999
    assert not access.knows(near)
    assert not access.knows(far)
    times = {near: [], far: []}
    for _ in range(300):
        for given, taken in times.items():
            start = time.perf_counter()
            access.knows(given)
            taken.append(time.perf_counter() - start)
    assert min(times[near]) < 3 * min(times[far])


def test_only_names_of_this_machine_are_loopback():
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.5", "example.com", "", "localhost.evil.example")))


def test_wrong_usage_is_one_line_and_code_2(digits, tmp_path, capsys):
    short = tmp_path / "short"
    short.write_text("abc")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        cases = {
            "give a token with --token-file": [str(digits.run), "--host", "0.0.0.0"],
            "at least 16 characters": [str(digits.run), "--token-file", str(short)],
            "cannot be read": [str(digits.run), "--token-file", str(tmp_path / "none")],
            "would have the name 'run'": [str(digits.run), str(digits.run)],
            "is no model": ["=x"],
            "No module named 'no_such_module'": [str(digits.run), "--import", "no_such_module"],
            "cannot listen": [str(digits.run), "--port", port],
        }
        for message, arguments in cases.items():
            assert run(["serve", *arguments]) == 2
            shown = capsys.readouterr().err
            assert message in shown
            assert shown.count("\n") == 1


def test_a_model_that_does_not_exist_is_one_line_and_code_2(tmp_path):
    from warm import run_sonosco

    assert run_sonosco("serve", tmp_path / "none", "--port", "0", log=tmp_path / "log") == 2
    shown = (tmp_path / "log").read_text()
    assert "none" in shown
    assert shown.count("\n") == 1
