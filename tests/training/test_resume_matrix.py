"""Promise 2, proved: killed with SIGKILL anywhere, also inside a save, a run ends as the one that was never stopped.

Weights, optimizer, callbacks, random state, `metrics.jsonl`, TensorBoard points and transcripts are compared bit for
bit; only the clock may differ.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from matrix_parts import KILL, MODELS, config_text, make_corpus
from warm import run_sonosco

from sonosco_like import load
from sonosco_like.training.verification import compare_runs

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
HERE = Path(__file__).parent
PLACES = ["batch_end 3", "save {n} 6", "epoch_end 1", "batch_end 13"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Some noise, the same for all."""
    folder = tmp_path_factory.mktemp("noise")
    make_corpus(folder)
    return folder


@pytest.fixture(scope="module")
def unbroken(corpus, tmp_path_factory):
    """The run of a cell that was never stopped; made once, whatever the number of workers."""
    known: dict[tuple, Path] = {}

    def run(model: str, accumulate: int, precision: str) -> Path:
        cell = (model, accumulate, precision)
        if cell not in known:
            folder = tmp_path_factory.mktemp("unbroken")
            (folder / "config.yaml").write_text(config_text(corpus, *cell))
            train(folder, 0)
            known[cell] = folder / "run"
        return known[cell]

    return run


def run_matrix(*arguments: object, log: Path, **environment: str) -> int:
    """Run a command whose configs name what is in `matrix_parts.py`."""
    return run_sonosco(*arguments, "--import", "matrix_parts", log=log, PYTHONPATH=str(HERE), **environment)


def train(folder: Path, expected: int, **environment: str) -> None:
    arguments = ["train", "--config", folder / "config.yaml", "--run-dir", folder / "run"]
    code = run_matrix(*arguments, log=folder / "log.txt", **environment)
    assert code == expected, (folder / "log.txt").read_text()


def resume(folder: Path, expected: int, *settings: str, **environment: str) -> None:
    """Continue a run; one that was killed before its first checkpoint begins again."""
    if not list((folder / "run" / "checkpoints").glob("step-*")):
        shutil.rmtree(folder / "run", ignore_errors=True)
        train(folder, expected, **environment)
        return
    code = run_matrix("resume", folder / "run", *settings, log=folder / "log.txt", **environment)
    assert code == expected, (folder / "log.txt").read_text()


def points(run: Path) -> Counter:
    """How often each point stands in the event files, whatever a reader makes of them; the config is none."""
    found: Counter = Counter()
    for file in (run / "tensorboard").iterdir():
        for event in accumulators.event_file_loader.EventFileLoader(str(file)).Load():
            values = [value for value in event.summary.value if not value.tag.startswith(("config", "_hparams_"))]
            found.update((value.tag, event.step, value.SerializeToString()) for value in values)
    return found


def assert_alike(whole: Path, broken: Path, but: tuple[str, ...] = ()) -> None:
    assert [line for line in compare_runs(whole, broken) if not any(word in line for word in but)] == []
    assert points(whole) == points(broken)
    assert max(points(whole).values()) == 1
    kept = [sorted(path.name for path in (run / "checkpoints").iterdir()) for run in (whole, broken)]
    assert kept[0] == kept[1]


def kill_everywhere(folder, places) -> None:
    """Begin a run and resume it, killed each time at the next place; then let it finish."""
    for number, place in enumerate(places):
        begin = train if number == 0 else resume
        begin(folder, -signal.SIGKILL, **{KILL: place})
    resume(folder, 0)


@pytest.mark.parametrize(
    ("model", "accumulate", "precision", "workers", "places"),
    [
        ("las", 2, "float32", 0, ["batch_end 3", "save 4 6"]),
        ("tds", 1, "bfloat16", 0, ["save 2 2", "epoch_end 1"]),
        ("deepspeech2", 1, "float32", 2, ["validation_end 5", "save 9 8"]),
        ("conformer", 2, "bfloat16", 0, ["save 7 4", "batch_end 10"]),
    ],
    ids=list(MODELS),
)
def test_a_killed_run_ends_as_the_unbroken_one(
    model, accumulate, precision, workers, places, corpus, unbroken, tmp_path
):
    (tmp_path / "config.yaml").write_text(config_text(corpus, model, accumulate, precision, workers))
    kill_everywhere(tmp_path, places)
    whole = unbroken(model, accumulate, precision)
    assert_alike(whole, tmp_path / "run", but=("num_workers",))
    heard = [load(run / "final") for run in (whole, tmp_path / "run")]
    texts = [[row.hypothesis for row in trainer.predict(trainer.val_data_loader)] for trainer in heard]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 4


