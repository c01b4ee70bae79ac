"""The Transcripts dashboard of real runs, in a real TensorBoard and a real browser."""

from __future__ import annotations

import csv
from io import StringIO

import pytest
from transcript_runs import SAMPLED, TEXTS, write_transcripts


def ids(frame):
    return frame.locator("tbody").evaluate_all("rows => rows.map(row => row.dataset.id)")


def hypothesis_of(frame, name, lane=0):
    """The hypothesis in a row: all words that are not struck out."""
    line = frame.locator(f"tbody[data-id='{name}'] .hypothesis").nth(lane)
    return line.evaluate(
        """node => { const copy = node.cloneNode(true);
        copy.querySelectorAll("del, .silent").forEach(each => each.remove());
        return copy.textContent.split(/\\s+/).filter(Boolean).join(" "); }"""
    )


def step_of(frame):
    return int(frame.locator(".step").inner_text().split()[1].replace(",", ""))


def waits(frame, script, argument=None):
    """Wait until something is true in the frame."""
    frame.locator("body").element_handle().owner_frame().wait_for_function(script, arg=argument)


def test_the_tab_shows_reference_and_hypothesis(server, tiny_runs, open_dashboard, tmp_path):
    page, frame = open_dashboard(server, in_tensorboard=True)
    assert page.get_by_text("Transcripts", exact=True).first.is_visible()
    assert sorted(ids(frame)) == [f"tone-{number}" for number in range(len(TEXTS))]
    truth = tiny_runs[1]["first"]
    last = max(truth)
    assert step_of(frame) == last
    for number, text in enumerate(TEXTS):
        row = frame.locator(f"tbody[data-id='tone-{number}']")
        assert row.locator(".reference").inner_text() == text
        assert hypothesis_of(frame, f"tone-{number}") == " ".join(truth[last]["free"][f"tone-{number}"].split())
    waits(frame, "count => document.querySelectorAll('.sparkline').length === count", len(TEXTS))
    page.screenshot(path=tmp_path / "table.png")
    assert (tmp_path / "table.png").stat().st_size > 10_000


def test_the_slider_goes_to_other_steps(server, tiny_runs, open_dashboard):
    page, frame = open_dashboard(server)
    truth = tiny_runs[1]["first"]
    steps = sorted(truth)
    frame.locator(".slider").focus()
    frame.locator(".slider").evaluate("node => { node.value = node.min; node.dispatchEvent(new Event('input')); }")
    waits(frame, "step => document.querySelector('.step').textContent === `Step ${step}`", steps[0])
    frame.locator(".rows:not(.waiting)").wait_for()
    for name, text in truth[steps[0]]["free"].items():
        assert hypothesis_of(frame, name) == " ".join(text.split())
    page.keyboard.press("End")
    waits(frame, "step => document.querySelector('.step').textContent === `Step ${step}`", steps[-1])


def test_rows_are_sorted_and_filtered(server, open_dashboard):
    _, frame = open_dashboard(server)
    durations = "rows => rows.map(row => parseFloat(row.rows[0].lastElementChild.textContent))"
    frame.locator("button[data-sort=duration]").click()
    waits(frame, "() => document.querySelector('th[aria-sort]').textContent.includes('Length ↓')")
    frame.locator(".rows:not(.waiting) tbody[data-id='tone-4']:nth-of-type(1)").wait_for()
    found = frame.locator("tbody").evaluate_all(durations)
    assert found == sorted(found, reverse=True)
    frame.get_by_label("Filter").select_option("audio")
    waits(frame, "count => document.querySelectorAll('tbody').length === count", len(SAMPLED))
    assert sorted(ids(frame)) == SAMPLED
    frame.get_by_label("Filter").select_option("all")
    frame.get_by_label("Search").fill("TONE-5")
    frame.locator("tbody:only-of-type[data-id=tone-5]").wait_for()
    frame.get_by_label("Search").fill("no such text")
    frame.get_by_text("No utterance matches.").wait_for()
    frame.get_by_text("Show all utterances").click()
    waits(frame, "count => document.querySelectorAll('tbody').length === count", len(TEXTS))


