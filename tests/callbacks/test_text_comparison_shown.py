"""Samples as Markdown and as pictures."""

from __future__ import annotations

import html

import numpy as np
import pytest
import torch
from text_samples import sample

from sonosco_like.callbacks.text_comparison.samples import Sample
from sonosco_like.callbacks.text_comparison.tables import (
    alignment_picture,
    comparison_table,
    escape_markdown,
    spectrogram_picture,
)

plugin_util = pytest.importorskip("tensorboard.plugin_util")


# Markdown


def test_errors_are_marked_in_the_table():
    text = comparison_table("u1", "one two three", "one too three four", 0.5, "free-running")
    assert text.splitlines() == [
        "**u1**, free-running: WER **66.7 %** (before 50.0 %), CER 46.2 %",
        "",
        "| reference | one | two | three | ∅ |",
        "| --- | --- | --- | --- | --- |",
        "| hypothesis | one | **too** | three | **four** |",
        "|  |  | S |  | I |",
        "",
        "S substituted, D deleted (only in the reference), I inserted (only in the hypothesis)",
    ]


def test_long_utterances_are_several_tables():
    text = comparison_table("u1", " ".join("abcdefghijklmnopqrst"), "a", None, "free-running")
    assert text.count("| reference |") == 2


def test_silence_is_said_to_be_silence():
    assert "Reference and hypothesis are empty." in comparison_table("u1", "", " ", None, "free-running")


HOSTILE = [
    "<script>alert(1)</script>",
    "| a | b",
    "**bold**",
    "[x](javascript:alert(1))",
    "# head",
    "`code`",
    "a_b_c",
    "&lt;",
    "\\*",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_markup_in_a_transcript_is_shown_as_text(text):
    shown = plugin_util.markdown_to_safe_html(escape_markdown(text))
    assert html.unescape(shown).replace("<p>", "").replace("</p>", "") == text
    table = plugin_util.markdown_to_safe_html(comparison_table(text, text, "b " + text, None, "free-running"))
    assert "<script" not in table
    assert "<a" not in table
    assert "<code" not in table
    assert table.count("<tr>") == 3


# Pictures


def test_pictures_share_one_time_axis():
    features, aligned = spectrogram_picture(sample()), alignment_picture(sample())
    assert features.pixels_HWC.shape[1:] == aligned.pixels_HWC.shape[1:]
    assert features.pixels_HWC.dtype == torch.uint8
    assert alignment_picture(sample(frames=2000)).pixels_HWC.shape == aligned.pixels_HWC.shape


def test_the_dark_cells_of_an_alignment_are_where_the_weights_are():
    pixels = alignment_picture(sample(frames=4)).pixels_HWC.float().mean(-1)
    plot = pixels[20 : 20 + 4 * 13, 40 : 40 + 360]
    cells = plot.reshape(4, 13, 4, 90).mean(dim=(1, 3))
    assert (cells.argmin(1) == torch.arange(4)).all()


def test_a_model_without_alignment_has_no_picture():
    bare = Sample("u1", "a", "a", 0.0, np.zeros((1, 1), np.float32), (), ())
    assert alignment_picture(bare) is None
    assert spectrogram_picture(bare).pixels_HWC.shape[-1] == 3
