"""Takes the pictures of the Transcripts tab in README.md and dashboard.md, of a TensorBoard that runs.

The runs in the pictures were made with

    sonosco data synth corpus --kind commands --minutes 120
    sonosco train --config configs/las.yaml --train corpus/train.jsonl --val corpus/val.jsonl --run-dir runs/las
    sonosco train --config configs/deepspeech2.yaml --train corpus/train.jsonl --val corpus/val.jsonl \
        --run-dir runs/deepspeech2
    tensorboard --logdir runs
    python docs/take_pictures.py http://localhost:6006
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
STILL = 1500  # milliseconds until everything is drawn
FIRST, SECOND = "las/tensorboard", "deepspeech2/tensorboard"
OPENED = 2  # which row of the worst is shown in detail


def take_pictures(address: str) -> None:
    """The table with both runs in the light, and one utterance of the first run in the dark."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        page = browser.new_page(viewport={"width": 1360, "height": 850})
        page.goto(f"{address}/#sonosco_transcripts")
        tab = page.frame_locator("iframe").first
        tab.locator("tbody").first.wait_for(timeout=60_000)

        def press(selector: str) -> None:
            tab.locator(selector).click()
            page.wait_for_timeout(STILL)

        def photograph(name: str) -> None:
            page.mouse.move(700, 20)  # away from everything that lights up below it
            page.wait_for_timeout(STILL)
            page.screenshot(path=IMAGES / name)

        for run in (FIRST, SECOND):
            button = tab.locator(f"button[data-run='{run}']")
            if button.get_attribute("aria-pressed") != "true":
                button.click()
                page.wait_for_timeout(STILL)
        press("button[data-sort=duration]")
        photograph("transcripts.png")

        press(f"button[data-run='{SECOND}']")
        page.evaluate("document.body.classList.add('dark-mode')")
        tab.get_by_label("Filter").select_option("audio")
        press("button[data-sort=wer]")
        tab.locator("tbody .reference").nth(OPENED).click()
        page.wait_for_timeout(STILL)
        tab.locator("canvas.features").click(position={"x": 330, "y": 40})
        photograph("transcripts-details.png")
        browser.close()


if __name__ == "__main__":
    take_pictures(sys.argv[1].rstrip("/"))
