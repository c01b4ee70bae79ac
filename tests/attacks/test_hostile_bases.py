"""`base:` of a config from a stranger: it reads nothing outside its folder, and ends, whatever it names."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest

from sonosco_like.cli import run
from sonosco_like.errors import ConfigError
from sonosco_like.serialization import Document


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "secret.yaml").write_text("password: hunter2\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    return inside


def read(folder: Path, text: str) -> Document:
    (folder / "top.yaml").write_text(text)
    return Document.read(folder / "top.yaml")


@pytest.mark.parametrize(
    "base",
    [
        "../secret.yaml",
        "sub/../../secret.yaml",
        "/etc/passwd",
        "'C:\\secret.yaml'",
        "'..\\secret.yaml'",
        "C:/secret.yaml",
        "''",
        "~",
        "3",
        "[common.yaml]",
        "{file: common.yaml}",
        '"a\\0b.yaml"',
        '"a\\nb.yaml"',
    ],
)
def test_a_base_outside_of_the_folder_is_refused(folder, base):
    with pytest.raises(ConfigError, match=r"top\.yaml:1: base: a base is the relative path of a file in the same"):
        read(folder, f"base: {base}\n")


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_link_that_leaves_the_folder_is_refused_and_its_target_is_not_shown(folder, link):
    if link == "file":
        (folder / "base.yaml").symlink_to("../secret.yaml")
    else:
        (folder / "sub").symlink_to("..")
    with pytest.raises(ConfigError, match="leads over a link") as error:
        read(folder, f"base: {'base.yaml' if link == 'file' else 'sub/secret.yaml'}\n")
    assert "hunter2" not in str(error.value)


def test_what_is_no_file_is_refused_at_once(folder):
    os.mkfifo(folder / "pipe.yaml")
    (folder / "dir.yaml").mkdir()
    begin = time.monotonic()
    for name in ("pipe.yaml", "dir.yaml", "nowhere.yaml"):
        with pytest.raises(ConfigError, match=r"top\.yaml:1: base: "):
            read(folder, f"base: {name}\n")
    assert time.monotonic() - begin < 10


def test_a_base_of_many_gigabytes_is_refused_unread(folder):
    with (folder / "huge.yaml").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="more than the"):
        read(folder, "base: huge.yaml\n")


def test_a_base_that_is_no_mapping_or_no_yaml_is_refused(folder):
    (folder / "list.yaml").write_text("- 1\n")
    (folder / "torn.yaml").write_text("a: [\n")
    with pytest.raises(ConfigError, match="holds a list, where a mapping is needed"):
        read(folder, "base: list.yaml\n")
    with pytest.raises(ConfigError, match=r"torn\.yaml:.* is not valid YAML"):
        read(folder, "base: torn.yaml\n")


@pytest.mark.parametrize("names", [["top"], ["a", "top"], ["a", "b", "c", "a"]])
def test_a_circle_is_refused_and_shown(folder, names):
    chain = ["top", *names]
    for name, base in itertools.pairwise(chain[1:]):
        (folder / f"{name}.yaml").write_text(f"base: {base}.yaml\n")
    with pytest.raises(ConfigError, match="refers back to itself"):
        read(folder, f"base: {chain[1]}.yaml\n")


def test_a_chain_without_end_is_refused(folder):
    for number in range(20):
        (folder / f"{number}.yaml").write_text(f"base: {number + 1}.yaml\n")
    with pytest.raises(ConfigError, match="at most 8 files"):
        read(folder, "base: 0.yaml\n")


def test_deep_nesting_is_refused_in_the_base_as_in_the_file(folder):
    (folder / "deep.yaml").write_text("a: " + "[" * 2000 + "]" * 2000)
    with pytest.raises(ConfigError, match="nested deeper"):
        read(folder, "base: deep.yaml\n")


def test_values_that_hold_themselves_are_merged_in_finite_time_and_refused_when_they_are_built(folder):
    (folder / "circle.yaml").write_text("class: Experiment\na: &a\n  b: *a\n")
    document = read(folder, "base: circle.yaml\na: &x {b: *x}\n")
    with pytest.raises(ConfigError):
        document.build()


def test_a_ladder_of_aliases_is_merged_in_time_that_grows_with_its_text(folder):
    steps = 3000
    rungs = "".join(f"- &r{n} {{next: *r{n - 1}, other: *r{n - 1}}}\n" for n in range(1, steps))
    (folder / "base.yaml").write_text(f"rungs:\n- &r0 {{}}\n{rungs}top: *r{steps - 1}\n")
    begin = time.monotonic()
    over = "base: base.yaml\nother: 1\ntop: &t {next: *t, other: {next: {}}}\n"
    with pytest.raises(ConfigError, match="are one object of the base"):
        read(folder, over)
    assert read(folder, over.replace(", other: {next: {}}", "")).get("other") == 1
    assert time.monotonic() - begin < 60


def test_the_command_line_says_it_in_one_line(folder, capsys):
    (folder / "top.yaml").write_text("base: ../secret.yaml\n")
    assert run(["train", "--config", str(folder / "top.yaml"), "--run-dir", str(folder / "run")]) == 2
    said = capsys.readouterr().err
    assert "top.yaml:1: base: a base is the relative path" in said
    assert "Traceback" not in said
    assert not (folder / "run").exists()
