"""A real TensorBoard and a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transcript_runs import tone_trainer, write_tones

pytest.importorskip("tensorboard.plugin_util")  # warns of something deprecated in itself; importorskip does not mind

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FRAME = "data/plugin_entry.html?name=sonosco_transcripts"
PATIENCE = 600  # seconds until something that never comes is given up


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tiny tensors are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tones(tmp_path_factory) -> Path:
    """A manifest of tones."""
    return write_tones(tmp_path_factory.mktemp("tones"))


@pytest.fixture(scope="session")
def tiny_runs(tmp_path_factory, tones):
    """Two real trainings: the folder with both, and what each of them heard."""
    logdir = tmp_path_factory.mktemp("tiny_runs")
    heard = {}
    for seed, name in enumerate(("first", "second")):
        trainer = tone_trainer(logdir / name, tones, seed)
        trainer.start_training()
        heard[name] = trainer.callbacks[-1].heard
    return logdir, heard


@dataclass
class Server:
    """A TensorBoard that runs."""

    address: str
    process: subprocess.Popen

    def get(self, path: str):
        """JSON from the plugin."""
        with urllib.request.urlopen(
            f"{self.address}/data/plugin/sonosco_transcripts/{path}", timeout=PATIENCE
        ) as answer:
            return json.load(answer)

    def wait_for(self, condition):
        """Ask again and again which runs there are, until they are as expected."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self.process.poll() is None, "TensorBoard ended"
            try:
                runs = self.get("runs")["runs"]
            except OSError:  # not yet there
                runs = None
            if runs is not None and condition(runs):
                return runs
            time.sleep(0.2)
        raise AssertionError(f"TensorBoard does not show what it should; it shows {runs}")


def start_tensorboard(logdir: Path, *options: str) -> Server:
    """A TensorBoard that has told its address: the port is the system's choice, which nobody can take meanwhile."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1"]
    command += ["--port", "0", "--reload_interval", "1", *options]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=environment)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and process.poll() is None:
            said.seek(0)
            if found := re.search(rb"at (http://[^ ]+?)/? ", said.read()):
                return Server(found[1].decode(), process)
            time.sleep(0.1)
        process.kill()
        said.seek(0)
        raise AssertionError(f"TensorBoard does not start: {said.read().decode()}")


def stop(server: Server) -> None:
    server.process.terminate()
    server.process.wait(PATIENCE)


@pytest.fixture(scope="session")
def server(tiny_runs):
    """TensorBoard on the two trainings."""
    running = start_tensorboard(tiny_runs[0])
    try:
        running.wait_for(lambda runs: len(runs) == 2)
        yield running
    finally:
        stop(running)


@pytest.fixture
def serve():
    """Start a TensorBoard of one's own."""
    started = []

    def start(logdir: Path, *options: str) -> Server:
        started.append(start_tensorboard(logdir, *options))
        return started[-1]

    yield start
    for each in started:
        stop(each)


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("There is no Chromium on this machine; `make install` installs it where it may use apt-get.")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_dashboard(browser):
    """Open the Transcripts tab; what goes wrong in the page is an error of the test."""
    pages, problems = [], []

    def note(said):
        if said.type == "error" and not said.location["url"].endswith("favicon.ico"):  # only TensorBoard's page has one
            problems.append(said.text)

    def open_page(server: Server, ready: str = "tbody", in_tensorboard: bool = False):
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("console", note)
        # what TensorBoard puts into a frame is opened by itself: all of TensorBoard takes long to start
        page.goto(f"{server.address}/" + ("#sonosco_transcripts" if in_tensorboard else FRAME))
        frame = page.frame_locator("iframe").first if in_tensorboard else page
        frame.locator(ready).first.wait_for()
        pages.append(page)
        return page, frame

    yield open_page
    for page in pages:
        page.close()
    assert problems == []
