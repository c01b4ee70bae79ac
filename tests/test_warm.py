"""A warm process behaves as a fresh one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from warm import warm_python

PROGRAMS = {
    "says": "print('out'); import sys; print('err', file=sys.stderr)",
    "exits": "import sys; sys.exit(7)",
    "exits with words": "import sys; sys.exit('why')",
    "fails": "def f():\n    raise ValueError('wrong')\nf()",
    "reads": "import sys; print(sys.stdin.read().upper())",
    "is killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "is interrupted": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "is elsewhere": "import os, sys; print(os.getcwd(), os.environ['HERE'], sys.argv, __name__, sys.path[0] == '')",
    "ends late": "import atexit, threading, time; atexit.register(print, 'bye')\n"
    "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()",
    "has its own modules": "import own; print(own.VALUE)",
    "defines a class": "class A: pass\nprint(A.__module__, __import__('__main__').A is A)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_warm_process_does_what_a_fresh_one_does(name, tmp_path):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "own.py").write_text("VALUE = 'mine'")
    environment = {**os.environ, "HERE": "there", "PYTHONPATH": str(tmp_path / "modules")}

    def run(*python: str):
        command = [*python, "-c", PROGRAMS[name], "one", "two"]
        options = {"cwd": tmp_path, "env": environment, "input": "said", "capture_output": True, "text": True}
        done = subprocess.run(command, **options, timeout=600, check=False)
        return done.returncode, done.stdout, done.stderr

    assert run(*warm_python()) == run(sys.executable)


def test_a_script_and_a_module_find_their_files(tmp_path):
    (tmp_path / "helper.py").write_text("print('helped')")
    script = tmp_path / "script.py"
    script.write_text("import helper, sys; print(__name__, __file__, sys.argv)")
    for arguments in ([str(script), "x"], ["-m", "script", "x"]):
        done = [
            subprocess.run([*python, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
            for python in ([sys.executable], warm_python())
        ]
        assert done[0] == done[1]


def test_signals_arrive_and_a_killed_process_leaves_nobody_behind(tmp_path):
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); print('up', flush=True); time.sleep(600)"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        command = [*warm_python(), "-c", code]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout.readline() == "up\n"
            process.send_signal(number)
            assert process.wait(60) == -number
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        _await_end(int((tmp_path / "pid").read_text()))


def _await_end(pid: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError(f"Process {pid} is still there.")


def test_torch_is_there_at_once_and_works():
    code = "import sys; assert 'torch' in sys.modules; import torch; print(torch.ones(3, 3).mm(torch.ones(3, 3)).sum())"
    done = subprocess.run([*warm_python(), "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "tensor(27.)\n"
