"""Takes the pictures in serve.md, of a server that runs, with a recording of its corpus and what was said in it.

The two models were trained by `train(Path("large"), minutes=12, epochs=24)` and `train(Path("small"))` of
tests/trained_runs.py, and served with

    sonosco serve large=large/run small=small/run --collect corrections
    python docs/take_pictures_of_serve.py http://localhost:5000 RECORDING "THE TEXT"
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
STILL = 1000  # milliseconds until everything is drawn


def take_pictures(address: str, recording: str, text: str) -> None:
    """The page on a desk in the light, and on a phone in the dark."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1080, "height": 640})
        page.goto(address)
        page.locator(".chip").first.wait_for()
        page.locator("input[type=file]").set_input_files(recording)
        page.locator("article .result").nth(1).wait_for()
        page.get_by_label("What was said").fill(text)
        page.locator(".rates", has_text="WER").first.wait_for()
        page.wait_for_timeout(STILL)
        page.screenshot(path=IMAGES / "serve.png")
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_timeout(STILL)
        page.screenshot(path=IMAGES / "serve-phone.png")
        browser.close()


if __name__ == "__main__":
    take_pictures(*sys.argv[1:])
