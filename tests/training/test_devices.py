"""Devices that a machine does not have are refused in one sentence, before anything is built."""

from __future__ import annotations

import pytest
import torch
from tiny import make_trainer, tiny_config

from sonosco_like.cli import run
from sonosco_like.errors import UsageError
from sonosco_like.training.assembly import choose_device, devices_here

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without a GPU is asked for one")
IMPORTS = ["--import", "tiny"]


def test_what_is_there_is_taken():
    assert choose_device(None) == choose_device(torch.device("cpu")) == torch.device("cpu")
    assert devices_here()[0] == "cpu"


@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps", "xpu"])
def test_what_is_not_there_is_refused_with_what_is(name):
    with pytest.raises(UsageError, match=f"`device` is {name}, which this machine does not have; there is cpu."):
        choose_device(torch.device(name))


def test_processes_do_not_share_one_gpu():
    with pytest.raises(UsageError, match="`cuda` gives each its own"):
        choose_device(torch.device("cuda:0"), 1, 2)


def test_a_trainer_says_so_before_the_first_batch():
    with pytest.raises(UsageError, match="there is cpu"):
        make_trainer(device=torch.device("cuda")).start_training()


def test_train_and_resume_take_a_device(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(tiny_config("  device: cuda\n"))
    train = ["train", "--config", "config.yaml", "--run-dir", "run", *IMPORTS]
    assert run(train) == 2
    assert "Error: `device` is cuda, which this machine does not have; there is cpu." in capsys.readouterr().err
    assert run([*train, "--device", "cpu"]) == 0
    assert run(["resume", "run", "--device", "cuda", *IMPORTS]) == 2
    assert "Error: `device` is cuda, which" in capsys.readouterr().err
    assert run(["resume", "run", "--device", "cpu", "--set", "trainer.epochs=3", *IMPORTS]) == 0


def test_how_long_processes_wait_is_a_time():
    with pytest.raises(UsageError, match="`process_timeout` is a time such as 30min, got '3ep'"):
        make_trainer(process_timeout="3ep")
    assert make_trainer(process_timeout="2h").process_timeout == "2h"
