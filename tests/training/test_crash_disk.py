"""A disk that is full, a disk that loses power, and a reader that comes while another process writes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sonosco_like import load, save, serializable, state
from sonosco_like.serialization import verify

HERE = Path(__file__).parents[1]

# Trains in a folder whose disk is full from step 7 to step 13, and prints what it sees of it.
FULL = """
import json, logging, os, resource, sys
from pathlib import Path
from tiny import Diary, make_trainer
from sonosco_like import serializable
from sonosco_like.callbacks import ModelCheckpoint
from sonosco_like.errors import SonoscoError
from sonosco_like.events import AbstractCallback
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.training import Experiment, open_run
from sonosco_like.training.saver import CheckpointSaver

place, way, on_failure = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")

def fill():
    if way == "limit":  # the kernel refuses to let any file grow beyond this
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, resource.RLIM_INFINITY))
    else:
        with (place / "filling").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

def empty():
    if way == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    else:
        (place / "filling").unlink()

@serializable
class Filling(AbstractCallback):
    def on_batch_start(self, moment):
        step = moment.context.global_step
        if step in (7, 13):
            moment.context.saver.wait()
            (fill if step == 7 else empty)()
        if step == 8 and on_failure == "continue":
            seen["while full"] = names()

def names():
    return sorted(path.name for path in (place / "run" / "checkpoints").iterdir())

seen = {}
callbacks = [Diary(), Filling(), ModelCheckpoint(every="3ba", keep_last=2)]
trainer = make_trainer(callbacks=callbacks, saver=CheckpointSaver(on_failure=on_failure))
try:
    seen["code"] = Experiment(name="tiny", trainer=trainer).start(place / "run")
except SonoscoError as error:
    seen["error"] = str(error)
    empty()
seen["step"], seen["at the end"] = trainer.global_step, names()
experiment, seen["found"] = open_run(place / "run")
if on_failure == "stop":
    experiment.trainer.callbacks.pop(1)
    seen["resumed"] = experiment.resume()
    seen["after"] = names()
print(json.dumps(seen))
"""


def can_mount() -> bool:
    """Whether this user may mount a small disk of memory, in a name space of its own."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=1m none /mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def train_on_a_full_disk(way: str, on_failure: str, folder: Path) -> tuple[dict, str]:
    (folder / "full.py").write_text(FULL)
    (folder / "place").mkdir()
    command = [sys.executable, "full.py", "place", way, on_failure]
    if way == "disk":
        mount = 'mount -t tmpfs -o size=2m none place && exec "$@"'
        command = ["unshare", "-rm", "sh", "-c", mount, "sh", *command]
    environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


WAYS = ["limit", "disk"] if can_mount() else ["limit"]
REASONS = {"limit": "File too large", "disk": "No space left on device"}


@pytest.mark.skipif(sys.platform != "linux", reason="limits and mounts of Linux")
@pytest.mark.parametrize("way", WAYS)
def test_training_goes_on_while_the_disk_is_full_and_saves_again_when_there_is_room(tmp_path, way):
    seen, said = train_on_a_full_disk(way, "continue", tmp_path)
    assert (seen["code"], seen["step"]) == (0, 20)
    assert f"could not be saved; training goes on. {tmp_path}/place/run/checkpoints/step-00000009" in said
    assert REASONS[way] in said
    assert seen["while full"] == ["step-00000003", "step-00000006"], "intact, and no half of the next one"
    assert seen["at the end"] == ["step-00000018", "step-00000020"]
    assert seen["found"] == 20


@pytest.mark.skipif(sys.platform != "linux", reason="limits and mounts of Linux")
@pytest.mark.parametrize("way", WAYS)
def test_training_ends_if_so_configured_and_goes_on_from_the_last_intact_checkpoint(tmp_path, way):
    seen, _ = train_on_a_full_disk(way, "stop", tmp_path)
    assert re.match(r"The run failed at step (9|10|11|12): ", seen["error"])
    assert REASONS[way] in seen["error"]
    assert "sonosco resume" in seen["error"]
    assert seen["found"] >= 6
    assert not any(name.startswith(".") for name in seen["at the end"])
    assert seen["resumed"] == 0
    assert seen["after"] == ["step-00000018", "step-00000020"]


@serializable
class Numbered:
    """What is saved under one number in all its files."""

    field: int
    number: int = state(0)


WRITER = """
import sys
from pathlib import Path
from test_crash_disk import Numbered
from sonosco_like import save

number = 1
while True:
    number += 1
    value = Numbered(field=number)
    value.number = number
    save(value, Path(sys.argv[1]))
    if number == 2:  # a pipe that nobody reads on must not fill up
        print(number, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="a folder that is open cannot be replaced on Windows")
def test_a_reader_gets_the_old_or_the_new_one_while_another_process_saves_all_the_time(tmp_path):
    path = tmp_path / "checkpoint"
    first = Numbered(field=1)
    first.number = 1
    save(first, path)
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE / 'training'}", "OMP_NUM_THREADS": "1"}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "2\n"
        found = []
        while len(set(found)) < 50:
            verify(path)
            read = load(path, Numbered)
            assert read.field == read.number
            found.append(read.number)
        assert found == sorted(found)
        assert writer.poll() is None, "no save failed because somebody read"
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_every_new_folder_on_the_way_to_a_save_is_flushed(tmp_path, monkeypatch):
    flushed, flush = [], os.fsync

    def noted(descriptor):
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    save(Numbered(field=1), tmp_path / "a" / "b" / "c")
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(flushed)
    del flushed[:]
    save(Numbered(field=1), tmp_path / "a" / "b" / "d")
    assert tmp_path not in flushed, "what was there before needs no flush"