def test_audio_loads_and_its_position_moves_over_the_pictures(server, open_dashboard, tmp_path):
    page, frame = open_dashboard(server)
    frame.locator("tbody[data-id='tone-4'] .reference").click()
    frame.locator(".pictures canvas").nth(2).wait_for()
    captions = frame.locator(".pictures figcaption b").all_inner_texts()
    assert captions[0] == "Log-mel features"
    assert {"Attention", "CTC"} <= set(captions)
    assert frame.locator(".pictures .tokens span").all_inner_texts()[: len("a b b a")] == list("a␣b␣b␣a")
    colours = "node => new Set(node.getContext('2d').getImageData(0, 0, node.width, node.height).data).size"
    assert frame.locator("canvas.features").evaluate(colours) > 10
    frame.locator("aside .player").click()
    waits(frame, "() => document.querySelector('audio').duration > 0")
    assert frame.locator("audio").evaluate("node => node.duration") == pytest.approx(7 * 0.12, abs=0.02)
    frame.locator("canvas.features").click()
    waits(
        frame,
        "() => parseFloat(document.querySelector('.playhead:not([hidden])')?.style.left) > 20",
    )
    assert frame.locator("audio").evaluate("node => node.error") is None
    page.screenshot(path=tmp_path / "details.png")


def test_samples_without_audio_say_so(server, open_dashboard):
    _, frame = open_dashboard(server)
    assert frame.locator("tbody[data-id='tone-0'] .player").count() == 0
    frame.locator("tbody[data-id='tone-0'] .reference").click()
    frame.get_by_text("Audio and pictures are kept for a few samples only.").wait_for()


def test_two_runs_stand_beside_each_other(server, tiny_runs, open_dashboard):
    _, frame = open_dashboard(server)
    frame.locator(".chip", has_text="second").click()
    waits(frame, "() => document.querySelectorAll('tbody:first-of-type .lane').length === 2")
    for lane, run in enumerate(("first", "second")):
        truth = tiny_runs[1][run]
        for name, text in truth[max(truth)]["free"].items():
            assert hypothesis_of(frame, name, lane) == " ".join(text.split())
    assert frame.locator(".numbers .name").all_inner_texts() == ["first", "second"]


def test_free_running_stands_beside_teacher_forced(server, tiny_runs, open_dashboard):
    _, frame = open_dashboard(server)
    frame.get_by_text("Both", exact=True).click()
    waits(frame, "() => document.querySelectorAll('tbody:first-of-type .lane').length === 2")
    truth = tiny_runs[1]["first"]
    for lane, mode in enumerate(("free", "teacher_forced")):
        assert hypothesis_of(frame, "tone-2", lane) == " ".join(truth[max(truth)][mode]["tone-2"].split())
    assert frame.locator("tbody").first.locator(".tag").all_inner_texts() == ["free-running", "teacher-forced"]


def test_everything_can_be_reached_by_keyboard(server, open_dashboard):
    page, frame = open_dashboard(server)
    frame.locator(".tools").click(position={"x": 2, "y": 2})
    page.keyboard.press("j")
    page.keyboard.press("j")
    waits(frame, "() => document.querySelectorAll('tbody')[1].classList.contains('selected')")
    page.keyboard.press("Enter")
    frame.locator("aside .interlinear").wait_for()
    page.keyboard.press("Escape")
    waits(frame, "() => document.querySelector('aside').hidden")
    page.keyboard.press("d")
    frame.locator(".hypothesis.characters").first.wait_for()
    page.keyboard.press("c")
    frame.get_by_role("heading", name="Confusions").wait_for()
    page.keyboard.press("/")
    waits(frame, "() => document.activeElement.type === 'search'")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    frame.locator("dialog[open]").wait_for()


def test_light_and_dark(server, open_dashboard):
    page, frame = open_dashboard(server, in_tensorboard=True)
    theme = "() => document.documentElement.dataset.theme"
    paper = "node => getComputedStyle(node).backgroundColor"
    assert frame.locator("body").evaluate(theme) == "light"
    page.evaluate("document.body.classList.add('dark-mode')")
    waits(frame, "() => document.documentElement.dataset.theme === 'dark'")
    assert frame.locator("body").evaluate(paper) == "rgb(21, 24, 30)"
    frame.locator(".tools").click(position={"x": 2, "y": 2})
    page.keyboard.press("t")
    assert frame.locator("body").evaluate(theme) == "light"
    assert frame.locator("body").evaluate(paper) == "rgb(255, 255, 255)"


def test_rows_are_copied_and_exported(server, tiny_runs, open_dashboard):
    page, frame = open_dashboard(server)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    frame.locator("tbody[data-id='tone-1'] .reference").click()
    frame.get_by_text("Copy", exact=True).click()
    frame.get_by_text("Copied").wait_for()
    truth = tiny_runs[1]["first"]
    text = truth[max(truth)]["free"]["tone-1"]
    assert page.evaluate("navigator.clipboard.readText()") == f"id\ttone-1\nreference\tb a\nhypothesis\t{text}"
    with page.expect_download() as download:
        frame.get_by_text("CSV", exact=True).click()
    rows = list(csv.DictReader(StringIO(download.value.path().read_text(encoding="utf-8"))))
    assert {row["id"]: row["reference"] for row in rows} == {
        f"tone-{number}": text for number, text in enumerate(TEXTS)
    }


