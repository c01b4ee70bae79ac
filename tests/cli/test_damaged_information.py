"""Files of a run that are only information: damaged, they are a warning at most; and what killed saves left goes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from tiny import tiny_config

from sonosco_like import load
from sonosco_like.cli import run
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.training.verification import compare_runs

CONFIG = tiny_config("""
  callbacks:
  - {class: LogMeasures, every: 1ba}
  - {class: MetricsFile}
  - {class: TensorBoardCallback}
  - {class: HistoryPlots}
  - {class: ModelCheckpoint, every: 3ba, keep_last: 2, monitor: val_loss}
""")
IMPORT = ["--import", "tiny"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run of two starts, so that it has changes."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.yaml").write_text(CONFIG)
    config = ["--config", str(folder / "tiny.yaml"), "--run-dir", str(folder / "run")]
    assert run(["train", *config, "--set", "trainer.epochs=1", *IMPORT]) == 0
    assert run(["resume", str(folder / "run"), "--set", "trainer.epochs=2", *IMPORT]) == 0
    return folder / "run"


@pytest.fixture
def folder(finished, tmp_path, logging_restored) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def spoil(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"\xff\xfe\0: [" + content[len(content) // 2 :])


DAMAGES = {"bad bytes": spoil, "empty": lambda path: path.write_bytes(b"")}
NAMES = [
    "environment.yaml", "status.yaml", "changes.yaml", "run_id", "latest", "best", "lock", "metrics.jsonl", "logs",
    "code", "tensorboard", "plots",
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_goes_on_whatever_became_of_what_is_only_information(folder, name, damage, capsys):
    path = folder / name
    for each in [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]:
        DAMAGES[damage](each)
    assert run(["resume", str(folder), "--set", "trainer.epochs=3", *IMPORT]) == 0, capsys.readouterr().err
    assert load(folder / "final").global_step == 15
    assert yaml.safe_load((folder / "status.yaml").read_text())["state"] == "finished"
    assert yaml.safe_load((folder / "changes.yaml").read_text())[-1]["set"] == ["trainer.epochs=3"]


@pytest.mark.parametrize("name", ["environment.yaml", "status.yaml", "logs", "code"])
def test_a_run_goes_on_without_them_or_with_something_else_in_their_place(folder, name, capsys):
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if path.suffix:
        path.mkdir()
    else:
        path.write_text("a file\n")
    assert run(["resume", str(folder), "--set", "trainer.epochs=3", *IMPORT]) == 0, capsys.readouterr().err
    assert load(folder / "final").global_step == 15


def test_each_damage_is_a_warning_once(folder, monkeypatch, caplog):
    monkeypatch.chdir(folder.parent)
    newest = Checkpoints(folder).newest()
    for path in (
        folder / "environment.yaml",
        folder / "changes.yaml",
        folder / "run_id",
        newest / "tensors.safetensors",
    ):
        spoil(path)
    (folder / "tiny.yaml").write_text(CONFIG)
    config = ["--config", "run/tiny.yaml", "--run-dir", "run", "--resume", "auto"]
    assert run(["train", *config, "--set", "trainer.epochs=3", *IMPORT]) == 0
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    for damaged in (
        "environment.yaml cannot be read",
        "changes.yaml cannot be read",
        "run_id was damaged",
        newest.name,
    ):
        assert sum(damaged in warning for warning in warnings) == 1, damaged


def test_what_killed_saves_left_is_cleared_at_the_next_start_and_nothing_else(folder):
    newest = Checkpoints(folder).newest()
    (folder / "checkpoints" / ".step-00000099.saving").mkdir()
    (folder / "checkpoints" / ".step-00000099.saving" / "trainer.yaml").write_text("half")
    shutil.copytree(newest, folder / "checkpoints" / f".{newest.name}.previous")
    shutil.copytree(folder / "final", folder / ".final.previous")
    (folder / ".final.saving").mkdir()
    (folder / ".status.yaml.saving").write_text("half")
    (folder / "code" / ".mine.py.saving").write_text("half")
    ours = set(folder.rglob(".*"))
    foreign = [folder / ".notes.saving", folder / "checkpoints" / ".mine.previous", folder / "checkpoints" / ".git"]
    for path in foreign:
        path.mkdir()
        (path / "precious.txt").write_text("kept")
    (folder / "checkpoints" / ".step-00000098.saving").mkdir()
    (folder / "checkpoints" / ".step-00000098.saving" / "precious.txt").write_text("kept")
    assert len(ours) == 6
    assert run(["resume", str(folder), *IMPORT]) == 0
    assert not any(path.exists() for path in ours)
    assert all((path / "precious.txt").read_text() == "kept" for path in foreign)
    assert (folder / "checkpoints" / ".step-00000098.saving" / "precious.txt").exists()


def test_a_link_among_what_killed_saves_left_is_refused_and_not_followed(folder, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious.txt").write_text("kept")
    link = folder / "checkpoints" / ".step-00000007.saving"
    link.symlink_to(tmp_path / "elsewhere")
    assert run(["resume", str(folder), *IMPORT]) == 2
    assert f"{link} is a link to {tmp_path / 'elsewhere'}" in capsys.readouterr().err
    assert (tmp_path / "elsewhere" / "precious.txt").read_text() == "kept"


def test_a_checkpoint_that_was_being_replaced_is_put_back(folder, finished):
    newest = Checkpoints(folder).newest()
    newest.rename(newest.with_name(f".{newest.name}.previous"))
    (folder / "final").rename(folder / ".final.previous")
    assert run(["resume", str(folder), *IMPORT]) == 0
    assert newest.is_dir()
    assert not list(folder.rglob(".*"))
    assert compare_runs(finished, folder) == []
