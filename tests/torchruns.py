"""A real torchrun, for tests with several processes. It and what it starts are warm, so that none imports torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from warm import warm_python

HERE = Path(__file__).parent
MODULES = ["--import", "tiny", "--import", "distributed_parts"]


def start(folder: Path, *program: str, processes: int = 2, warm: bool = True) -> subprocess.Popen:
    """Start a program in several processes, or in one without torchrun; not warm if they are to be killed."""
    python = warm_python() if warm else [sys.executable]
    torchrun = [*python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "--no-python"]
    environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [*(torchrun if processes > 1 else []), *python, *program]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def sonosco(folder: Path, *arguments: str, processes: int = 2, warm: bool = True) -> subprocess.Popen:
    """Start a command in several processes, or in one without torchrun."""
    return start(folder, "-m", "sonosco_like", *arguments, *MODULES, processes=processes, warm=warm)


def said_by(process: subprocess.Popen, code: int = 0) -> str:
    """What a program said until its end, which must have this exit code."""
    said, _ = process.communicate(timeout=600)
    assert process.returncode == code, said
    return said
