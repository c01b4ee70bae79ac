"""Starts `sonosco` commands as processes of their own, without importing torch each time.

`Zygote` talks to a process that has everything imported and forks for each command. What it starts is a real process,
which dies of real signals; only its import is saved.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from pathlib import Path


class Zygote:
    """The side that asks."""

    def __init__(self, *paths: Path) -> None:
        known = [str(path) for path in paths] + os.environ.get("PYTHONPATH", "").split(os.pathsep)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, known)), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def run(self, *arguments: object, log: Path, **environment: str) -> int:
        """Run a command to its end, its output in a file; the exit code, or minus the signal that killed it."""
        asked = {"arguments": list(map(str, arguments)), "log": str(log), "environment": environment}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _serve() -> None:
    import matrix_parts  # noqa: F401
    import torch._dynamo  # noqa: F401  (which every optimizer imports)

    import sonosco_like.catalog
    import sonosco_like.training  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _be(asked)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _be(asked: dict) -> None:
    from sonosco_like.cli import run

    output = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in enumerate((nothing, output, output)):
        os.dup2(target, number)
    os.environ.update(asked["environment"])
    code = 70
    try:
        code = run(asked["arguments"])
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
