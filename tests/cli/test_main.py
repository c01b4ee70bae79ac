"""The `sonosco` command itself: quick to answer, and readable when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from warm import warm_python

from sonosco_like import cli
from sonosco_like.cli import run
from sonosco_like.errors import ConfigError, Problem, StorageError, UsageError


def test_help_answers_without_importing_anything_heavy(run_python):
    code = (
        "import sys\nfrom sonosco_like.cli import run\ncode = run(['--help'])\n"
        "heavy = {'torch', 'torchaudio', 'numpy', 'librosa', 'pyarrow', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "print(code, sorted(heavy))"
    )
    done = run_python(code)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


def test_the_module_and_the_command_are_the_same():
    done = subprocess.run(
        [sys.executable, "-m", "sonosco_like", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("sonosco, version ")


def test_schema_prints_json(capsys):
    assert run(["schema", "--indent", "0"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "AdamW" in printed["$defs"]
    assert {"$ref": "#/$defs/Experiment"} in printed["anyOf"], "a config needs no class at its top"


def test_schema_knows_the_classes_of_modules_that_it_is_given(tmp_path):
    module = "from sonosco_like import serializable\n@serializable\nclass Mine:\n    size: int = 1\n"
    (tmp_path / "own_classes.py").write_text(module)

    def schema(*arguments: str) -> str:
        command = [*warm_python(), "-m", "sonosco_like", "schema", "--indent", "0", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True).stdout

    assert "own_classes.Mine" in json.loads(schema("--import", "own_classes"))["$defs"]
    assert "own_classes.Mine" not in json.loads(schema())["$defs"]


def test_a_misspelt_command_gets_a_suggestion(capsys):
    assert run(["shema"]) == 2
    assert "There is no command 'shema'; did you mean 'schema'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("`epochs` must be positive."), 2, "Error: `epochs` must be positive."),
        (ConfigError([Problem("bad", "a.b", "f.yaml", 3)]), 2, "Error: f.yaml:3: a.b: bad"),
        (ConfigError([Problem("x", source="f"), Problem("y", source="f")]), 2, "Error: 2 problems:\nf: x\nf: y"),
        (StorageError("disk full"), 1, "Error: disk full"),
        (PermissionError(13, "Permission denied", "/place"), 1, "Error: /place: Permission denied.\n"),
        (KeyError("oops"), 1, "This should not have happened"),
        (click.exceptions.Abort(), 130, "Interrupted."),
    ],
)
def test_what_goes_wrong_is_said_in_a_line_and_by_the_exit_code(error, code, said, capsys, monkeypatch):
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(cli.sonosco, "get_command", lambda context, name: failing)
    assert run(["schema"]) == code
    written = capsys.readouterr().err
    assert said in written
    assert "Traceback" not in written


def test_debug_shows_the_traceback(capsys, monkeypatch):
    @click.command()
    def failing() -> None:
        raise UsageError("no")

    monkeypatch.setattr(cli.sonosco, "get_command", lambda context, name: failing)
    assert run(["--debug", "schema"]) == 2
    assert "Traceback" in capsys.readouterr().err


BROKEN = {  # a module of the user's -> the line that is named, and what is said
    "1 / 0\n": (1, "ZeroDivisionError: division by zero"),
    "import os\n\ndef f(:\n": (3, "SyntaxError: "),
    "import os\nimport no_such_package\n": (2, "No module named 'no_such_package'"),
    "import json\n\njson.loads('{')\n": (None, "JSONDecodeError: "),
    "from sonosco_like import serializable\n\n\n@serializable\nclass A:\n    def __init__(self): pass\n": (
        4, "A has its own __init__",
    ),
    "from sonosco_like import AbstractCallback, serializable as s\n\n@s\nclass B(AbstractCallback):\n    limit = 3\n": (
        3, "B.limit has no type.",
    ),
    "from sonosco_like.metrics import metric\n\nx = 1\nmetric(lower_is_better=True)(3)\n": (4, ""),
}  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_a_module_of_the_users_that_fails_is_named_with_file_line_and_error(text, capsys, tmp_path, monkeypatch):
    name = f"broken_module_{list(BROKEN).index(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert run(["train", "--config", "any.yaml", "--import", name]) == 2
    said = capsys.readouterr().err
    line, message = BROKEN[text]
    assert f"--import {name} (" in said
    if line is not None:
        assert f"{name}.py:{line})" in said
    assert message in said
    assert "should not have happened" not in said
    assert "Traceback" not in said


def test_a_module_that_is_not_there_is_named_without_a_place(capsys):
    assert run(["train", "--config", "any.yaml", "--import", "no_such_module_at_all"]) == 2
    assert "--import no_such_module_at_all: ModuleNotFoundError: No module named" in capsys.readouterr().err


def test_a_module_that_imports_a_broken_one_leads_to_that(capsys, tmp_path, monkeypatch):
    (tmp_path / "outer_module.py").write_text("import inner_module\n")
    (tmp_path / "inner_module.py").write_text("x = 1\nraise ValueError('inside')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert run(["train", "--config", "any.yaml", "--import", "outer_module"]) == 2
    said = capsys.readouterr().err
    assert "--import outer_module (" in said
    assert "inner_module.py:2): ValueError: inside." in said
