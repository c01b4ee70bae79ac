"""A real server in a process of its own, which leads a session, so that its children can be found."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

PATIENCE = 120  # seconds until something that never comes is given up


@dataclass
class Running:
    """A server that runs."""

    address: str
    process: subprocess.Popen
    log: Path

    def client(self, **options) -> httpx.Client:
        """A client of its own for each who asks."""
        return httpx.Client(base_url=self.address, timeout=PATIENCE, **options)

    def transcribe(self, audio: bytes | Path, **fields) -> httpx.Response:
        """The answer of /v1/transcribe."""
        content = audio.read_bytes() if isinstance(audio, Path) else audio
        with self.client() as client:
            return client.post("/v1/transcribe", files={"file": ("any name", content)}, data=fields)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with self.client() as client:
            lines = client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if re.match(rf"{name}(\{{.*\}})? ", line))

    def processes(self, name: str = "recogniser") -> list[int]:
        """The processes of a server with this name, as `top` shows it; the server leads a session of its own."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                comm, session = (folder / "comm").read_text().strip(), os.getsid(int(folder.name))
                if comm == name and session == self.process.pid:
                    found.append(int(folder.name))
        return sorted(found)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is true of it."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "the server never became as expected"
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def stop(self) -> int:
        """Stop it as a service manager does; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def start_server(log: Path, *arguments: object, **environment: str) -> Running:
    """A server on a free port, once it has told its address."""
    command = [sys.executable, "-m", "sonosco_like", "serve", *map(str, arguments), "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **environment}, start_new_session=True
        )
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"Serving at (http://\S+)", log.read_text()):
            return Running(found[1], process, log)
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"The server does not start: {log.read_text()}")