def test_a_killed_fine_tuning_of_adapters_on_a_mixture_of_corpora_ends_as_the_unbroken_one(corpus, tmp_path):
    """There is more of one corpus than it has, so that its passes begin and end within epochs."""
    manifests = ", ".join(f"{{manifest: {corpus}/{name}.jsonl, weight: {n}}}" for name, n in (("val", 2), ("train", 1)))
    adapters = "{rank: 2, patterns: [encoder.*], also_train: [ctc_output.*]}"
    text = config_text(corpus, "conformer").replace(f"manifest: {corpus}/train.jsonl", f"manifest: [{manifests}]")
    text = text.replace("    class: Conformer", f"    class: Conformer\n    adapters: {adapters}")
    assert manifests in text
    assert adapters in text
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(text)
    train(tmp_path / "whole", 0)
    kill_everywhere(tmp_path / "broken", ["batch_end 3", "batch_end 9"])
    assert_alike(tmp_path / "whole" / "run", tmp_path / "broken" / "run")
    whole = load(tmp_path / "whole" / "run" / "final")
    assert whole.train_data_loader.dataset.mixture.counts == [12, 6]
    assert any("adapter_b" in name and weight.any() for name, weight in whole.model.state_dict().items())


CELLS = list(itertools.product(MODELS, (1, 2), ("float32", "bfloat16"), (0, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CELLS)), ids=["-".join(map(str, cell)) for cell in CELLS])
def test_every_cell_of_the_matrix_survives_a_kill_everywhere(number, corpus, unbroken, tmp_path):
    model, accumulate, precision, workers = CELLS[number]
    (tmp_path / "config.yaml").write_text(config_text(corpus, model, accumulate, precision, workers))
    kill_everywhere(tmp_path, [place.format(n=1 + number % 10) for place in PLACES])
    assert_alike(unbroken(model, accumulate, precision), tmp_path / "run", but=("num_workers",))


@pytest.mark.slow
@pytest.mark.parametrize("operation", range(1, 13))
def test_a_save_survives_a_kill_before_each_of_its_file_operations(operation, corpus, unbroken, tmp_path):
    (tmp_path / "config.yaml").write_text(config_text(corpus, "tds"))
    kill_everywhere(tmp_path, [f"save {operation} 2", f"save {operation} 8"])
    assert_alike(unbroken("tds", 1, "float32"), tmp_path / "run")


def test_a_run_goes_on_elsewhere_with_other_workers_and_another_hash_seed(corpus, unbroken, tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    (first / "config.yaml").write_text(config_text(corpus, "deepspeech2"))
    train(first, -signal.SIGKILL, **{KILL: "batch_end 7"})
    moved = tmp_path / "moved"
    first.rename(moved)
    workers = "trainer.train_data_loader.num_workers=1"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "1", KILL: "batch_end 11"}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "sonosco_like", "resume", moved / "run", "--set", workers]
    killed = subprocess.run([*command, "--import", "matrix_parts"], env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    resume(moved, 0)
    assert_alike(unbroken("deepspeech2", 1, "float32"), moved / "run", but=("num_workers",))


@pytest.mark.slow
@pytest.mark.parametrize("operation", range(1, 26))
def test_a_run_that_was_killed_while_it_was_copied_goes_on_from_the_copy(operation, corpus, unbroken, tmp_path):
    """Its own machine is gone. What was copied last may be torn; what is marked complete never is."""
    first, url = tmp_path / "first", f"file://{tmp_path}/remote/run"
    first.mkdir()
    (first / "config.yaml").write_text(f"{config_text(corpus, 'tds').strip()}\nremote: {url}\n")
    allowed = {"SONOSCO_ALLOW_WRITE": f"file://{tmp_path}/remote"}
    train(first, -signal.SIGKILL, **{KILL: f"copy {operation} 8"}, **allowed)
    shutil.rmtree(first)
    run = tmp_path / "second" / "run"
    code = run_matrix("resume", url, "--run-dir", run, log=tmp_path / "log.txt", **allowed)
    assert code == 0, (tmp_path / "log.txt").read_text()
    assert_alike(unbroken("tds", 1, "float32"), run, but=("remote",))
