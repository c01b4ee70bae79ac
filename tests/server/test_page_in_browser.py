"""The page of a real server in a real browser, with a microphone that plays a file."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from server_process import start_server

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 600_000  # milliseconds until something that never comes is given up
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def spoken(digits, tmp_path_factory):
    """A recording, and the file that the microphone plays again and again."""
    row = digits.rows()[0]
    samples, rate = soundfile.read(digits.audio(row))
    path = tmp_path_factory.mktemp("microphone") / "spoken.wav"
    soundfile.write(path, np.concatenate([samples, np.zeros(rate)]), rate, subtype="PCM_16")
    return digits.audio(row), row["text"], path


@pytest.fixture(scope="module")
def browser(spoken):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("There is no Chromium on this machine; `make install` installs it where it may use apt-get.")
    flags = [
        "--no-sandbox", "--disable-dev-shm-usage", "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={spoken[2]}",
        "--autoplay-policy=no-user-gesture-required",
    ]  # fmt: skip
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def collecting(digits, other, tmp_path_factory):
    """A server that saves corrections, and their folder."""
    folder = tmp_path_factory.mktemp("collecting")
    running = start_server(
        folder / "log", f"digits={digits.run}", f"other={other}", "--collect", folder / "corrections"
    )
    yield running, folder / "corrections"
    running.stop()


def is_problem(said) -> bool:
    """Browsers report every refused request as an error; whether the page shows the reason is tested below."""
    return said.type == "error" and not said.text.startswith("Failed to load resource")


@pytest.fixture
def page(browser, collecting):
    """The page; what goes wrong in it, or comes from elsewhere, is an error of the test."""
    problems, addresses = [], []
    context = browser.new_context(viewport=DESK)
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda said: problems.append(said.text) if is_problem(said) else None)
    opened.on("request", lambda asked: addresses.append(asked.url))
    opened.goto(collecting[0].address)
    opened.locator(".chip").nth(1).wait_for()
    yield opened
    context.close()
    assert problems == []
    assert [each for each in addresses if not each.startswith((collecting[0].address, "blob:", "data:"))] == []


def texts(article):
    """What each model heard, without what is struck out."""
    return article.locator(".result .text").evaluate_all(
        """nodes => nodes.map(node => { const copy = node.cloneNode(true);
        copy.querySelectorAll("del, .silent").forEach(each => each.remove());
        return copy.textContent.split(/\\s+/).filter(Boolean).join(" "); })"""
    )


def upload(page, path):
    page.locator("input[type=file]").set_input_files(path)
    article = page.locator("article").first
    article.locator(".result").nth(1).wait_for()
    return article


def test_what_is_said_is_recorded_transcribed_corrected_saved_and_trained_on(
    page, collecting, spoken, digits, tmp_path
):
    page.keyboard.press("r")
    page.locator(".partial:not(:empty)").wait_for()
    page.wait_for_function("() => parseFloat(document.querySelector('.clock').textContent) > 2")
    page.wait_for_function("() => document.querySelector('meter').value > 0.05")
    page.keyboard.press("r")
    article = page.locator("article").first
    article.locator(".result").nth(1).wait_for()
    assert texts(article)[0] != ""
    article.get_by_label("What was said").fill("  seven   eight ")
    article.locator(".rates", has_text="WER").first.wait_for()
    article.get_by_text("Save", exact=True).click()
    article.get_by_text("Saved: the manifest has 1 row.").wait_for()
    article.get_by_text("Save", exact=True).click()
    article.get_by_text("This was saved before: the manifest has 1 row.").wait_for()
    article = upload(page, spoken[0])
    article.get_by_label("What was said").fill(spoken[1])
    article.get_by_text("Save", exact=True).click()
    article.get_by_text("Saved: the manifest has 2 rows.").wait_for()
    manifest = collecting[1] / "corrections.jsonl"
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    assert [row["text"] for row in rows] == ["seven eight", spoken[1]]
    for row in rows:
        assert soundfile.info(manifest.parent / row["audio_filepath"]).duration == pytest.approx(
            row["duration"], abs=1e-3
        )
    kept, _ = soundfile.read(manifest.parent / rows[1]["audio_filepath"], dtype="int16")
    given, _ = soundfile.read(spoken[0], dtype="int16")
    assert np.abs(kept.astype(int) - given).max() <= 1, "nothing of a recording is lost"
    command = [sys.executable, "-m", "sonosco_like", "train", "--config", str(digits.run / "config.yaml")]
    command += ["--train", str(manifest), "--run-dir", str(tmp_path / "run"), "--set", "trainer.epochs=1"]
    command += ["--set", "trainer.scheduler.warmup=0"]  # that of the large corpus is longer than this training
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "final").is_dir()


def test_two_models_stand_side_by_side_with_their_differences(page, spoken, collecting):
    article = upload(page, spoken[0])
    answer = collecting[0].transcribe(spoken[0], model=["digits", "other"]).json()["results"]
    article.locator(".edit").first.wait_for()
    assert texts(article) == [each["text"] for each in answer]
    assert article.locator("[data-model=digits] .edit").count() == 0, "without a truth, the first model is the measure"
    article.get_by_label("What was said").fill(answer[1]["text"])
    article.locator("[data-model=other] .rates", has_text="WER 0.0 %").wait_for()
    assert article.locator("[data-model=other] .edit").count() == 0
    assert article.locator("[data-model=digits] .edit").count() > 0
    page.get_by_text("Characters", exact=True).click()
    article.locator("[data-model=digits] .hypothesis.characters").wait_for()
    article.get_by_text("Take the first text").click()
    article.locator("[data-model=digits] .rates", has_text="WER 0.0 %").wait_for()
    assert article.get_by_label("What was said").input_value() == answer[0]["text"]


def test_a_click_on_a_word_plays_it(page, spoken, collecting):
    article = upload(page, spoken[0])
    article.locator("canvas").wait_for()
    (result,) = collecting[0].transcribe(spoken[0]).json()["results"]
    word = result["words"][1]
    article.locator("[data-model=digits] .words button").nth(1).click()
    played = article.locator(".waveform[data-played]").get_attribute("data-played")
    assert played == f"{word['start']:.2f} {word['end'] - word['start']:.2f}"
    left = "node => parseFloat(node.style.left)"
    shown = article.locator("[data-model=digits] .words button").nth(1).evaluate(left)
    assert shown == pytest.approx(100 * word["start"] / result["duration"], abs=1)
    colours = "node => new Set(node.getContext('2d').getImageData(0, 0, node.width, node.height).data).size"
    assert article.locator("canvas").evaluate(colours) > 1


def test_one_model_can_be_left_out_and_a_reload_keeps_the_texts(page, spoken):
    page.get_by_role("button", name="other", exact=True).click()
    page.locator("input[type=file]").set_input_files(spoken[0])
    page.locator("article .result").first.wait_for()
    page.locator("article").get_by_label("What was said").fill("one two")
    page.locator(".rates", has_text="WER").wait_for()
    assert page.locator("article .result").count() == 1
    before = texts(page.locator("article"))
    page.reload()
    page.locator("article .rates", has_text="WER").wait_for()
    assert texts(page.locator("article")) == before
    assert page.locator("article").get_by_label("What was said").input_value() == "one two"
    page.get_by_role("button", name=re.compile("^Remove")).click()
    page.locator(".nothing").wait_for()


def test_what_is_no_audio_is_said_on_the_page(page, tmp_path):
    hostile = tmp_path / "<img src=x onerror=alert(1)>.wav"
    hostile.write_bytes(b"no audio")
    page.locator("input[type=file]").set_input_files(hostile)
    page.locator("article .status", has_text="cannot be read as audio").wait_for()
    assert page.locator("article h2").inner_text() == hostile.name
    assert page.locator("article img").count() == 0


def test_everything_has_a_name_and_can_be_reached_by_keyboard(page, spoken):
    upload(page, spoken[0]).get_by_label("What was said").fill("one")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea, select, meter, canvas")]
        .filter(node => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length))
        .map(node => node.outerHTML)"""
    )
    assert unnamed == []
    reached = set()
    page.locator("body").click(position={"x": 2, "y": 2})
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "() => document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
            )
        )
    assert {"Record from the microphone (r)", "What was said", "Save the recording with this text"} <= reached
    assert any(each.startswith("Play the word") for each in reached)


def test_it_fits_a_phone_and_the_dark(page, spoken, tmp_path):
    upload(page, spoken[0])
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    assert page.evaluate(colour) != light


def test_a_token_is_asked_for_on_the_page(browser, serve, digits, spoken, tmp_path):
    (tmp_path / "token").write_text("correct-horse-battery")
    running = serve(f"digits={digits.run}", "--token-file", tmp_path / "token")
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(running.address)
    page.get_by_label("Token").fill("wrong")
    page.get_by_text("Use it").click()
    page.get_by_label("Token").fill("correct-horse-battery")
    page.get_by_text("Use it").click()
    page.locator(".chip").wait_for()
    page.locator("input[type=file]").set_input_files(spoken[0])
    page.locator(".result").wait_for()
    page.get_by_role("button", name="Record").click()
    page.locator(".partial:not(:empty)").wait_for()
    page.close()
