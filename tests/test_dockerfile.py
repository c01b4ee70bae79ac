"""The image is kept in step with what it installs; there is no Docker engine in the tests, so it is read, not built."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml
from test_docs import check_command

PROJECT = Path(__file__).parents[1]
DOCKERFILE = (PROJECT / "Dockerfile").read_text(encoding="utf-8")
INSTRUCTIONS = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", DOCKERFILE))
STAGES = dict(re.findall(r"(?s)^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", INSTRUCTIONS, re.MULTILINE))
COMPOSE = yaml.safe_load((PROJECT / "docker-compose.yaml").read_text(encoding="utf-8"))
SETUP = (PROJECT / "setup.py").read_text(encoding="utf-8")


def extras_of_setup():
    tree = ast.parse(SETUP)
    (extras,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "EXTRAS"]
    return set(ast.literal_eval(extras))


def version(text):
    return tuple(map(int, text.split(".")))


def test_the_stages_end_with_the_one_that_runs():
    assert list(STAGES) == ["installed", "base", "test", "run"]


def test_the_image_has_the_python_of_the_package():
    python = version(re.search(r"^ARG PYTHON=([\d.]+)$", DOCKERFILE, re.MULTILINE)[1])
    assert python >= version(re.search(r'python_requires=">=([\d.]+)"', SETUP)[1])
    pinned = re.findall(r'python_version >= "([\d.]+)"', (PROJECT / "constraints.txt").read_text())
    assert python == max(map(version, pinned)), "constraints.txt was made with another Python than the image has"
    assert re.findall(r"^FROM (python\S+)", INSTRUCTIONS, re.MULTILINE) == ["python:${PYTHON}-slim"] * 2


def test_what_is_installed_is_what_the_constraints_say_and_the_extras_exist():
    (install,) = re.findall(r"^RUN pip install .*$", STAGES["installed"], re.MULTILINE)
    assert "--constraint constraints.txt" in install
    extras = set(re.search(r"^ARG EXTRAS=(\S+)$", STAGES["installed"], re.MULTILINE)[1].split(","))
    assert extras <= extras_of_setup()
    assert "synth" in extras, "the default command of docker-compose.yaml makes its corpus"


@pytest.mark.parametrize("stage", ["installed", "test"])
def test_another_build_of_torch_can_be_asked_for(stage):
    """pip reads the variable, which an argument is while the image is built."""
    before, installing = re.split(r"^RUN (?:pip|make) install", STAGES[stage], flags=re.MULTILINE)
    assert re.search(r"^ARG PIP_EXTRA_INDEX_URL=$", before, re.MULTILINE), installing


def test_what_the_install_copies_is_what_setup_reads():
    copied = set(" ".join(re.findall(r"^COPY (.*) \S+$", STAGES["installed"], re.MULTILINE)).split())
    assert copied == {"setup.py", "constraints.txt", "README.md", "LICENSE", "NOTICE", "sonosco_like"}
    assert all((PROJECT / name).exists() for name in copied)


def test_the_makefile_installs_the_tests_of_the_image_with_the_same_constraints():
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"\bmake ([\w-]+)", re.sub(r"apt-get .*", "", STAGES["test"].replace('", "', " ")))
    assert targets == ["install", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert "-c constraints.txt" in makefile


@pytest.mark.parametrize("stage", ["base", "test"])
def test_no_stage_that_is_run_ends_as_root(stage):
    assert re.findall(r"^USER (\w+)$", STAGES[stage], re.MULTILINE)[-1] == "sonosco"


def test_the_stage_that_runs_is_small():
    assert "apt-get" not in STAGES["run"]
    assert "pip" not in STAGES["run"]
    assert "USER" not in STAGES["run"]
    assert 'ENTRYPOINT ["sonosco"]' in STAGES["run"]


def test_what_is_large_or_private_stays_out_of_the_image():
    ignored = (PROJECT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {".git", ".venv", "runs", "data"} <= set(ignored)


def test_compose_trains_with_a_command_that_exists_and_shows_the_same_runs():
    train, board = COMPOSE["services"]["train"], COMPOSE["services"]["tensorboard"]
    words = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in train["command"]]
    check_command(" ".join(words))
    assert (PROJECT / words[words.index("--config") + 1]).exists()
    assert train["volumes"] == board["volumes"]
    assert board["command"][board["command"].index("--logdir") + 1] == "runs"
    inside = re.search(r"^WORKDIR (\S+)$", STAGES["base"], re.MULTILINE)[1]
    assert all(volume.split(":")[1].startswith(f"{inside}/") for volume in train["volumes"])


def test_tensorboard_is_reached_from_this_machine_only():
    (port,) = COMPOSE["services"]["tensorboard"]["ports"]
    assert port == "127.0.0.1:6006:6006"
