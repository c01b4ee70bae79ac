"""What a path given to `evaluate` and `transcribe` stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import make_trainer

from sonosco_like import save
from sonosco_like.errors import UsageError
from sonosco_like.runs.checkpoints import checkpoints_of, find_checkpoint
from sonosco_like.runs.run_folder import name_of, step_of


def saved(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "state.yaml").touch()
    return path


@pytest.fixture
def run(tmp_path) -> Path:
    """A run with three checkpoints."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    for step in (5, 20, 100):
        saved(tmp_path / "run" / "checkpoints" / f"step-{step:08d}")
    return tmp_path / "run"


def test_of_an_unfinished_run_the_newest_checkpoint_is_taken(run):
    assert find_checkpoint(run) == run / "checkpoints" / "step-00000100"


def test_of_a_finished_run_the_final_one_is_taken(run):
    assert find_checkpoint(run) != saved(run / "final")
    assert find_checkpoint(run) == run / "final"


def test_the_best_one_comes_before_the_final_one(run):
    saved(run / "final")
    (run / "best").write_text("checkpoints/step-00000020\n")
    assert find_checkpoint(run) == run / "checkpoints" / "step-00000020"


def test_a_checkpoint_whose_replacement_was_cut_off_is_put_back(run):
    newest = run / "checkpoints" / "step-00000100"
    newest.rename(newest.with_name(".step-00000100.previous"))
    assert find_checkpoint(run) == newest
    assert newest.is_dir()


def test_checkpoints_go_by_their_steps_however_many_digits_they_have(run):
    saved(run / "checkpoints" / "step-100000000")
    saved(run / "checkpoints" / "step-7")
    assert [step_of(path) for path in checkpoints_of(run)] == [5, 20, 100, 100_000_000]
    assert name_of(100_000_000) == "step-100000000"


def test_a_pointer_to_what_is_gone_is_passed_over(run):
    (run / "best").write_text("checkpoints/step-00000021\n")
    assert find_checkpoint(run).name == "step-00000100"


def test_a_damaged_best_one_is_passed_over_and_named_but_not_if_it_was_asked_for(tmp_path, caplog):
    for step in (5, 20):
        save(make_trainer(), tmp_path / "checkpoints" / name_of(step))
    best = tmp_path / "checkpoints" / name_of(5)
    (tmp_path / "best").write_text(f"checkpoints/{best.name}\n")
    assert find_checkpoint(tmp_path) == best
    (best / "tensors.safetensors").write_bytes(b"torn")
    assert find_checkpoint(tmp_path).name == name_of(20)
    assert f"{best.name} is damaged and not used" in caplog.text
    assert find_checkpoint(best) == best, "whoever names it is told what is wrong with it"


def test_a_checkpoint_and_a_pointer_stand_for_themselves(run):
    (run / "latest").write_text("checkpoints/step-00000005\n")
    wanted = run / "checkpoints" / "step-00000005"
    assert find_checkpoint(wanted) == wanted
    assert find_checkpoint(str(run / "latest")) == wanted


def test_what_is_no_run_is_refused_with_a_remedy(run, tmp_path):
    with pytest.raises(UsageError, match="There is no run or checkpoint at"):
        find_checkpoint(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"config\.yaml is a file, not a run folder"):
        find_checkpoint(run / "config.yaml")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="neither a run folder nor a checkpoint"):
        find_checkpoint(tmp_path / "empty")
    (tmp_path / "empty" / "config.yaml").touch()
    with pytest.raises(UsageError, match="has no checkpoint yet"):
        find_checkpoint(tmp_path / "empty")
