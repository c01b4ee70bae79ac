"""The core without the extra `synth` trains on own recordings, and says what is missing where speech is to be made."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from warm import warm_python

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
import matrix_parts

PROJECT = Path(__file__).parents[2]
SETUP = ast.parse((PROJECT / "setup.py").read_text(encoding="utf-8"))
SMOKE = PROJECT / "configs" / "smoke.yaml"
REMEDY = "Install it with: pip install 'sonosco_like[synth]'"


@pytest.fixture
def sonosco(tmp_path):
    """Run a command where espeakng_loader is not installed."""

    def run(*args: object):
        lines = (
            "import sys; sys.modules['espeakng_loader'] = None",
            "from sonosco_like.cli import main",
            f"main({[str(arg) for arg in args]!r})",
        )
        command = [*warm_python(), "-c", "\n".join(lines)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)

    return run


def test_it_trains_on_own_recordings_with_a_config_that_would_make_some(sonosco, tmp_path):
    matrix_parts.make_corpus(tmp_path / "noise")
    own = ("--train", tmp_path / "noise" / "train.jsonl", "--val", tmp_path / "noise" / "val.jsonl")
    done = sonosco("train", "--config", SMOKE, *own, "--run-dir", "run", "--set", "trainer.epochs=1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "final" / "tensors.safetensors").exists()


@pytest.mark.parametrize(
    "command", [("data", "synth", "corpus"), ("train", "--config", SMOKE), ("check", "--config", SMOKE)]
)
def test_where_speech_is_to_be_made_one_sentence_says_what_to_install(command, sonosco, tmp_path):
    done = sonosco(*command)
    assert done.returncode == 2
    assert REMEDY in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "corpus").exists()
    assert not (tmp_path / "data").exists()


def test_a_corpus_that_is_there_needs_no_voices(sonosco, tmp_path):
    matrix_parts.make_corpus(tmp_path / "noise")
    for split in ("val", "test"):
        path = tmp_path / "noise" / f"{split}.jsonl"
        path.write_text((tmp_path / "noise" / "train.jsonl").read_text())
    changes = [f"corpus.folder={tmp_path / 'noise'}"]
    changes += [
        f"trainer.{part}_data_loader.dataset.manifest={tmp_path / 'noise'}/{part}.jsonl" for part in ("train", "val")
    ]
    done = sonosco("check", "--config", SMOKE, *(word for change in changes for word in ("--set", change)))
    assert done.returncode == 0, done.stderr


def requirements(name: str) -> list[str]:
    (call,) = [node.value for node in SETUP.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    (found,) = [keyword.value for keyword in call.keywords if keyword.arg == name]
    return ast.literal_eval(found)


def test_only_the_extra_brings_the_library_and_make_train_installs_it():
    assert "espeak" not in json.dumps(requirements("install_requires"))
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    stamp = re.search(r"^train: \$\((\w+)\)", makefile, re.MULTILINE)[1]
    recipe = re.search(rf"^\$\({stamp}\):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
    assert "-e '.[synth]'" in recipe


def test_every_install_takes_the_tested_versions():
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"pip install(.*)", makefile) == [" --disable-pip-version-check -c constraints.txt"]


def test_the_notice_names_the_library_its_license_and_its_source():
    notice = (PROJECT / "NOTICE").read_text(encoding="utf-8")
    for words in ("eSpeak NG", "GNU General Public License, version 3", "https://github.com/espeak-ng/espeak-ng"):
        assert words in notice
    assert "NOTICE" in (PROJECT / "README.md").read_text(encoding="utf-8")
