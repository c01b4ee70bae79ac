"""The last lines of a run: its scores, and commands that work as they are printed."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from sonosco_like.cli import run
from sonosco_like.cli.train import program

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
import matrix_parts


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A complete small config with real audio, in the working directory."""
    monkeypatch.chdir(tmp_path)
    matrix_parts.make_corpus(tmp_path / "noise")
    (tmp_path / "config.yaml").write_text(matrix_parts.config_text(Path("noise"), "deepspeech2"))


def train(*more: str) -> list[str]:
    return ["train", "--config", "config.yaml", "--run-dir", "my run", "--import", "matrix_parts", *more]


def test_the_commands_that_a_finished_run_prints_work_as_they_are(config, capsys):
    assert run(train()) == 0
    done, score, head, *commands = capsys.readouterr().out.splitlines()[1:]
    assert re.fullmatch(r"done: my run, 3 epochs, 15 steps in \d+:\d\d", done)
    assert re.fullmatch(r"  val_wer: best [\d.]+ % at step \d+, last [\d.]+ %", score)
    assert head == "What you can do now:"
    evaluate, transcribe, look = (shlex.split(command) for command in commands)
    assert evaluate == ["sonosco", "evaluate", "my run", "--manifest", "noise/val.jsonl"]
    assert run([*evaluate[1:], "--import", "matrix_parts"]) == 0
    assert run([*transcribe[1:], "--import", "matrix_parts"]) == 0
    assert look == ["tensorboard", "--logdir", "my run"]
    assert list(Path("my run").glob("**/events.out.tfevents*"))


def test_the_test_set_is_the_one_to_evaluate(config, capsys):
    assert run(train("--test", "noise/train.jsonl", "--set", "trainer.epochs=1")) == 0
    assert "--manifest noise/train.jsonl" in capsys.readouterr().out


def test_a_test_manifest_beside_the_validation_manifest_is_preferred(config, capsys, tmp_path):
    (tmp_path / "noise" / "test.jsonl").write_text((tmp_path / "noise" / "val.jsonl").read_text())
    assert run(train("--set", "trainer.epochs=1")) == 0
    assert "--manifest noise/test.jsonl" in capsys.readouterr().out


def test_the_best_value_is_the_best_of_the_whole_run_also_after_a_resume(config, capsys):
    assert run(train("--set", "trainer.max_duration=6ba")) == 0
    assert run(["resume", "my run", "--set", "trainer.max_duration=null", "--import", "matrix_parts"]) == 0
    said = capsys.readouterr().out
    rates = [float(rate) for rate in re.findall(r"best ([\d.]+) %", said)]
    assert rates[1] <= rates[0]


def test_an_interrupted_run_says_where_it_stands_and_how_it_goes_on(config, capsys, tmp_path):
    (tmp_path / "stopping.py").write_text(
        "import os, signal\nfrom sonosco_like import serializable, AbstractCallback\n"
        "@serializable\nclass StopAt7(AbstractCallback):\n    def on_batch_end(self, moment):\n"
        "        if moment.context.global_step == 7:\n            os.kill(os.getpid(), signal.SIGINT)\n"
    )
    more = ["--import", "stopping", "--set", "trainer.callbacks=[{class: stopping.StopAt7}, {class: ProgressBar}]"]
    assert run(train(*more)) == 130
    printed = capsys.readouterr()
    said = printed.out.splitlines()
    assert said[1] == "interrupted by SIGINT in epoch 2/3, step 2/5; saved in my run"
    assert said[2].startswith("  val_wer: best ")
    assert said[3] == "continue with: sonosco resume 'my run'"
    lines = [line for line in printed.err.splitlines() if line.startswith("epoch 2/3")]
    assert lines[-1].startswith("epoch 2/3, step 2/5, stopped, ")
    assert not any("done" in line for line in lines)
    assert (
        run([*shlex.split(said[3].partition("sonosco ")[2]), "--import", "matrix_parts", "--import", "stopping"]) == 0
    )
    assert "done: my run, 3 epochs, 15 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("called", "written"),
    [
        (".venv/bin/sonosco", ".venv/bin/tensorboard"),
        ("/usr/bin/sonosco", "tensorboard"),
        ("sonosco", "tensorboard"),
        ("/x/sonosco_like/__main__.py", "tensorboard"),
        ("", "tensorboard"),
    ],
)
def test_programs_are_written_as_the_user_called_ours(called, written, monkeypatch):
    monkeypatch.setattr(sys, "argv", [called])
    assert program("tensorboard") == written
