"""`train --resume auto` and `must`: the config counts, also for a run that was begun already."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tiny import tiny_config

from sonosco_like import load
from sonosco_like.cli import run
from sonosco_like.serialization import base_file

CONFIG = tiny_config("""
  callbacks:
  - {class: LogMeasures, every: 1ba}
  - {class: ModelCheckpoint, every: 3ba, keep_last: 2}
""")
IMPORT = ["--import", "tiny"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, logging_restored):
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*arguments: str, resume: str = "auto") -> int:
    return run(["train", "--config", "tiny.yaml", "--run-dir", "run", "--resume", resume, *IMPORT, *arguments])


def edit(folder, old: str, new: str) -> None:
    text = (folder / "tiny.yaml").read_text()
    assert old in text
    (folder / "tiny.yaml").write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("resume", ["auto", "must"])
def test_an_edit_that_may_be_is_taken_over_and_said(folder, caplog, resume):
    caplog.set_level("INFO")
    assert train() == 0
    edit(folder, "epochs: 2", "epochs: 3")
    edit(folder, "lr: 0.01", "lr: 0.005")
    assert train(resume=resume) == 0
    assert "changed from step 10 on: trainer.epochs: 2 -> 3" in caplog.text
    assert "changed from step 10 on: trainer.optimizer.lr: 0.01 -> 0.005" in caplog.text
    assert load(folder / "run" / "final").global_step == 15
    edit(folder, "epochs: 3", "epochs: 2")
    edit(folder, "lr: 0.005", "lr: 0.02")
    assert train() == 0
    changes = yaml.safe_load((folder / "run" / "changes.yaml").read_text())
    assert changes[-1]["changed"]["trainer.epochs"] == {"from": "3", "to": "2"}, "an edit that is taken back counts too"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("class: tiny.Net}", "class: tiny.Net, size: 5}", "trainer.model.size"),
        ("class: AdamW", "class: SGD", "trainer.optimizer.class"),
        ("seed: 7", "seed: 8", "seed"),
        ("name: tiny", "name: another", "name"),
        (
            "- {class: LogMeasures, every: 1ba}",
            "- {class: LRMonitor}\n  - {class: LogMeasures}",
            "trainer.callbacks: [LogMeasures, ModelCheckpoint] -> [LRMonitor, LogMeasures, ModelCheckpoint]",
        ),
        ("  - {class: LogMeasures, every: 1ba}\n", "", "trainer.callbacks"),
        ("  val_data_loader: {class: tiny.Sums, batches: 2}\n", "", "trainer.val_data_loader"),
    ],
)
@pytest.mark.parametrize("resume", ["auto", "must"])
def test_an_edit_that_may_not_be_is_refused_with_the_way_out(folder, capfd, old, new, said, resume):
    assert train() == 0
    before = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
    capfd.readouterr()
    edit(folder, old, new)
    assert train(resume=resume) == 2
    err = capfd.readouterr().err
    assert f"tiny.yaml: {said}" in err
    assert "--run-dir run-2" in err
    assert "--set init_from=run" in err
    assert {path: path.read_bytes() for path in before} == before
    if "model" not in said:  # the data has four numbers
        assert run(["train", "--config", "tiny.yaml", "--run-dir", "run-2", "--resume", "auto", *IMPORT]) == 0


def test_another_spelling_is_no_change_and_a_finished_run_says_so(folder, capfd):
    assert train() == 0
    text = CONFIG.replace("name: tiny\nseed: 7\n", "# a comment\nseed: 7.0\nname: 'tiny'\n".replace("7.0", "7"))
    text = text.replace("lr: 0.01", "weight_decay: 0.01, lr: 1.0e-2").replace(
        "epochs: 2", "epochs: 2\n  precision: float32"
    )
    (folder / "tiny.yaml").write_text(text)
    assert train() == 0
    out, err = capfd.readouterr()
    assert "This run was finished already: 2 of 2 epochs are done." in out
    assert "->" not in out + err
    assert not (folder / "run" / "changes.yaml").exists()


def test_what_was_changed_beside_the_config_stays(folder):
    assert train() == 0
    assert run(["resume", "run", "--set", "trainer.epochs=3", *IMPORT]) == 0
    assert train() == 0
    assert load(folder / "run" / "final").epochs == 3


def test_a_run_of_which_nothing_was_saved_begins_with_the_config_as_it_is_now(folder, capfd):
    edit(folder, "every: 3ba", "every: 99ba")
    edit(folder, "lr: 0.01", "lr: 1.0e+38")
    assert train() == 1
    for name in ("checkpoints", "final"):
        assert not list((folder / "run" / name).glob("*"))
    edit(folder, "lr: 1.0e+38", "lr: 0.01")
    edit(folder, "class: tiny.Net}", "class: tiny.Net, size: 4}")
    assert train() == 0
    assert "lr: 0.01" in (folder / "run" / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("command", "config"),
    [
        (["check", "--config", "tiny.yaml", "--open", "none"], "tiny.yaml"),
        (["train", "--config", "tiny.yaml", "--run-dir", "new", "--set", "trainer.epochs=1"], "tiny.yaml"),
        (["train", "--config", "tiny.yaml", "--run-dir", "run", "--resume", "auto"], "tiny.yaml"),
        (["resume", "run", "--set", "trainer.epochs=3", "--set", "seed=7"], "config.yaml"),
    ],
    ids=["check", "train", "train-auto", "resume"],
)
def test_a_command_parses_the_text_of_its_config_once(folder, monkeypatch, command, config):
    assert train() == 0
    sources = []
    parse = base_file.parse
    monkeypatch.setattr(base_file, "parse", lambda text, source: sources.append(source) or parse(text, source))
    assert run([*command, *IMPORT]) == 0
    assert [Path(source).name for source in sources].count(config) == 1
