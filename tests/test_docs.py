"""What README.md and docs/ show can be used as it stands: Python runs, YAML is read, commands and options exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import fields
from pathlib import Path

import click
import pytest
from command_lines import check_command
from page_blocks import NOT_RUN, PAGES, REPOSITORY, Block, blocks_of
from trained_runs import digits
from warm import warm_python

from sonosco_like import Experiment, ModelTrainer, loads
from sonosco_like.errors import ConfigError
from sonosco_like.serialization import Document

__all__ = ["digits"]  # the fixture

PARSED_ONLY = {
    ("docs/format.md", "schedulers"): "names functions of a package that is not there",
    ("docs/format.md", "format"): "is a file of a checkpoint",
    ("docs/corpora.md", "corpus"): "names a class that the page defines",
    ("docs/writing-a-callback.md", "callbacks"): "names a class that the page defines",
    ("docs/writing-a-model.md", "model"): "names a class that the page defines",
}
SHELL = ("sh", "console", "")  # a fence without a language shows files, commands and what they print
LANGUAGES = {"python", "yaml", "json", "text", *SHELL}
WITH_PYTHON = [page for page in PAGES if blocks_of(page, "python")]
YAML = [block for page in PAGES for block in blocks_of(page, "yaml")]
COMMAND = re.compile(r"^(?:\$ )?(?:sonosco|\S.* -m sonosco_like) (.+)$", re.MULTILINE)


@pytest.fixture
def workplace(digits, tmp_path):
    """What a page speaks of: a folder with configs and, if it names them, a run, its corpus and a recording."""

    def prepare(page: str) -> Path:
        folder = tmp_path / Path(page).stem
        shutil.copytree(REPOSITORY / "configs", folder / "configs")
        python = "".join(block.text for block in blocks_of(page, "python"))
        if re.search(r"runs/las|corpus/\w+\.jsonl|call\.wav", python):
            shutil.copytree(digits.corpus, folder / "corpus")
            shutil.copytree(digits.run, folder / "runs" / "las")
            shutil.copy(digits.audio(digits.rows()[0]), folder / "call.wav")
        return folder

    return prepare


def test_the_python_of_every_page_runs(workplace):
    failed = []
    for page in WITH_PYTHON:
        command = [*warm_python(), str(Path(__file__).with_name("page_blocks.py")), page]
        done = subprocess.run(command, cwd=workplace(page), capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            failed.append(f"{page}:\n{done.stdout}\n{done.stderr}")
    assert not failed, "\n".join(failed)


def test_python_that_is_not_run_is_rare():
    texts = [block.text for page in PAGES for block in blocks_of(page, "python")]
    assert sum(needed in text for needed in NOT_RUN for text in texts) <= 1


def test_no_block_escapes_by_the_name_of_its_language():
    assert {block.language for page in PAGES for block in blocks_of(page)} <= LANGUAGES


def keys_of(block: Block) -> set[str]:
    content = Document.parse(block.text, block.place).get()
    assert isinstance(content, dict), "An excerpt of a config is a mapping."
    return set(content)


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
    keys = keys_of(block)
    if keys_parsed_only(block.page, keys):
        return []
    try:
        if "base" in keys:
            read_over_base(block)
        else:
            loads(block.text, owner_of(keys), source=block.place)
    except ConfigError as error:
        return [str(each) for each in error.problems if not is_left_out(each.message)]
    return []


def read_over_base(block: Block) -> None:
    """Build an excerpt with a base beside the one that is shipped."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(REPOSITORY / "configs" / "common.yaml", folder)
        (Path(folder) / "excerpt.yaml").write_text(block.text)
        Document.read(Path(folder) / "excerpt.yaml", source=block.place).build(Experiment)


def is_left_out(message: str) -> bool:
    return message.startswith(("Experiment needs this field", "ModelTrainer needs this field"))


def test_the_yaml_of_every_page_is_a_config_or_a_part_of_one():
    assert {block.place: found for block in YAML if (found := problems_of(block))} == {}


def test_no_exception_is_left_over():
    met = [keys_parsed_only(block.page, keys_of(block)) for block in YAML]
    assert set().union(*met) == PARSED_ONLY.keys()


def test_wrong_yaml_would_be_noticed():
    for wrong in ("decoder: {class: GreedyCTC}", "saver: {on_failure: wait}"):
        assert problems_of(Block("docs/none.md", 1, "yaml", wrong)) != [], wrong
    with pytest.raises(AssertionError, match="has the fields"):
        problems_of(Block("docs/none.md", 1, "yaml", "calbacks: []"))


def commands_of(page: str) -> list[str]:
    """Arguments of `sonosco` in the blocks of a page; what follows two blanks is a remark."""
    text = "\n".join(re.sub(r"\s*\\\n\s*", " ", block.text) for block in blocks_of(page, *SHELL))
    return [re.split(r"\s{2,}|\s[>|#]|\s&&", line)[0] for line in COMMAND.findall(re.sub(r"(?m)^ +", "", text))]


def problem_of_command(line: str) -> str:
    try:
        check_command(line)
    except (click.ClickException, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_the_commands_of_every_page_exist_with_their_options():
    lines = [(page, line) for page in PAGES for line in commands_of(page)]
    assert len(lines) > 40
    assert {each: found for each in lines if (found := problem_of_command(each[1]))} == {}


def test_wrong_commands_would_be_noticed():
    wrong = ["trian --config x", "train --konfig x", "train", "diff a", "diff a b c", "data synth d --kind verses"]
    for line in [*wrong, "data nope"]:
        assert problem_of_command(line), line


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
