"""Many clients, crashes and the end of a server."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import httpx
import pytest

from sonosco_like import load_transcriber


@pytest.fixture(scope="module")
def recordings(digits):
    """The first recordings, and what the model hears in each."""
    rows = digits.rows()[:16]
    transcriber = load_transcriber(digits.run)
    return [(digits.audio(row).read_bytes(), transcriber(digits.audio(row)).text) for row in rows]


async def ask(client, number, recordings, model="digits"):
    content, _ = recordings[number % len(recordings)]
    return await client.post("/v1/transcribe", files={"file": content}, data={"model": model})


def ask_all(address, count, recordings, model="digits"):
    """Ask so many times at once; the answers in their order."""

    async def work():
        limits = httpx.Limits(max_connections=count)
        async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
            return await asyncio.gather(*(ask(client, number, recordings, model) for number in range(count)))

    return asyncio.run(work())


def texts(answers):
    return [each.json()["results"][0]["text"] for each in answers]


def test_64_clients_at_once_get_their_own_answers(server, recordings):
    batches, requests = server.metric("sonosco_batch_size_count"), 64
    answers = ask_all(server.address, requests, recordings)
    assert [each.status_code for each in answers] == [200] * requests
    assert texts(answers) == [recordings[number % len(recordings)][1] for number in range(requests)]
    assert server.metric("sonosco_batch_size_count") - batches < requests, "requests share batches"


def test_a_killed_recogniser_is_replaced_and_no_answer_is_lost(serve, digits, recordings):
    running = serve(f"digits={digits.run}")
    (pid,) = running.processes("recogniser")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(ask_all, running.address, 48, recordings)
        running.wait_until(lambda: running.metric("sonosco_active_requests") > 0)
        os.kill(pid, signal.SIGKILL)
        answers = found.result()
    assert [each.status_code for each in answers] == [200] * 48
    assert texts(answers) == [recordings[number % len(recordings)][1] for number in range(48)]
    assert running.processes("recogniser") != [pid]
    (idle,) = running.processes("recogniser")
    os.kill(idle, signal.SIGKILL)
    running.wait_until(lambda: running.processes("recogniser") not in ([], [idle]))
    running.wait_until(lambda: running.metric("sonosco_recognisers") == 1)
    assert running.metric("sonosco_restarts_total") == 2
    for decoder in running.processes("decoder"):
        os.kill(decoder, signal.SIGKILL)
    assert texts(ask_all(running.address, 4, recordings)) == [text for _, text in recordings[:4]]


@pytest.mark.parametrize("whole_group", [False, True])
def test_sigterm_finishes_what_was_taken_and_refuses_the_rest(serve, digits, recordings, whole_group):
    running = serve(f"digits={digits.run}")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(ask_all, running.address, 32, recordings)
        running.wait_until(lambda: running.metric("sonosco_active_requests") == 32 or found.done())
        if whole_group:  # as a service manager or a terminal does
            os.killpg(running.process.pid, signal.SIGTERM)
        else:
            running.process.send_signal(signal.SIGTERM)
        answers = found.result()
    assert running.process.wait(60) == 0
    assert [each.status_code for each in answers] == [200] * 32
    assert texts(answers) == [recordings[number % len(recordings)][1] for number in range(32)]
    host, port = running.address.removeprefix("http://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    for name in ("recogniser", "decoder"):
        assert running.processes(name) == []
    assert "Traceback" not in running.log.read_text()


def test_no_process_outlives_a_killed_server(serve, digits):
    running = serve(f"digits={digits.run}")
    assert running.processes("recogniser")
    running.process.kill()
    running.process.wait(60)
    end = time.monotonic() + 60
    while running.processes("recogniser") or running.processes("decoder"):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_memory_does_not_grow_over_ten_thousand_requests(serve, digits, recordings):
    running = serve(f"digits={digits.run}")
    sizes = []

    def total() -> int:
        pids = [running.process.pid, *running.processes("recogniser"), *running.processes("decoder")]
        fields = [Path(f"/proc/{pid}/statm").read_text().split() for pid in pids]
        return sum(int(each[1]) - int(each[2]) for each in fields) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(100):
        answers = ask_all(running.address, 100, recordings)
        assert texts(answers) == [recordings[number % len(recordings)][1] for number in range(100)]
        sizes.append(total())
    early, late = median(sizes[20:40]), median(sizes[80:])
    assert late < early + 12_000_000, [round(size / 1e6) for size in sizes]
