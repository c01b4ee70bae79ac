"""Python processes that need not import torch: a warm process has imported it, and forks for each program.

`subprocess.run([*warm_python(), "-m", "sonosco_like", "runs"])` is what it looks like: a process of its own, with its
output, its exit code, its working directory, its environment, and real signals; only the import of torch is saved. The
process that is started is a small client, which asks the warm process to fork, lends it its standard streams, passes on
signals, and ends as the fork ends. If the client is killed, the fork is killed too, a moment later.

Not for what is about the start of a process, what it imports, its resource limits, or a kill from outside: those tests
use `sys.executable`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import warnings
from pathlib import Path
from types import ModuleType, TracebackType

THEIRS = ["torch._dynamo", "numpy", "soundfile", "rich.progress", "tensorboardX", "safetensors.torch"]
OURS = ["sonosco_like.catalog", "sonosco_like.training", "sonosco_like.inference", "sonosco_like.evaluation"]
FORWARDED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
_STREAMS = 3
_socket: str | None = None


def warm_python() -> list[str]:
    """What to write in front of the arguments of Python, in place of `sys.executable`."""
    global _socket
    if _socket is None:
        _socket = _start_server()
    return [sys.executable, "-I", "-S", __file__, "ask", _socket]


def run_sonosco(*arguments: object, log: Path, **environment: str) -> int:
    """Run a command to its end, its output in a file; the exit code, or minus the signal that killed it."""
    import subprocess

    with log.open("ab") as output:
        done = subprocess.run(
            [*warm_python(), "-m", "sonosco_like", *map(str, arguments)],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    return done.returncode


def _start_server() -> str:
    import atexit
    import subprocess
    import tempfile

    folder = tempfile.TemporaryDirectory(prefix="warm-")
    path = str(Path(folder.name) / "socket")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, __file__, "serve", path], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n", "The warm process did not start."

    def end() -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.close()
        server.wait()
        server.stdout.close()
        folder.cleanup()

    atexit.register(end)
    return path


def ask(path: str, arguments: list[str]) -> None:
    """The client: have a program run, and end as it ends."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    request = json.dumps({"arguments": arguments, "folder": str(Path.cwd()), "environment": dict(os.environ)}).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(request)
    for number in FORWARDED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: server.sendall(bytes([number])))
    answer = server.recv(8)
    code = int.from_bytes(answer, "big", signed=True) if answer else -signal.SIGKILL
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve(path: str) -> None:
    """The warm process: fork for each who asks, until standard input is closed."""
    import gc
    import importlib
    import pkgutil

    import sonosco_like.cli

    commands = [f"sonosco_like.cli.{each.name}" for each in pkgutil.iter_modules(sonosco_like.cli.__path__)]
    for name in [*THEIRS, *OURS, *commands]:
        importlib.import_module(name)
    importlib.import_module("sonosco_like.training.provenance").user_modules()  # remembers which folders are installed
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    os.write(1, b"ready\n")
    while sys.stdin not in (ready := select.select([listener, sys.stdin], [], [])[0]):
        assert listener in ready
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _supervise(connection)
        connection.close()


def _supervise(connection: socket.socket) -> None:
    """Run one program in a fork, pass on its signals, and report how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    header, streams, _, _ = socket.recv_fds(connection, 8, _STREAMS)
    size, request = int.from_bytes(header, "big"), b""
    while len(request) < size:
        request += connection.recv(size - len(request))
    child = os.fork()
    if child == 0:
        connection.close()
        _become(json.loads(request), streams)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(child)
    while ended not in (ready := select.select([connection, ended], [], [])[0]):
        assert connection in ready
        numbers = connection.recv(64)
        for number in numbers or [signal.SIGKILL]:
            os.kill(child, number)
        if not numbers:
            break
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):  # nobody waits for it any more
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))
    os._exit(0)


def _become(request: dict, streams: list[int]) -> None:
    """Be the process that was asked for, from its first line to its last."""
    import atexit
    import threading

    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _set_environment(request["environment"])
    os.chdir(request["folder"])
    _open_streams()
    code = _run(request["arguments"])
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = code or 120  # as Python does
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _set_environment(environment: dict[str, str]) -> None:
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(environment)
    after = list(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))
    sys.path[:] = after + [each for each in sys.path[1:] if each not in before]  # the first one is the server's own


def _open_streams() -> None:
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding=encoding, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding=encoding, closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)


def _run(arguments: list[str]) -> int:
    """Run a program as Python would, and return its exit code, or minus the signal that it ends with."""
    try:
        _execute(*arguments)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        error.__traceback__ = _of_the_program(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _of_the_program(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames that started the program."""
    ours = (__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return trace


def _execute(kind: str, *rest: str) -> None:
    import runpy

    if kind == "-W":
        warnings.simplefilter(rest[0])
        _execute(*rest[1:])
    elif kind == "-c":
        sys.argv, sys.path[:0] = ["-c", *rest[1:]], [""]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        sys.argv, sys.path[:0] = ["-m", *rest[1:]], [str(Path.cwd())]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        assert not kind.startswith("-"), f"A warm process does not know the option {kind}."
        sys.argv, sys.path[:0] = [kind, *rest], [str(Path(kind).parent.resolve())]
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ask(sys.argv[2], sys.argv[3:])
