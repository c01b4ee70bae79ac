"""Dockerfile and docker-compose.yaml can be followed: what they copy exists, and so do the commands they run.

There is no Docker engine in the tests, so they are read, not built.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from command_lines import check_command
from pip._internal.commands import create_command

PROJECT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((PROJECT / "docker-compose.yaml").read_text(encoding="utf-8"))
SETUP = (PROJECT / "setup.py").read_text(encoding="utf-8")
MAKEFILE = (PROJECT / "Makefile").read_text(encoding="utf-8")
OF_THE_SYSTEM = {"apt-get", "useradd", "install", "rm"}


@dataclass
class Stage:
    """What is between one FROM and the next."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """The arguments of every instruction of one kind, in their order."""
        return [arguments for instruction, arguments in self.instructions if instruction == word]

    def commands(self) -> list[list[str]]:
        """Every command of a RUN, as words."""
        return [shlex.split(line) for each in self.all("RUN") for line in each.split("&&")]


def read_dockerfile(text: str) -> tuple[dict[str, str], dict[str, Stage]]:
    """The arguments before the first stage, and the stages by name."""
    lines = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", text)).splitlines()
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    for line in filter(str.strip, lines):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.split()
            stages[name] = Stage(name, base)
        elif stages:
            list(stages.values())[-1].instructions.append((word, rest.strip()))
        else:
            assert word == "ARG", f"{line!r} is before the first stage"
            arguments.update([rest.split("=", 1)])
    return arguments, stages


ARGUMENTS, STAGES = read_dockerfile((PROJECT / "Dockerfile").read_text(encoding="utf-8"))


def extras_of_setup() -> set[str]:
    assigned = [node for node in ast.parse(SETUP).body if isinstance(node, ast.Assign)]
    (extras,) = [node.value for node in assigned if node.targets[0].id == "EXTRAS"]
    return set(ast.literal_eval(extras))


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def problem_of(words: list[str]) -> str:
    """Why a command of the image cannot be run, as far as it can be known without running it."""
    program, *arguments = words
    if program == "pip":
        options, (wanted,) = create_command("install").parse_args(arguments[1:])
        return "" if all((PROJECT / each).is_file() for each in options.constraints) and wanted else "no constraints"
    if program == "make":
        missing = [target for target in arguments if not re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)]
        return f"there is no target {missing}" if missing else ""
    if program == "python":
        return "" if arguments[:2] == ["-m", "venv"] else "only `python -m venv` is expected"
    return "" if program in OF_THE_SYSTEM else "this program is not known here"


def test_every_command_of_the_image_exists_with_its_options():
    commands = [words for stage in STAGES.values() for words in stage.commands()]
    commands += [json.loads(each) for each in STAGES["test"].all("CMD")]
    found = {" ".join(words): problem_of(words) for words in commands}
    assert {words: problem for words, problem in found.items() if problem} == {}
    assert len(found) >= 7
    (entry,), (default,) = STAGES["run"].all("ENTRYPOINT"), STAGES["run"].all("CMD")
    assert json.loads(entry) == ["sonosco"]
    check_command(shlex.join(json.loads(default)))


def test_what_is_copied_exists_and_is_not_kept_out():
    ignored = (PROJECT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {".git", ".venv", "runs", "data"} <= set(ignored), "what is large or private stays out of the image"
    names = list(STAGES)
    for stage in STAGES.values():
        for line in stage.all("COPY"):
            *sources, _ = [word for word in line.split() if not word.startswith("--")]
            (origin,) = re.findall(r"--from=(\w+)", line) or [None]
            if origin is None:
                assert [each for each in sources if not (PROJECT / each).exists() or each in ignored] == [], line
            else:
                assert names.index(origin) < names.index(stage.name), line


def test_the_install_copies_what_setup_reads_and_installs_extras_that_exist():
    copied = {word for line in STAGES["installed"].all("COPY") for word in line.split()[:-1]}
    assert copied == {"setup.py", "constraints.txt", "README.md", "LICENSE", "NOTICE", "sonosco_like"}
    arguments = dict(each.split("=", 1) for each in STAGES["installed"].all("ARG"))
    extras = set(arguments["EXTRAS"].split(","))
    assert extras <= extras_of_setup()
    assert "synth" in extras, "the default command of docker-compose.yaml makes its corpus"
    assert "-c constraints.txt" in MAKEFILE, "the tests of the image are installed with the same constraints"


def test_the_image_has_the_python_of_the_package():
    python = version(ARGUMENTS["PYTHON"])
    assert python >= version(re.search(r'python_requires=">=([\d.]+)"', SETUP)[1])
    pinned = re.findall(r'python_version >= "([\d.]+)"', (PROJECT / "constraints.txt").read_text())
    assert python == max(map(version, pinned)), "constraints.txt was made with another Python than the image has"
    assert [stage.base for stage in STAGES.values()] == [*["python:${PYTHON}-slim"] * 2, "base", "base"]


def test_another_build_of_torch_can_be_asked_for():
    """pip reads the variable, which an argument is while the image is built."""
    for name in ("installed", "test"):
        words = [f"{word} {arguments}" for word, arguments in STAGES[name].instructions]
        (install,) = [place for place, each in enumerate(words) if re.match(r"RUN (pip|make) install", each)]
        assert "ARG PIP_EXTRA_INDEX_URL=" in words[:install], name


def test_the_stage_that_runs_is_the_last_one_small_and_not_root():
    assert list(STAGES) == ["installed", "base", "test", "run"]
    assert [STAGES[name].all("USER")[-1] for name in ("base", "test")] == ["sonosco", "sonosco"]
    assert {word for word, _ in STAGES["run"].instructions} == {"COPY", "ENV", "EXPOSE", "ENTRYPOINT", "CMD"}


def words_of(service: str) -> list[str]:
    return [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in COMPOSE["services"][service]["command"]]


def test_compose_trains_shows_and_serves_the_same_runs_to_this_machine_only():
    services = COMPOSE["services"]
    assert list(services) == ["train", "dashboard", "serve"]
    for name in services:
        check_command(shlex.join(words_of(name)))
        assert services[name]["volumes"] == services["train"]["volumes"]
    train, shown, served = map(words_of, services)
    assert (PROJECT / train[train.index("--config") + 1]).exists()
    run = train[train.index("--run-dir") + 1]
    assert shown[1] == Path(run).parts[0]
    assert served[1] == run
    for name, port in (("dashboard", shown[shown.index("--port") + 1]), ("serve", "5000")):
        assert services[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
        assert port in STAGES["run"].all("EXPOSE")[0].split()
    assert served[served.index("--token-file") + 1] == "/run/secrets/token"
    assert set(services["serve"]["secrets"]) == set(COMPOSE["secrets"])
    (inside,) = STAGES["base"].all("WORKDIR")
    assert all(volume.split(":")[1].startswith(f"{inside}/") for volume in services["train"]["volumes"])


def test_wrong_instructions_would_be_noticed():
    for wrong in (["make", "instal"], ["pip", "install", "-c", "none.txt", "."], ["sonosko", "train"]):
        assert problem_of(wrong)
