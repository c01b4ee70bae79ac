"""What README.md and docs/ show can be used as it stands: Python runs, YAML is read, commands and options exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest
from command_lines import check_command
from page_blocks import NOT_RUN, PAGES, REPOSITORY, Block, blocks_of
from trained_runs import digits

from sonosco_like import Experiment, ModelTrainer, loads
from sonosco_like.errors import ConfigError
from sonosco_like.serialization.document import MappingNode, parse

__all__ = ["digits"]  # the fixture

PARSED_ONLY = {
    ("docs/format.md", "schedulers"): "names functions of a package that is not there",
    ("docs/format.md", "format"): "is a file of a checkpoint",
    ("docs/writing-a-corpus.md", "corpus"): "names a class that the page defines",
    ("docs/writing-a-callback.md", "callbacks"): "names a class that the page defines",
    ("docs/writing-a-model.md", "model"): "names a class that the page defines",
}
SHELL = ("sh", "console", "")  # a fence without a language shows files, commands and what they print
LANGUAGES = {"python", "yaml", "json", "text", *SHELL}
WITH_PYTHON = [page for page in PAGES if blocks_of(page, "python")]
YAML = [block for page in PAGES for block in blocks_of(page, "yaml")]
COMMAND = re.compile(r"^(?:\$ )?(?:sonosco|\S.* -m sonosco_like) (.+)$", re.MULTILINE)


@pytest.fixture
def workplace(request, tmp_path):
    """What pages speak of: a folder with configs and, for those who name them, a run, its corpus and a recording."""

    def prepare(page: str) -> Path:
        shutil.copytree(REPOSITORY / "configs", tmp_path / "configs")
        python = "".join(block.text for block in blocks_of(page, "python"))
        if re.search(r"runs/las|corpus/\w+\.jsonl|call\.wav", python):
            trained = request.getfixturevalue("digits")
            shutil.copytree(trained.corpus, tmp_path / "corpus")
            shutil.copytree(trained.run, tmp_path / "runs" / "las")
            shutil.copy(trained.audio(trained.rows()[0]), tmp_path / "call.wav")
        return tmp_path

    return prepare


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs(page, workplace):
    command = [sys.executable, str(Path(__file__).with_name("page_blocks.py")), page]
    done = subprocess.run(command, cwd=workplace(page), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_python_that_is_not_run_is_rare():
    texts = [block.text for page in PAGES for block in blocks_of(page, "python")]
    assert sum(needed in text for needed in NOT_RUN for text in texts) <= 1


def test_no_block_escapes_by_the_name_of_its_language():
    assert {block.language for page in PAGES for block in blocks_of(page)} <= LANGUAGES


def keys_of(node) -> set[str]:
    assert isinstance(node, MappingNode), "An excerpt of a config is a mapping."
    return {key.value for key, _ in node.value}


def owner_of(keys: set[str]) -> type | None:
    """Whose fields the keys of an excerpt are, if it does not say so with `class`."""
    if "class" in keys:
        return None
    for owner in (ModelTrainer, Experiment):
        if keys <= {field.name for field in fields(owner)}:
            return owner
    raise AssertionError(f"Neither an experiment nor a trainer has the fields {sorted(keys)}.")


def keys_parsed_only(page: str, keys: set[str]) -> set[tuple[str, str]]:
    return {(page, key) for key in keys} & PARSED_ONLY.keys()


def problems_of(block: Block) -> list[str]:
    """What is wrong with an excerpt of a config, but for what it leaves out of an experiment or a trainer."""
    node = parse(block.text, block.place)
    keys = keys_of(node)
    if keys_parsed_only(block.page, keys):
        return []
    try:
        loads(block.text, owner_of(keys), source=block.place)
    except ConfigError as error:
        return [str(each) for each in error.problems if not is_left_out(each.message)]
    return []


def is_left_out(message: str) -> bool:
    return message.startswith(("Experiment needs this field", "ModelTrainer needs this field"))


@pytest.mark.parametrize("block", YAML, ids=[block.place for block in YAML])
def test_the_yaml_of_a_page_is_a_config_or_a_part_of_one(block):
    assert problems_of(block) == []


def test_no_exception_is_left_over():
    met = [keys_parsed_only(block.page, keys_of(parse(block.text, block.place))) for block in YAML]
    assert set().union(*met) == PARSED_ONLY.keys()


@pytest.mark.parametrize("wrong", ["calbacks: []", "decoder: {class: GreedyCTC}", "saver: {on_failure: wait}"])
def test_wrong_yaml_would_be_noticed(wrong):
    with pytest.raises(AssertionError):
        assert problems_of(Block("docs/none.md", 1, "yaml", wrong)) == []


def commands_of(page: str) -> list[str]:
    """Arguments of `sonosco` in the blocks of a page; what follows two blanks is a remark."""
    text = "\n".join(re.sub(r"\s*\\\n\s*", " ", block.text) for block in blocks_of(page, *SHELL))
    return [re.split(r"\s{2,}|\s[>|#]|\s&&", line)[0] for line in COMMAND.findall(re.sub(r"(?m)^ +", "", text))]


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)])
def test_the_commands_of_a_page_exist_with_their_options(page):
    for line in commands_of(page):
        check_command(line)


@pytest.mark.parametrize(
    "wrong",
    [
        "trian --config x",
        "train --konfig x",
        "train",
        "diff a",
        "diff a b c",
        "data synth d --kind verses",
        "data nope",
    ],
)
def test_wrong_commands_would_be_noticed(wrong):
    with pytest.raises((click.ClickException, AssertionError)):
        check_command(wrong)


def test_make_targets_that_pages_name_exist():
    makefile = (REPOSITORY / "Makefile").read_text()
    for page in PAGES:
        text = "\n".join(block.text for block in blocks_of(page, *SHELL))
        for target in re.findall(r"^(?:\$ )?make ([\w-]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page}: there is no `make {target}`."


def test_the_index_links_every_page():
    index = (REPOSITORY / "docs" / "index.md").read_text()
    pages = {path.relative_to(REPOSITORY / "docs").as_posix() for path in (REPOSITORY / "docs").rglob("*.md")}
    assert set(re.findall(r"\]\(([\w/.-]+\.md)\)", index)) == pages - {"index.md"}
