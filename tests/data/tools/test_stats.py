"""Statistics of a manifest, as numbers, tables and a picture."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console
from tones import make_corpus, write_rows, write_tone

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.tools.stats import (
    Limits,
    Statistics,
    _add_durations,
    draw_histogram,
    gather_statistics,
    statistics_tables,
)
from sonosco_like.errors import UsageError


@pytest.fixture
def manifest(tmp_path) -> Manifest:
    """Five rows, each strange in a way of its own."""
    write_tone(tmp_path / "a.wav", 2.0)
    row = {"audio_filepath": "a.wav", "duration": 2.0, "speaker": "anna"}
    return Manifest.read(
        write_rows(
            tmp_path / "m.jsonl",
            [
                {**row, "id": "good", "text": "Hello, Wörld 3"},
                {**row, "id": "fast", "text": "much too fast " * 9, "speaker": "peter"},
                {**row, "id": "slow", "text": "a", "speaker": None},
                {**row, "id": "empty", "text": " "},
                {**row, "id": "gone", "text": "hello", "audio_filepath": "b.wav"},
            ],
        )
    )


def test_numbers_are_right(manifest):
    found = gather_statistics(manifest)
    assert (found.rows, found.seconds, found.speakers, found.without_speaker) == (5, 10.0, 2, 1)
    assert (found.words, found.different_words, found.different_texts) == (3 + 27 + 1 + 0 + 1, 7, 5)
    assert found.not_in_alphabet == {"ö": 1, "3": 1}
    assert found.dropped_by_cleaning == {",": 1}


def test_strange_rows_are_named_with_the_reason(manifest):
    found = [(each.row, each.id, each.reason) for each in gather_statistics(manifest).suspicious]
    assert found == [
        (1, "good", "no label"),
        (2, "fast", "too fast"),
        (3, "slow", "too slow"),
        (4, "empty", "empty"),
        (5, "gone", "missing file"),
    ]


def test_alphabet_and_limits_can_be_chosen(manifest):
    found = gather_statistics(manifest, alphabet="abcdefghijklmnopqrstuvwxyzö3 ", limits=Limits(0.1, 1000))
    assert found.not_in_alphabet == {}
    assert {each.reason for each in found.suspicious} == {"empty", "missing file"}
    with pytest.raises(UsageError, match="slowest"):
        Limits(5, 2)


def test_silence_of_no_length_is_suspicious(tmp_path):
    write_tone(tmp_path / "a.wav", 0.2)
    path = write_rows(tmp_path / "m.jsonl", [{"audio_filepath": "a.wav", "duration": 0, "text": "x"}])
    found = gather_statistics(Manifest.read(path))
    assert [(each.reason, each.detail) for each in found.suspicious] == [("empty", "there is no audio")]
    assert sum(each.rows for each in found.histogram) == 1


@given(st.lists(st.floats(0.0, 1e5), min_size=1, max_size=50))
def test_the_histogram_holds_every_row_once_in_its_bin(durations):
    statistics = Statistics()
    _add_durations(statistics, np.array(durations))
    bins = statistics.histogram
    assert len(bins) <= 21
    assert sum(each.rows for each in bins) == len(durations)
    assert sum(each.seconds for each in bins) == pytest.approx(sum(durations))
    for each in bins:
        inside = [seconds for seconds in durations if each.start <= seconds < each.end]
        assert abs(len(inside) - each.rows) <= sum(
            np.isclose(seconds, edge) for seconds in durations for edge in (each.start, each.end)
        )


def test_the_picture_is_a_png_with_bars_in_it(tmp_path):
    statistics = gather_statistics(Manifest.read(make_corpus(tmp_path, [0.3, 0.5, 0.5, 1.2])))
    path = draw_histogram(statistics, "small", tmp_path / "new" / "lengths.png")
    with Image.open(path) as image:
        assert image.format == "PNG"
        colours = np.asarray(image.convert("RGB")).reshape(-1, 3)
    assert (np.abs(colours - np.array([0x48, 0x78, 0xA8])).max(axis=1) < 5).sum() > 1000


def test_tables_show_all_of_it(manifest):
    console = Console(width=100, file=io.StringIO())
    for table in statistics_tables(gather_statistics(manifest), "m.jsonl", most_suspicious=3):
        console.print(table)
    shown = console.file.getvalue()
    for part in (
        "m.jsonl",
        "2, 1 decoded; 1 of 16,000 Hz",
        "utterances",
        "speakers",
        "U+00F6",
        "too fast",
        "3 of 5",
        "characters that cleaning drops",
    ):
        assert part in shown
    assert "missing file" not in shown
