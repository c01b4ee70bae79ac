"""A run folder of a stranger: nothing outside of it is written, cut or deleted, whatever in it is a link."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tiny import tiny_config

from sonosco_like.cli import run
from sonosco_like.errors import SonoscoError, UsageError
from sonosco_like.runs.checkpoints import find_checkpoint
from sonosco_like.runs.lock import only_process
from sonosco_like.runs.run_folder import WRITTEN
from sonosco_like.serialization import loads
from sonosco_like.training import Experiment

CALLBACKS = """
  callbacks:
  - {class: LogMeasures, every: 1ba}
  - {class: MetricsFile}
  - {class: CsvFile}
  - {class: TensorBoardCallback}
  - {class: HistoryPlots}
  - {class: RunReport}
  - {class: BenchmarkLog, monitor: val_loss}
  - {class: ModelCheckpoint, every: 3ba, keep_last: 1}
"""
IMPORT = ["--import", "tiny"]
BY_CALLBACKS = ("metrics.csv", "report.html", "benchmark.log")
FOLDERS = ("checkpoints", "final", "logs", "plots", "code", "tensorboard")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run that has done two epochs."""
    place = tmp_path_factory.mktemp("finished")
    (place / "tiny.yaml").write_text(tiny_config(CALLBACKS))
    assert run(["train", "--config", str(place / "tiny.yaml"), "--run-dir", str(place / "run"), *IMPORT]) == 0
    return place / "run"


@pytest.fixture
def stranger(finished, tmp_path, monkeypatch, restored_logging) -> Path:
    """A copy of the run, as someone else may have packed it."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def mine(tmp_path) -> Path:
    """A folder of the user's, with what a link in a run folder could aim at."""
    place = tmp_path / "mine"
    place.mkdir()
    (place / "thesis").write_text("ten years of work\n" * 100)
    for name in ("step-00000001", ".step-00000002.previous", "step-00000003"):
        (place / name).mkdir()
        (place / name / "state.yaml").write_text("mine")
    (place / "events.out.tfevents.1.sonosco").write_text("mine")
    return place


def contents(place: Path) -> dict[str, object]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(place.rglob("*"))}


def resume(*more: str) -> int:
    return run(["resume", "run", "--set", "trainer.epochs=4", *IMPORT, *more])


@pytest.mark.parametrize("name", [*WRITTEN, *BY_CALLBACKS])
@pytest.mark.parametrize("goal", ["file", "folder", "nothing"])
def test_a_link_in_place_of_what_a_run_writes_is_refused(stranger, mine, capsys, name, goal):
    before = contents(mine)
    place = stranger / name
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.symlink_to({"file": mine / "thesis", "folder": mine, "nothing": mine / "new"}[goal])
    code = resume()
    said = capsys.readouterr().err
    assert contents(mine) == before, said
    if name == "config.yaml" and goal != "file":
        assert (code, "it has no config.yaml" in said) == (2, True)
    else:
        assert code == 2
        assert f"{place} is a link" in said
        assert f"make the whole of {stranger} a link" in said


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_link_inside_of_a_folder_of_the_run_is_refused_if_it_leads_out_of_it(stranger, mine, capsys, folder):
    before = contents(mine)
    (stranger / folder).mkdir(exist_ok=True)
    (stranger / folder / "step-00000099").symlink_to(mine)
    assert resume() == 2
    assert "is a link" in capsys.readouterr().err
    assert contents(mine) == before


@pytest.mark.parametrize("name", [*WRITTEN, *BY_CALLBACKS])
def test_a_pipe_in_place_of_what_a_run_writes_is_refused_and_not_waited_for(stranger, capsys, name):
    place = stranger / name
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    os.mkfifo(place)
    assert resume() == 2
    said = capsys.readouterr().err
    assert "is a named pipe" in said or name == "config.yaml"


def test_a_hard_link_is_not_written_through(stranger, mine, capsys):
    """The files stay the user's: the run gets copies of its own."""
    shared = []
    for number, path in enumerate(sorted(path for path in stranger.rglob("*") if path.is_file())):
        if path.name != "lock":
            os.link(path, mine / f"shared-{number}")
            shared.append(path)
    before = contents(mine)
    assert resume() == 0, capsys.readouterr().err
    assert contents(mine) == before
    assert len(shared) > 15


