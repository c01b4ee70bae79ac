"""A config of a stranger writes to the run folder and the working directory; elsewhere only if the user says so."""

from __future__ import annotations

import inspect
import json
import os
import re
import typing
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from tiny import tiny_config

import sonosco_like.catalog  # noqa: F401  (registers every class)
from sonosco_like.callbacks import CsvFile, MlflowDestination, WandbDestination
from sonosco_like.callbacks.destination import HasRunFile
from sonosco_like.cli import run
from sonosco_like.data.corpora.synth import SyntheticCorpus
from sonosco_like.errors import SonoscoError, UsageError
from sonosco_like.events import AbstractCallback
from sonosco_like.runs.remote_copy import RemoteCopy
from sonosco_like.serialization import REGISTRY, loads
from sonosco_like.training import Experiment
from sonosco_like.untrusted_files import allow_writing_only_to, allowed_places, check_writing

IMPORT = ["--import", "tiny"]


@pytest.fixture
def here(tmp_path, monkeypatch, restored_logging) -> Path:
    """The working directory, with a config in it; `elsewhere` is beside it."""
    for name in ("here", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("SONOSCO_ALLOW_WRITE", raising=False)
    (tmp_path / "here" / "tiny.yaml").write_text(tiny_config("", epochs=1))
    return tmp_path / "here"


def everything_below(place: Path) -> list[Path]:
    return sorted(place.rglob("*"))


def settings(place: str) -> dict[str, str]:
    """Every way in which a config names a place to write to."""
    return {
        "remote": f"remote={place}",
        "remote as a URL": f"remote=file://{place}",
        "remote, short": f"remote=file:{place}",
        "corpus": f"corpus={{class: SyntheticCorpus, folder: {place}, minutes: 0.1}}",
        "tracking": f"trainer.callbacks=[{{class: MlflowDestination, tracking_uri: {place}}}]",
        "tracking as a URL": f"trainer.callbacks=[{{class: MlflowDestination, tracking_uri: 'file://{place}'}}]",
        "database": f"trainer.callbacks=[{{class: MlflowDestination, tracking_uri: 'sqlite:///{place}/x.db'}}]",
        "folder": f"trainer.callbacks=[{{class: CsvFile, folder: {place}}}]",
    }


@pytest.mark.parametrize("name", settings(""))
@pytest.mark.parametrize("command", ["train", "check"])
def test_a_config_cannot_write_elsewhere(here, capsys, name, command):
    elsewhere = here.parent / "elsewhere"
    for place in (str(elsewhere / "new"), "../elsewhere/new", f"{here}/../elsewhere"):
        code = run([command, "--config", "tiny.yaml", *IMPORT, "--set", settings(place)[name]])
        said = capsys.readouterr().err
        assert code in (1, 2), said
        assert re.search(r"--allow-write \S*elsewhere", said), said
        assert everything_below(elsewhere) == []


def test_the_runs_that_verify_resume_starts_are_bound_too(here, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    command = ["verify-resume", "--kills", "0", "--config", "tiny.yaml", *IMPORT]
    command += ["--set", settings(f"{here.parent}/elsewhere/new")["corpus"]]
    assert run(command) == 1
    assert f"--allow-write {here.parent}/elsewhere/new" in capsys.readouterr().err
    assert run([*command, "--allow-write", f"{here.parent}/elsewhere"]) == 0
    assert (here.parent / "elsewhere" / "new" / "test.jsonl").is_file()


@pytest.mark.parametrize(
    "place",
    [
        "s3://bucket/runs", "https://example.org/x", "gs://b", "simplecache::file:///tmp/x", "ssh://host/x",
        "memory://a::file:///tmp/x", "zip://x::/tmp/a.zip", "~/x", "file://~/x", "/proc/self/x", "/",
    ],
)  # fmt: skip
def test_other_places_are_refused_with_the_option_that_allows_them(here, capsys, place):
    assert run(["train", "--config", "tiny.yaml", *IMPORT, "--set", f"remote='{place}'"]) == 2
    said = capsys.readouterr().err
    assert "outside the run folder and the working directory" in said
    with allow_writing_only_to([".", place]):
        check_writing(place, "remote")


@pytest.mark.parametrize("name", ["remote", "remote as a URL", "corpus"])
def test_what_the_user_allows_is_written(here, capsys, name, monkeypatch):
    elsewhere = here.parent / "elsewhere"
    command = ["train", "--config", "tiny.yaml", *IMPORT, "--set", settings(f"{elsewhere}/new")[name]]
    assert run([*command, "--run-dir", "one", "--allow-write", str(elsewhere)]) == 0, capsys.readouterr().err
    assert everything_below(elsewhere) != []
    other = [*command[:-1], settings(f"{elsewhere}/other")[name]]
    monkeypatch.setenv("SONOSCO_ALLOW_WRITE", f"/nowhere, {elsewhere}/other")
    assert run([*other, "--run-dir", "two"]) == 0, capsys.readouterr().err
    assert everything_below(elsewhere / "other") != []
    monkeypatch.delenv("SONOSCO_ALLOW_WRITE")
    if name != "corpus":  # which is there now, and not written to any more
        assert run(["resume", "two", *IMPORT]) == 2
        assert run(["resume", "two", *IMPORT, "--allow-write", str(elsewhere)]) == 0


def test_the_working_directory_and_the_run_folder_are_allowed(here):
    elsewhere = here.parent / "elsewhere"
    inside = {"corpus": settings("data/digits")["corpus"], "remote": settings("copies/of")["remote"]}
    both = [part for setting in inside.values() for part in ("--set", setting)]
    assert run(["train", "--config", "tiny.yaml", *IMPORT, *both, "--run-dir", str(elsewhere / "run")]) == 0
    assert (here / "data" / "digits" / "test.jsonl").is_file()
    assert (here / "copies" / "of" / "config.yaml").is_file()
    assert run(["resume", str(elsewhere / "run"), *IMPORT]) == 0


def test_a_link_in_the_working_directory_does_not_help(here, capsys):
    (here / "data").symlink_to(here.parent / "elsewhere")
    for setting in (settings("data/x")["corpus"], settings("data/x")["remote"]):
        assert run(["train", "--config", "tiny.yaml", *IMPORT, "--set", setting]) == 2
        assert f"which leads to {here.parent}/elsewhere/x by a link" in capsys.readouterr().err
    assert everything_below(here.parent / "elsewhere") == []


def test_a_corpus_does_not_take_the_folder_of_something_else(here, capsys):
    (here / "mine").mkdir()
    (here / "mine" / "train.jsonl").write_text("work of weeks")
    assert run(["train", "--config", "tiny.yaml", *IMPORT, "--set", settings("mine")["corpus"]]) == 2
    assert run(["train", "--config", "tiny.yaml", *IMPORT, "--set", settings(".")["corpus"]]) == 2
    assert (here / "mine" / "train.jsonl").read_text() == "work of weeks"
    (here / "corpus").mkdir()
    (here / "corpus" / "being_made.json").write_text("{}")
    (here / "corpus" / "audio").symlink_to(here / "mine")
    assert run(["train", "--config", "tiny.yaml", *IMPORT, "--set", settings("corpus")["corpus"]]) == 2
    assert "is a link" in capsys.readouterr().err


def test_a_corpus_that_was_half_made_is_made_again(here):
    corpus = SyntheticCorpus(folder=here / "data", minutes=0.1)
    corpus.prepare()
    (here / "data" / "test.jsonl").unlink()
    corpus.prepare()
    assert sorted(path.name for path in (here / "data").iterdir()) == [
        "audio", "made_with.json", "test.jsonl", "train.jsonl", "val.jsonl",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("allowed", "place", "said"),
    [
        ("s3://bucket/runs", "s3://bucket/runs/las", True),
        ("s3://bucket/runs", "s3://user:pw@bucket/runs/las", True),
        ("s3://bucket/runs/", "s3://bucket/runs", True),
        ("s3://", "s3://bucket/runs", True),
        ("*", "s3://bucket/runs", True),
        ("s3://bucket/runs", "s3://bucket/runs2", False),
        ("s3://bucket/runs", "s3://bucket/runs/../other", False),
        ("s3://bucket/runs", "s3://bucket/runs/%2e%2e/other", False),
        ("s3://bucket", "s3://bucket::file:///etc", False),
        ("http://localhost:5000", "http://localhost:5000@example.org/", False),
        ("http://localhost:5000", "http://localhost:5000?x=1", True),
        ("/data", "s3://data", False),
        ("s3://bucket", "/bucket", False),
        ("/data", "/data/../etc", False),
        ("/data", "file:///data/%2e%2e/etc", False),
        ("/data", "/database", False),
        ("file:///data", "/data/x", True),
        (".", "file://localhost/etc/x", False),
        (".", "local://host/etc/x", False),
        ("file://localhost/data", "file://localhost/data/x", True),
        (".", "memory://x", True),
    ],
)
def test_what_is_within_what(here, allowed, place, said):
    with allow_writing_only_to([allowed]):
        if said:
            check_writing(place, "remote")
        else:
            with pytest.raises(UsageError, match="--allow-write"):
                check_writing(place, "remote")
    check_writing(place, "remote")  # Python code writes where it wants to
    assert allowed_places() == ("*",)


def test_the_place_is_checked_where_it_is_written_to_as_well(here, tmp_path):
    remote, corpus = RemoteCopy(here, str(tmp_path / "elsewhere")), SyntheticCorpus(folder=tmp_path / "elsewhere" / "x")
    with allow_writing_only_to(["."]):
        with pytest.raises(UsageError, match="--allow-write"), remote:
            pass
        with pytest.raises(UsageError, match="--allow-write"):
            corpus.prepare()


# every class that a config can name

READ_ONLY = {
    "Experiment.init_from", "InitialWeights.run", "AudioDataset.manifest", "NoiseFiles.files",
    "Reverberation.responses", "NGramLanguageModel.path", "SentencePieceTokenizer.model", "WeightedManifest.manifest",
}  # fmt: skip
IN_THE_RUN = {"path"}  # of a callback that writes files: a name in the run folder, see test_hostile_run_folders.py
_SUSPICIOUS = re.compile(r"path|file|folder|dir|remote|url|uri|output|save|log_to|target_", re.IGNORECASE)


def _places() -> list[tuple[type, str]]:
    """Fields of registered classes whose type or name speaks of a place."""
    found = []
    for entry in REGISTRY.registrations():
        cls = entry.target
        ours = isinstance(cls, type) and is_dataclass(cls) and cls.__module__.startswith("sonosco_like.")
        if not ours or inspect.isabstract(cls):
            continue
        hints = typing.get_type_hints(cls)
        for each in fields(cls):
            hint = str(hints.get(each.name, ""))
            if "Path" in hint or ("str" in hint and _SUSPICIOUS.search(each.name)):
                found.append((cls, each.name))
    return found


def _write_to(cls: type, name: str, outside: Path) -> None:
    if cls is Experiment:
        loads(tiny_config("") + f"remote: {outside}\n", Experiment)
    else:
        cls(**{name: outside if "folder" in name else str(outside)}).prepare()


def test_every_field_that_names_a_place_is_known_to_be_read_or_refuses_to_write_elsewhere(here):
    outside, checked = here.parent / "elsewhere", set()
    for cls, name in _places():
        full = f"{cls.__name__}.{name}"
        if full in READ_ONLY or (
            name in IN_THE_RUN and issubclass(cls, AbstractCallback) and isinstance(cls(), HasRunFile)
        ):
            continue
        with allow_writing_only_to(["."]), pytest.raises(SonoscoError, match="--allow-write"):
            _write_to(cls, name, outside)
        checked.add(full)
    assert {
        "Experiment.remote",
        "SyntheticCorpus.folder",
        "MlflowDestination.tracking_uri",
        "CsvFile.folder",
    } <= checked
    assert everything_below(outside) == []


def test_services_are_places_too(here):
    with allow_writing_only_to(["."]):
        for uri in ("databricks", "databricks://profile", "uc:databricks", "http://localhost:5000", "postgresql://a/b"):
            with pytest.raises(UsageError, match="--allow-write"):
                MlflowDestination(tracking_uri=uri)
        with pytest.raises(UsageError, match=r"--allow-write wandb://sonosco"):
            WandbDestination(mode="online")
        WandbDestination()
        MlflowDestination()
        CsvFile()
    with allow_writing_only_to(["wandb://", "databricks://"]):
        WandbDestination(mode="online")
        MlflowDestination(tracking_uri="databricks")
    assert json.dumps(os.environ.get("SONOSCO_ALLOW_WRITE")) == "null"
