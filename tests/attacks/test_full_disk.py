"""A full disk is told in sentences: no traceback of logging, and the run says how it goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import tiny_config

CALLBACKS = """
  callbacks:
  - {class: LogMeasures, every: 1ba}
  - {class: MetricsFile}
  - {class: FillDisk}
  - {class: ModelCheckpoint, every: 3ba}
"""
FILLING = '''
import logging
from sonosco_like import AbstractCallback, serializable

@serializable
class FillDisk(AbstractCallback):
    """Fills the disk of the run, then has things logged."""

    def on_batch_end(self, moment):
        if moment.context.global_step == 2:
            with (moment.context.experiment.folder / "filling").open("wb") as file:
                for size in (65536, 512, 1):
                    try:
                        while True:
                            file.write(bytes(size))
                            file.flush()
                    except OSError:
                        pass
        logging.getLogger("filling").warning("a line for the log %s", "x" * 5000)
'''


@pytest.fixture
def small_disk(tmp_path):
    """A disk of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_told_in_sentences(small_disk, tmp_path):
    (tmp_path / "filling.py").write_text(FILLING)
    (tmp_path / "tiny.yaml").write_text(tiny_config(CALLBACKS.replace("FillDisk", "filling.FillDisk")))
    command = [sys.executable, "-m", "sonosco_like", "train", "--config", "tiny.yaml", "--run-dir", "disk/run"]
    command += ["--import", "tiny", "--import", "filling"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[1]}", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    assert "Traceback" not in said
    assert "Logging error" not in said
    assert "No space left on device" in said
    assert "Continue with: sonosco resume" in said
    (small_disk / "run" / "filling").unlink()
    again = [sys.executable, "-m", "sonosco_like", "resume", "disk/run", *command[-4:]]
    ended = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert "Traceback" not in ended.stderr, "it is filled once more, in the second run's own way"
