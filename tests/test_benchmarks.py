"""`python -m benchmarks` finds every benchmark, makes one table of their rows, and writes only its part of a page."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from warm import warm_python

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks/ is not part of what is installed

from benchmarks.__main__ import Benchmark, benchmarks_in, main, outcome, without_folders
from benchmarks.machine import describe_load, describe_machine
from benchmarks.page import BEGIN, END, Page, Run
from benchmarks.plot_learning import draw, read_curves
from benchmarks.results import ROWS_FILE, Row, read_rows, report, report_ratio
from benchmarks.timing import QUICK, take_turns, turns
from sonosco_like.errors import UsageError

PROJECT = Path(__file__).parents[1]
FILES = sorted((PROJECT / "benchmarks").glob("bench_*.py"))
IMPORTS = f"import sys\nsys.path.insert(0, {str(PROJECT)!r})\nfrom benchmarks.results import Row, report\n"
GOOD = f'"""Good things."""\n{IMPORTS}report(Row("a good thing", 1.04, "bare", goal=1.1))\n'
BAD = f'"""Bad things."""\n{IMPORTS}report(Row("measured before", 2.0))\nraise ValueError("nothing at /some/where/x")\n'
PROSE = f"# Title\n\nBefore.\n\n{BEGIN}\n{END}\n\nAfter.\n"
EARLIER = Run("2026-01-01 00:00:00", "python -m benchmarks", "2 cores", "load average 0.10 at the start")
LATER = Run("2026-02-02 00:00:00", "python -m benchmarks two", "8 cores", "load average 0.20 at the start")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "bench_good.py").write_text(GOOD)
    (tmp_path / "bench_wrong.py").write_text(BAD)
    (tmp_path / "page.md").write_text(PROSE)
    return tmp_path


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PROSE)
    return Page(path, ["one", "two", "three"])


def test_every_benchmark_is_listed_with_what_it_measures():
    command = [*warm_python(), "-m", "benchmarks", "--list"]
    listed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.splitlines()
    names = [path.stem.removeprefix("bench_") for path in FILES]
    assert [line.split()[0] for line in listed] == names
    assert len(names) >= 16
    assert all(len(line.split()) > 5 for line in listed), "a benchmark says nothing about itself"


def test_every_benchmark_reports_rows():
    """Seen in its text: to run them all takes an hour."""
    for path in FILES:
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        named = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
        assert {"report", "report_ratio"} & named, f"{path.name} reports nothing."
        assert Benchmark(path).summary.count(" ") > 5, f"{path.name} says nothing about itself."


def test_a_goal_is_compared_not_claimed():
    assert Row("a", 1.1, "b", 1.1).met
    assert Row("a", 1.11, "b", 1.1).met is False
    assert Row("a", 99.0, goal=98.0, unit="%", at_least=True).met
    assert Row("a", 97.9, goal=98.0, unit="%", at_least=True).met is False
    assert Row("a", "EXACT", goal="EXACT").met
    assert Row("a", "NOT EXACT", goal="EXACT").met is False
    assert Row("a", 3.0).met is None
    assert Row("a", "not installed", goal=1.1).met is None


def test_a_row_is_shown_with_its_unit_and_its_goal():
    assert Row("a", 1.23456, "b", 1.1).cells() == ("a", "1.235 x", "b", "at most 1.1 x", "no")
    assert Row("a", 99.5, "b", 98.0, "%", at_least=True).cells() == ("a", "99.5 %", "b", "at least 98 %", "yes")
    assert Row("a", "EXACT", goal="EXACT").cells() == ("a", "EXACT", "", "EXACT", "yes")
    assert Row("a", 2.0).cells() == ("a", "2 x", "", "", "")


def test_rows_come_back_as_they_were_reported(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    monkeypatch.setenv(ROWS_FILE, str(path))
    rows = [Row("a | µ", 1.5, "b", 2.0), Row("c", "EXACT", goal="EXACT", unit="", at_least=True)]
    report(*rows)
    report_ratio("d", {"ours": 3.0, "theirs": 2.0}, "ours", "theirs", goal=1.2)
    assert read_rows(path) == [*rows, Row("d: ours", 1.5, "theirs", 1.2)]


def test_without_a_table_nothing_is_written(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(ROWS_FILE, raising=False)
    report(Row("a", 1.0))
    assert list(tmp_path.iterdir()) == []


def test_a_quick_run_takes_one_turn(monkeypatch):
    heard = []
    monkeypatch.setenv(QUICK, "yes")
    take_turns({"a": lambda: heard.append("a"), "b": lambda: heard.append("b")}, repeats=7)
    assert heard == ["a", "b"] * 2, "one round to warm up, and one that counts"
    monkeypatch.delenv(QUICK)
    assert turns(7) == 7


def test_a_benchmark_that_fails_is_a_row_and_the_others_are_measured(folder, capfd):
    (folder / "bench_young.py").write_text(GOOD.replace("good thing", "late thing"))
    assert main(["--write", str(folder / "page.md")], folder) == 1
    written = (folder / "page.md").read_text()
    for cells in (
        "a good thing | 1.04 x | bare | at most 1.1 x | yes",
        "measured before | 2 x",
        "a late thing | 1.04 x",
    ):
        assert cells in written
    assert "| failed | exit code 1: ValueError: nothing at x |" in written, "without the folders of this machine"
    printed = capfd.readouterr()
    assert "a late thing" in printed.out
    assert "failed: wrong" in printed.err
    assert "Traceback" in printed.err


def test_a_package_that_is_missing_is_a_row_and_no_failure(folder, capfd):
    (folder / "bench_wrong.py").write_text(f"{BAD.partition('raise')[0]}import surely_not_installed.part\n")
    assert main(["wrong", "--write", str(folder / "page.md")], folder) == 0
    assert "| not measured | the package surely_not_installed is not installed |" in (folder / "page.md").read_text()


def test_a_module_of_ours_that_is_missing_is_a_failure():
    assert outcome([], 1, "ModuleNotFoundError: No module named 'sonosco_like.old'\n").failed
    assert not outcome([], 1, "ModuleNotFoundError: No module named 'flashlight'\n").failed


def test_a_benchmark_that_is_killed_is_a_row():
    killed = outcome([Row("a", 1.0)], -9, "")
    assert killed.failed
    assert [row.what for row in killed.rows] == ["a", "failed"]
    assert "signal 9" in str(killed.rows[-1].value)


def test_the_page_keeps_its_prose_and_the_rows_of_what_did_not_run(page):
    page.put("two", "two", [Row("old of two", 1.0), Row("more of two", 2.0)], EARLIER)
    page.put("one", "one", [Row("of one", 3.0)], EARLIER)
    page.put("two", "two -- --rows 5", [Row("new of two", 4.0)], LATER)
    text = page.path.read_text()
    assert text.startswith(PROSE.partition(BEGIN)[0] + BEGIN)
    assert text.endswith(END + PROSE.partition(END)[2])
    assert re.findall(r"^\| `([^`]+)` \| (of \w+|\w+ of \w+) \|", text, re.MULTILINE) == [
        ("one", "of one"),
        ("two -- --rows 5", "new of two"),
    ]
    assert EARLIER.line() in text, "a row of it is still there"
    assert LATER.line() in text


def test_a_run_without_rows_leaves_the_list_and_so_does_a_benchmark_that_is_gone(page):
    page.put("two", "two", [Row("old", 1.0)], EARLIER)
    page.put("two", "two", [Row("new", 1.0)], LATER)
    assert EARLIER.line() not in page.path.read_text()
    Page(page.path, ["one", "three"]).put("one", "one", [Row("young", 1.0)], LATER)
    assert "new" not in page.path.read_text()


def test_writing_the_same_twice_changes_nothing(page):
    page.put("three", "three", [Row("a | b", 1.0, "c")], EARLIER)
    once = page.path.read_text()
    page.put("three", "three", [Row("a | b", 1.0, "c")], EARLIER)
    assert page.path.read_text() == once


def test_a_page_without_a_place_for_the_table_is_refused_before_anything_is_measured(folder, capfd):
    (folder / "bare.md").write_text("# No marks\n")
    for name, said in (("bare.md", BEGIN), ("none.md", "There is no page")):
        assert main(["good", "--write", str(folder / name)], folder) == 2
        printed = capfd.readouterr()
        assert said in printed.err
        assert "== good" not in printed.out
    with pytest.raises(UsageError):
        Page(folder / "bare.md", [])


def test_wrong_use_is_said_and_nothing_is_measured(folder, capfd):
    for arguments, said in (
        (["godo"], "there are good, wrong"),
        (["--skip", "godo"], "there are good, wrong"),
        (["--", "--rows", "5"], "for one benchmark"),
        (["good", "--quick", "--write", "page.md"], "not to be written down"),
    ):
        assert main(arguments, folder) == 2
        printed = capfd.readouterr()
        assert said in printed.err
        assert "==" not in printed.out


def test_a_command_is_shown_without_the_folders_of_this_machine():
    given = ["learning", "--write", "docs/b.md", "--", "--corpus", "/my home/it's/digits"]
    assert without_folders(given).endswith("--write docs/b.md -- --corpus digits")
    assert without_folders(["--write=/a/b c/page.md"]) == "--write=page.md"
    assert without_folders(["--corpus", "/a/b/"]) == "--corpus b/"


def test_words_choose_and_skip(folder, capfd):
    assert main(["--list", "--skip", "wro"], folder) == 0
    assert capfd.readouterr().out.split() == ["good", "Good", "things."]
    assert main(["goo"], folder) == 0
    assert "a good thing" in capfd.readouterr().out


def test_the_machine_is_described_by_what_matters_to_a_measurement():
    assert re.search(r"^\d+ cores, .+, \d+ GiB, \w+, Python [\d.]+, torch [\d.]+", describe_machine())
    assert re.fullmatch(r"load average \d+\.\d\d at the start", describe_load())


def test_a_real_benchmark_gives_its_rows(tmp_path, capfd):
    """With few utterances; what it measures does not depend on the clock."""
    (tmp_path / "page.md").write_text(PROSE)
    arguments = ["sampling", "--write", str(tmp_path / "page.md"), "--", "--utterances", "3000", "--budget", "120"]
    assert main(arguments) == 0
    written = (tmp_path / "page.md").read_text()
    rows = re.findall(r"^\| `sampling -- --utterances 3000 --budget 120` \| (.+?) \|", written, re.MULTILINE)
    assert {"random order: padding", "10 buckets: budget used", "50 buckets: budget used"} <= set(rows)
    assert str(tmp_path) not in written
    assert (
        f"python -m benchmarks sampling --write page.md -- --utterances 3000 --budget 120`; {describe_machine()}"
        in written
    )
    assert "10 buckets" in capfd.readouterr().out


def test_the_page_of_the_documentation_has_rows_of_known_benchmarks_only():
    text = (PROJECT / "docs" / "benchmarks.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)[^`]*` \|.*\| (\d{4}-[^|]+) \|$", text.partition(BEGIN)[2].partition(END)[0], re.MULTILINE
    )
    assert {name for name, _ in rows} <= {each.name for each in benchmarks_in(PROJECT / "benchmarks")}
    assert rows, "nothing was measured"
    for _, run in rows:
        assert f"\n- {run}: `python -m benchmarks" in text, "a row without the run that it is from"


def test_what_is_measured_against_is_installed_for_benchmarks_only():
    makefile = (PROJECT / "Makefile").read_text()
    assert re.search(r"^PIP := .*pip install .*-c constraints\.txt$", makefile, re.MULTILINE)
    extras = re.findall(r"^\t\$\(PIP\) -e '\.\[(.+)\]'$", makefile, re.MULTILINE)
    assert extras[0] == "synth", "make train installs the core and the voices"
    assert [each for each in extras if "bench" in each] == ["bench"]
    assert re.search(r"^bench: \$\(VENV\)/\.installed-bench", makefile, re.MULTILINE)
    pins = (PROJECT / "constraints.txt").read_text()
    assert all(
        re.search(rf"^{name}==", pins, re.MULTILINE) for name in ("lightning", "pytorch-ignite", "pytorch-accelerated")
    )


def test_minutes_to_the_target_are_those_of_the_first_validation_that_reached_it(tmp_path):
    """In a process of its own: the benchmark registers a callback, which is not for other tests to see."""
    curve = "[(1.0, 40.0), (2.5, 4.9), (3.0, 5.1), (4.0, 2.5)]"
    calls = f"report_curve('las', {curve}, True); report_curve('tds', [(1.0, 7.0)], False)"
    code = f"from benchmarks.bench_learning import report_curve; {calls}"
    rows = tmp_path / "rows.jsonl"
    subprocess.run([*warm_python(), "-c", code], cwd=PROJECT, check=True, env={**os.environ, ROWS_FILE: str(rows)})
    reached, end, never, early = read_rows(rows)
    assert (reached.value, reached.unit) == (2.5, "min")
    assert (end.value, end.goal, end.met) == (2.5, 2.0, False)
    assert never.value == "not reached"
    assert early.goal is None, "a scaled-down run has no goal to miss"


@pytest.mark.slow
def test_a_config_learns_with_the_clock_running(tmp_path, capfd):
    (tmp_path / "page.md").write_text(PROSE)
    options = ["--config", "deepspeech2", "--minutes", "1", "--epochs", "1"]
    assert main(["learning", "--write", str(tmp_path / "page.md"), "--", *options]) == 0
    written = (tmp_path / "page.md").read_text()
    assert "deepspeech2.yaml: CPU time to 5 % WER | not reached |" in written
    assert re.search(r"WER at the end, after [\d.]+ CPU minutes \| [\d.]+ % \| unseen voices", written)
    assert len(read_curves(capfd.readouterr().out)["deepspeech2"]) == 1


def test_learning_curves_are_drawn_from_what_was_printed(tmp_path):
    said = "las, 120 minutes of speech, 7 epochs\n    1.25 CPU minutes   74.51 % WER\nepoch 1/7, step 50/90, loss 3\n"
    said += "    2.36 CPU minutes   12.02 % WER\n  5 % WER: not reached\n\n"
    said += "tds, 2.5 minutes of speech, 1 epochs\n   10.07 CPU minutes  190.24 % WER\n"
    assert read_curves(said) == {"las": [(1.25, 74.51), (2.36, 12.02)], "tds": [(10.07, 190.24)]}
    draw(read_curves(said), tmp_path / "learning.png")
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")