def test_a_lock_that_is_a_hard_link_is_refused(stranger, mine, capsys):
    (stranger / "lock").unlink()
    os.link(mine / "thesis", stranger / "lock")
    assert resume() == 2
    assert "lock is a hard link" in capsys.readouterr().err
    assert (mine / "thesis").read_text().startswith("ten years")


@pytest.mark.parametrize(
    "name", [".config.yaml.saving", ".latest.saving", ".status.yaml.saving", ".metrics.jsonl.saving"]
)
def test_what_is_in_the_place_where_files_are_written_aside_is_not_written_to(stranger, mine, name):
    before = contents(mine)
    os.link(mine / "thesis", stranger / name)
    assert resume() == 0
    (stranger / name).unlink(missing_ok=True)
    (stranger / name).symlink_to(mine / "thesis")
    assert resume("--set", "trainer.epochs=5") == 0
    assert contents(mine) == before


def test_reading_a_run_whose_checkpoints_are_a_link_moves_nothing_there(stranger, mine):
    before = contents(mine)
    shutil.rmtree(stranger / "checkpoints")
    (stranger / "checkpoints").symlink_to(mine)
    (stranger / "final" / "state.yaml").unlink()
    with pytest.raises(SonoscoError):
        find_checkpoint(stranger / "latest")
    find_checkpoint(stranger)
    assert contents(mine) == before


def test_the_run_folder_itself_may_be_a_link(stranger, tmp_path):
    stranger.rename(tmp_path / "on another disk")
    (tmp_path / "run").symlink_to(tmp_path / "on another disk")
    assert resume() == 0


def test_links_between_neighbours_and_links_nobody_writes_to_are_no_harm(stranger, mine):
    (stranger / "notes").symlink_to(mine)
    (stranger / "tensorboard" / "newest").symlink_to("somewhere here")
    assert resume() == 0


def test_a_new_run_does_not_follow_links_in_a_folder_that_is_there(
    tmp_path, mine, monkeypatch, capsys, restored_logging
):
    monkeypatch.chdir(tmp_path)
    before = contents(mine)
    (tmp_path / "tiny.yaml").write_text(tiny_config(CALLBACKS))
    (tmp_path / "new").mkdir()
    for name in WRITTEN:
        (tmp_path / "new" / name).symlink_to(mine / "thesis" if name == "lock" else mine)
        assert run(["train", "--config", "tiny.yaml", "--run-dir", "new", *IMPORT]) == 2
        (tmp_path / "new" / name).unlink()
    assert contents(mine) == before
    assert run(["train", "--config", "tiny.yaml", "--run-dir", "new", *IMPORT]) == 0


@pytest.mark.parametrize("name", ["lock", "checkpoints"])
def test_the_lock_alone_refuses_too(tmp_path, mine, name):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / name).symlink_to(mine / "thesis")
    with pytest.raises(UsageError, match="is a link"), only_process(folder):
        pass
    assert (mine / "thesis").stat().st_size > 100


@pytest.mark.parametrize(
    "path",
    [
        "config.yaml", "./config.yaml", "CONFIG.yaml", "latest", "best", "lock", "status.yaml", "environment.yaml",
        "changes.yaml", "checkpoints", "checkpoints/step-00000003", "final", "final/state.yaml", "logs/x", "code/x.py",
        "..", "../x", "a/../../x", "/etc/x", "", ".", "./", ".hidden", "a/.hidden", "a\0b", "step_checksums.jsonl",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "kind", ["CsvFile", "MetricsFile", "TensorBoardCallback", "HistoryPlots", "RunReport", "ExportForInference"]
)
def test_a_callback_cannot_write_to_the_files_of_the_run_or_out_of_its_folder(kind, path):
    import tiny  # noqa: F401  (registers its classes)

    with pytest.raises(SonoscoError, match="`path` must"):
        loads(tiny_config(f"  callbacks:\n  - {{class: {kind}, path: {_quoted(path)}}}\n"), Experiment)


def _quoted(text: str) -> str:
    return '"' + text.replace("\0", "\\0") + '"'
