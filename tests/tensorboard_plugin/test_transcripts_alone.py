"""`sonosco dashboard`: the Transcripts page without TensorBoard, in a real browser."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import pytest
from transcript_runs import TEXTS, write_transcripts

from sonosco_like.cli import run

PATIENCE = 600  # seconds


@pytest.fixture
def dashboard():
    """Start `sonosco dashboard` on a free port; its address."""
    started = []

    def start(folder):
        said = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-m", "sonosco_like", "dashboard", str(folder), "--port", "0"]
        process = subprocess.Popen(command, stdout=said, stderr=said)
        started.append((process, said))
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and process.poll() is None:
            said.seek(0)
            if found := re.search(rb"at (http://\S+)", said.read()):
                return found[1].decode(), process
            time.sleep(0.1)
        said.seek(0)
        raise AssertionError(said.read().decode())

    yield start
    for process, said in started:
        process.kill()
        process.wait(PATIENCE)
        said.close()


def open_page(browser, address):
    page, problems = browser.new_page(viewport={"width": 1440, "height": 900}), []
    page.set_default_timeout(1000 * PATIENCE)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.goto(address)
    return page, problems


def test_it_is_the_page_of_tensorboard_and_ends_with_a_signal(dashboard, browser, tiny_runs):
    address, process = dashboard(tiny_runs[0])
    page, problems = open_page(browser, address)
    page.locator("tbody .reference").first.wait_for()
    shown = page.locator("tbody .reference").evaluate_all("nodes => nodes.map(node => node.textContent)")
    assert sorted(shown) == sorted(TEXTS)
    assert page.locator(".chip").all_inner_texts() == ["first", "second"]
    page.locator("tbody[data-id='tone-4'] .reference").click()
    page.locator(".pictures canvas").nth(2).wait_for()
    page.close()
    assert problems == []
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_one_run_has_its_name_and_new_steps_appear(dashboard, browser, tmp_path):
    folder = tmp_path / "my-run" / "tensorboard"
    write_transcripts(folder, {"u1": "one two"}, {10: {"u1": "one"}})
    address, _ = dashboard(tmp_path / "my-run")
    page, problems = open_page(browser, address)
    page.locator("tbody[data-id=u1]").wait_for()
    assert page.locator(".chip").all_inner_texts() == ["my-run"]
    write_transcripts(folder, {"u1": "one two"}, {20: {"u1": "one two"}}, after=10)
    page.wait_for_function("() => document.querySelector('.step').textContent === 'Step 20'")
    page.close()
    assert problems == []


def test_other_hosts_and_addresses_are_refused(dashboard, tmp_path):
    address, _ = dashboard(tmp_path)
    for path, host, status in (
        ("/", "evil.example", 403),
        ("/runs?known=", "evil.example:80", 403),
        ("/nothing", None, 404),
        ("/static/../../../setup.py", None, 404),
        ("/static/plugin.py", None, 400),
        ("/runs?known=", None, 200),
    ):
        request = urllib.request.Request(address + path, headers={"Host": host} if host else {})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                found = answer.status
        except urllib.error.HTTPError as error:
            found = error.code
            error.close()
        assert found == status or (status == 404 and found == 400), path


def test_wrong_usage_is_one_line_and_code_2(tmp_path, capsys):
    assert run(["dashboard", str(tmp_path / "none")]) == 2
    shown = capsys.readouterr().err
    assert "Give a run, or a folder of runs." in shown
    assert shown.count("\n") == 1
