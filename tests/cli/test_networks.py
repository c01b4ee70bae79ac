"""A network that is broken is told as what it is, with exit code 1, and not as a mistake in the config."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from tiny import tiny_config
from warm import warm_python

from sonosco_like import serializable
from sonosco_like.cli import run
from sonosco_like.events import AbstractCallback

HERE = Path(__file__).parents[1]


@serializable
class Asking(AbstractCallback):
    """Asks a machine that does not answer, as soon as it is made."""

    port: int

    def __post_init__(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()


def test_processes_that_cannot_meet_say_so(tmp_path):
    """The port of the first process is taken, which torch says at once."""
    (tmp_path / "tiny.yaml").write_text(tiny_config(""))
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
        done = subprocess.run(
            [*warm_python(), "-m", "sonosco_like", "train", "--config", "tiny.yaml", "--import", "tiny"],
            env={**os.environ, **place, "PYTHONPATH": str(HERE)},
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert f"Error: The processes that train together cannot reach each other at 127.0.0.1:{port}" in done.stderr
    assert "give the same command again" in done.stderr
    assert "refuses these values" not in done.stderr


def test_a_part_that_needs_the_network_when_it_is_made_says_so(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (tmp_path / "tiny.yaml").write_text(tiny_config(f"  callbacks: [{{class: {__name__}.Asking, port: {port}}}]"))
    assert run(["train", "--config", str(tmp_path / "tiny.yaml"), "--run-dir", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err
    assert "Asking cannot reach what it needs: ConnectionRefusedError" in said
    assert "refuses these values" not in said