def test_a_step_that_is_written_while_we_look_appears(tmp_path, serve, open_dashboard):
    folder = tmp_path / "live"
    write_transcripts(folder, {"u1": "one two", "u2": "three"}, {10: {"u1": "one", "u2": "three"}})
    running = serve(tmp_path)
    running.wait_for(lambda runs: runs)
    _, frame = open_dashboard(running)
    assert step_of(frame) == 10
    write_transcripts(folder, {"u1": "one two", "u2": "three"}, {20: {"u1": "one two", "u2": "tree"}}, after=10)
    waits(frame, "() => document.querySelector('.step').textContent === 'Step 20'")
    waits(frame, "() => document.querySelector(\"tbody[data-id='u2'] .hypothesis\").textContent.includes('tree')")


def test_without_transcripts_the_page_says_how_to_get_some(tmp_path, serve, open_dashboard):
    write_transcripts(tmp_path / "empty", {}, {})
    running = serve(tmp_path)
    running.wait_for(lambda runs: runs == {})
    _, frame = open_dashboard(running, ready="h1")
    assert frame.locator("h1").inner_text() == "No transcripts yet"
    assert "TranscriptDashboard" in frame.locator("pre").inner_text()
    write_transcripts(tmp_path / "first", {"u1": "one two"}, {10: {"u1": "one"}})
    frame.locator("tbody[data-id=u1]").wait_for()


HOSTILE = {
    "script": "<script>window.parent.harmed = window.harmed = 1</script>",
    "image": "<img src=x onerror='window.harmed=1'>",
    "quotes": "\"'`${window.harmed=1}`'\"",
    "long": "na " * 20_000,
    "unbroken": "x" * 20_000,
    "arabic": "مرحبا بالعالم",
    "hebrew": "שלום <b>עולם</b>",
    "override": "\u202egnp.exe\u202c",
    "emoji": "👩‍👩‍👧‍👦 🇩🇪 e\u0301",
    "control": "a\u0000b\u0007c",
    "formula": '=HYPERLINK("http://x","y")',
    "url": "javascript:window.harmed=1",
}


def test_hostile_transcripts_are_only_text(tmp_path, serve, open_dashboard):
    names = {f"<b>{name}</b>": text for name, text in HOSTILE.items()}
    write_transcripts(tmp_path / "<i>hostile", names, {1: {name: f"{text} heard" for name, text in names.items()}})
    running = serve(tmp_path)
    running.wait_for(lambda runs: runs)
    page, frame = open_dashboard(running)
    frame.locator("button[data-sort=id]").click()
    waits(frame, "count => document.querySelectorAll('tbody').length === count", len(names))
    for name, text in names.items():
        body = frame.locator(f"tbody[data-id='{name}']")
        shown = body.locator(".reference").evaluate("node => node.textContent")
        assert shown == (text if len(text) < 2000 else f"{text[:2000]}…")
        assert body.locator(".text :is(script, img, b, i, a)").count() == 0
        body.locator(".reference").click(position={"x": 3, "y": 3})
        waits(frame, "name => document.querySelector('aside h2')?.textContent === name", name)
    assert frame.locator("body").evaluate("() => window.harmed") is None
    assert page.evaluate("window.harmed") is None
    page.keyboard.press("c")
    frame.get_by_role("heading", name="Confusions").wait_for()
    widths = frame.locator("body").evaluate("node => [node.scrollWidth, node.clientWidth]")
    assert widths[0] <= widths[1]


def test_thousands_of_utterances_come_page_by_page(tmp_path, serve, open_dashboard):
    references = {f"u{number:05d}": f"one two {number}" for number in range(3000)}
    steps = {
        step: {name: text if step > 60 else "one" for name, text in references.items()} for step in range(0, 101, 5)
    }
    write_transcripts(tmp_path / "many", references, steps)
    running = serve(tmp_path)
    running.wait_for(lambda runs: runs and len(runs["many"]["val"]["steps"]) == 21)
    page, frame = open_dashboard(running)
    assert frame.locator("tbody").count() == 50
    assert "1–50 of 3,000 utterances" in frame.locator(".pager").inner_text()
    frame.locator("button[data-sort=id]").click()
    waits(frame, "() => document.querySelector('tbody').dataset.id === 'u00000'")
    frame.get_by_text("Next ›").click()
    waits(frame, "() => document.querySelector('tbody').dataset.id === 'u00050'")
    page.keyboard.press("n")
    waits(frame, "() => document.querySelector('tbody').dataset.id === 'u00100'")
