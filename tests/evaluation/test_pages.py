"""Evaluations as people read them: tables, side by side, and a page."""

from __future__ import annotations

import io
from html.parser import HTMLParser

from rich.console import Console

from sonosco_like.evaluation import Evaluation, Result, compare
from sonosco_like.evaluation.files import html_page
from sonosco_like.evaluation.terminal import rows_of, summary

HOSTILE = '<script>alert("x")</script>'
RESULTS = [
    Result.of("plain", "one two three four five six", "one too four five six seven", 2.0, "anna"),
    Result.of(f"id {HOSTILE}", f"say {HOSTILE}", f"[bold]say[/bold] {HOSTILE} & more", 7.0, f"speaker {HOSTILE}"),
    Result.of("right", "yes", "yes", 0.5, "bert"),
]
EVALUATION = Evaluation(RESULTS, {"bad": f"row 4: {HOSTILE} is empty"}, bootstraps=50)


def printed(terminal: bool, width: int = 100, **options) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, highlight=False)
    for part in summary(EVALUATION, "run on test", width, 5, **options):
        console.print(part)
    return stream.getvalue()


class Tags(HTMLParser):
    """Notes what a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_words_stand_under_each_other():
    (row,) = rows_of(RESULTS[0], 80)
    assert " ".join(column.reference for column in row).split() == [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "*****",
    ]
    assert [len(column.reference) == len(column.hypothesis) == len(column.mark) for column in row] == [True] * len(row)
    assert "".join(column.mark for column in row).split() == ["S", "D", "I"]


def test_long_utterances_are_broken_at_words():
    result = Result.of("long", "word " * 50, "word " * 49)
    rows = list(rows_of(result, 40))
    assert all(sum(len(column.reference) + 1 for column in row) <= 40 for row in rows)
    assert sum(map(len, rows)) == 50


def test_wide_characters_stay_aligned():
    (row,) = rows_of(Result.of("wide", "東京 で", "東 で"), 80)
    assert row[0].hypothesis == "東  "


def test_a_terminal_gets_colours_and_a_file_gets_none():
    assert "\x1b[" in printed(terminal=True)
    plain = printed(terminal=False)
    assert "\x1b[" not in plain
    for expected in (
        "word error rate",
        "by length",
        "by speaker",
        "most frequent errors",
        "plain: 3 errors in 6 words",
    ):
        assert expected in plain
    assert "[bold]say[/bold]" in plain
    assert "1 utterances could not be used" in plain


def test_the_verdict_of_a_comparison_is_shown():
    comparison = compare(RESULTS, RESULTS, "other", 50, 0)
    assert "No real difference to other" in printed(terminal=False, comparisons=[comparison])
    assert "No real difference to other" in html_page(EVALUATION, "title", [comparison])


def test_the_page_is_complete_and_lets_nothing_in():
    html = html_page(EVALUATION, f"run {HOSTILE}")
    seen = Tags()
    seen.feed(html)
    assert "script" not in seen.tags
    assert seen.links == []
    assert "http" not in html
    assert seen.text.count(HOSTILE) >= 6
    for expected in ("word error rate", "By length", "By speaker", "Worst utterances", "could not be used"):
        assert expected in seen.text


def test_a_perfect_evaluation_has_a_page_too():
    html = html_page(Evaluation(RESULTS[2:], bootstraps=10), "perfect")
    assert "Worst utterances" not in html
    assert "Most frequent errors" not in html
    assert "0.00%" in html
