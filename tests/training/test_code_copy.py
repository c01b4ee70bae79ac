"""`code/` of a run folder: the user's own modules as they were, and which version of this package ran them."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys

import pytest

from sonosco_like.training.provenance import VERSION, copy_code, user_modules
from sonosco_like.version import __version__


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A module, and a package with a module in it, imported as with --import."""
    home = tmp_path / "home"
    (home / "kept_package").mkdir(parents=True)
    (home / "kept_module.py").write_text("import kept_package.inner\n")
    (home / "kept_package" / "__init__.py").write_text("")
    (home / "kept_package" / "inner.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(home)
    importlib.import_module("kept_module")
    yield home
    for name in [name for name in sys.modules if name.startswith("kept_")]:
        del sys.modules[name]


def test_modules_of_the_user_are_copied_with_what_they_import(modules, tmp_path):
    copy_code(tmp_path / "run")
    code = tmp_path / "run" / "code"
    assert (code / "kept_module.py").read_text() == "import kept_package.inner\n"
    assert (code / "kept_package" / "__init__.py").exists()
    assert (code / "kept_package" / "inner.py").read_text() == "value = 1\n"
    version, sources = (code / VERSION).read_text().splitlines()
    assert version == f"sonosco_like {__version__}"
    assert len(sources.removeprefix("sources ")) == 16


def test_neither_python_nor_installed_packages_nor_ours_are_copied(modules):
    names = {path.parts[0].removesuffix(".py") for path in user_modules()}
    assert "kept_module" in names
    assert not names & {"json", "logging", "torch", "yaml", "pytest", "sonosco_like", "numpy"}


def test_code_that_changed_since_is_kept_beside_the_first_copy_and_named(modules, tmp_path, caplog):
    copy_code(tmp_path / "run")
    assert copy_code(tmp_path / "run", step=40) == []
    (modules / "kept_package" / "inner.py").write_text("value = 2\n")
    with caplog.at_level(logging.WARNING):
        copy_code(tmp_path / "run", step=40)
    code = tmp_path / "run" / "code"
    assert "The code has changed since the start of the run: kept_package/inner.py." in caplog.text
    assert (code / "kept_package" / "inner.py").read_text() == "value = 1\n"
    assert (code / "from-step-00000040" / "kept_package" / "inner.py").read_text() == "value = 2\n"


def test_a_script_is_copied_under_its_own_name(tmp_path):
    script = tmp_path / "my_script.py"
    text = "from pathlib import Path\nfrom sonosco_like.training.provenance import copy_code\ncopy_code(Path('run'))\n"
    script.write_text(text)
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True)
    assert (tmp_path / "run" / "code" / "my_script.py").read_text() == text
