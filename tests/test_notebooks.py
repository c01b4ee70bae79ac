"""The notebooks are kept with their outputs, and run from the first cell to the last."""

from __future__ import annotations

import re
from pathlib import Path

import nbclient
import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def read(name):
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(book)
    return book


def outputs_of(book):
    return [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]


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
    texts = [output.get("text", "") for output in outputs_of(read(name))]
    assert re.findall(r"/(?:home|root|tmp|work|usr)/\S*", "".join(texts)) == []
    assert [output.text for output in outputs_of(read(name)) if output.get("name") == "stderr"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name):
    book = read(name)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(FOLDER)}}).execute()
    assert all(output.output_type != "error" for output in outputs_of(book))
