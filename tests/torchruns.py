"""A real torchrun, for tests with several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def start(folder: Path, *program: str, processes: int = 2) -> subprocess.Popen:
    """Start a program in several processes."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.Popen(
        [*command, *program], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def sonosco(folder: Path, *arguments: str, processes: int = 2) -> subprocess.Popen:
    """Start a command in several processes, or in one without torchrun."""
    modules = ["--import", "training_parts", "--import", "distributed_parts"]
    program = ["-m", "sonosco_like", *arguments, *modules]
    if processes > 1:
        return start(folder, *program, processes=processes)
    environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *program], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def said_by(process: subprocess.Popen, code: int = 0) -> str:
    """What a program said until its end, which must have this exit code."""
    said, _ = process.communicate(timeout=600)
    assert process.returncode == code, said
    return said
