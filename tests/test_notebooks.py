"""The notebooks are kept with their outputs, run from the first cell to the last, and print again what is kept."""

from __future__ import annotations

import re
from pathlib import Path

import nbclient
import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
ROUNDING = re.compile(r"^torch \S+ with \S+$", re.MULTILINE)  # what the digits of a training depend on
VARYING = {  # what no two executions print alike
    re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d(?=\.log)"): "<time>",
    re.compile(r"(?<=tfevents\.)\d+"): "<time>",
    re.compile(r"(?<=seconds: )[\d.]+"): "<seconds>",
    re.compile(r"\b[0-9a-f]{64}\b"): "<hash>",
    re.compile(r"(?<=  run: )[0-9a-f]{32}\b"): "<run>",
    re.compile(r"(?<=    )(torch|threads|processor): .+$", re.MULTILINE): "<machine>",
    re.compile(r" *[\d,]+ bytes(?!  .*(?:safetensors|trainer\.yaml|config\.yaml)$)", re.MULTILINE): "<size>",
    re.compile(r"(?<=resumed from step )\d+"): "<step>",  # the kill comes at no exact moment
}


def read(name):
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(book)
    return book


def outputs_of(book):
    return [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]


def text_of(cell):
    """What a cell prints and shows as plain text, without what varies; how it was cut into pieces does not matter."""
    text = ""
    for output in cell.get("outputs", ()):
        text += output.get("text", "") if output.get("name") != "stderr" else ""
        text += output.get("data", {}).get("text/plain", "")
    for varying, name in VARYING.items():
        text = varying.sub(name, text)
    return text


def texts_of(book, with_learned):
    cells = [cell for cell in book.cells if with_learned or "learned" not in cell.metadata.get("tags", ())]
    return {cell.source: ROUNDING.sub("", text_of(cell)) for cell in cells}


def rounding_of(book):
    return [ROUNDING.findall(text_of(cell)) for cell in book.cells]


def assert_not_stale(kept, made):
    """What a training has learned, in cells tagged so, is compared only where sums are rounded alike."""
    with_learned = rounding_of(kept) == rounding_of(made)
    assert texts_of(kept, with_learned) == texts_of(made, with_learned), "run the notebook anew, see CONTRIBUTING.md"


def book_of(*cells):
    """A notebook of cells that are given as what they print and their tags."""
    book = nbformat.v4.new_notebook()
    for number, (text, *tags) in enumerate(cells):
        outputs = [nbformat.v4.new_output("stream", text=part) for part in text.splitlines(keepends=True)]
        book.cells.append(nbformat.v4.new_code_cell(f"cell {number}", outputs=outputs, metadata={"tags": tags}))
    return book


def test_the_readme_of_the_notebooks_names_them_all():
    linked = re.findall(r"\]\((\w+)\.ipynb\)", (FOLDER / "README.md").read_text())
    assert sorted(linked) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_kept_with_its_outputs_and_without_errors(name):
    book = read(name)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run it anew from top to bottom"
    assert [output for output in outputs_of(book) if output.output_type == "error"] == []
    assert any("image/png" in output.get("data", {}) for output in outputs_of(book)), "a picture is kept"
    assert book.cells[0].source.startswith("# ")


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_tells_nothing_of_the_machine_it_was_run_on(name):
    outputs = outputs_of(read(name))
    texts = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs]
    assert re.findall(r"/(?:home|root|tmp|work|usr|Users)/\S*", "".join(texts)) == []
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


@pytest.mark.parametrize(
    ("kept", "made"),
    [
        ("logs/2026-11-16_11-46-07.log", "logs/2027-01-02_03-04-05.log"),
        ("    301 bytes  logs/x.log\n", "  1,301 bytes  logs/x.log\n"),
        ("tensorboard/events.out.tfevents.1794829570.sonosco", "tensorboard/events.out.tfevents.1794829999.sonosco"),
        ("    seconds: 10.632003599999734", "    seconds: 9.5"),
        (f"  trainer.yaml: {'0a' * 32}", f"  trainer.yaml: {'1b' * 32}"),
        ("resumed from step 9", "resumed from step 12"),
    ],
)
def test_what_varies_makes_no_notebook_stale(kept, made):
    assert_not_stale(book_of((kept,)), book_of((made,)))


@pytest.mark.parametrize(
    ("kept", "made"),
    [
        ("68 of 68 tensors are equal\n", "89 of 89 tensors are equal\n"),
        ("['config.yaml', 'final']\n", "['best', 'config.yaml', 'final']\n"),
        ("  1,928 bytes  final/tensors.safetensors\n", "  1,938 bytes  final/tensors.safetensors\n"),
        ("  301 bytes  best\n", "  301 bytes  latest\n"),
        ("exit code 0\n", ""),
    ],
)
def test_what_else_has_changed_makes_a_notebook_stale(kept, made):
    with pytest.raises(AssertionError, match="run the notebook anew"):
        assert_not_stale(book_of((kept,)), book_of((made,)))


def test_what_was_learned_is_compared_where_sums_are_rounded_alike():
    here, there = ("torch 2.13.0 with AVX2\n",), ("torch 2.13.0 with AVX512\n",)
    kept = book_of(here, ("heard  seven\n", "learned"))
    assert_not_stale(kept, book_of(there, ("heard  sevene\n", "learned")))
    with pytest.raises(AssertionError, match="run the notebook anew"):
        assert_not_stale(kept, book_of(here, ("heard  sevene\n", "learned")))
    with pytest.raises(AssertionError, match="run the notebook anew"):
        assert_not_stale(kept, book_of(there, ("heard  sevene\n",)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name):
    book = read(name)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(FOLDER)}}).execute()
    assert all(output.output_type != "error" for output in outputs_of(book))
    assert_not_stale(read(name), book)
