"""Recognisers of tones, trained once per test run, and a Python that can import neither torch nor this package."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tone_speech
from trained_runs import make_once, shared_folder

from sonosco_like.inference import load_recogniser

ALONE = """
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused}:
            raise ImportError(f"{{name}} is not here")

sys.meta_path.insert(0, Refusal())
for name in {refused}:
    try:
        __import__(name)
    except ImportError:
        continue
    sys.exit(f"{{name}} can be imported")
sys.path.insert(0, sys.argv[1])
"""


@pytest.fixture(scope="session")
def tones(tmp_path_factory, worker_id) -> Path:
    """A folder with the manifests `train.jsonl` and `val.jsonl`, the latter of 100 utterances."""
    folder = shared_folder(tmp_path_factory, worker_id, "tones")
    make_once(folder / "train.jsonl", lambda: tone_speech.write_corpus(folder, "train", 120, seed=1))
    make_once(folder / "val.jsonl", lambda: tone_speech.write_corpus(folder, "val", 100, seed=2))
    return folder


@pytest.fixture(scope="session")
def trained(tones) -> Callable[[str], Path]:
    """The run of a recogniser of a kind; whoever asks first trains it, the others wait."""

    return lambda kind: make_once(tones / kind / "final", lambda: tone_speech.train(tones, kind)).parent


@pytest.fixture
def rows(tones) -> list[dict]:
    """The utterances to compare on."""
    return [json.loads(line) for line in (tones / "val.jsonl").read_text().splitlines()]


@pytest.fixture
def texts_of_run(tones, rows) -> Callable[..., list[str]]:
    """What a run hears in each utterance, one at a time, perhaps with another decoder."""

    def heard(run: Path, decoder=None) -> list[str]:
        import soundfile
        import torch

        recogniser = load_recogniser(run, "cpu")
        recogniser.decoder = decoder or recogniser.decoder
        found = []
        for row in rows:
            samples, _ = soundfile.read(tones / row["audio_filepath"], dtype="float32")
            found.append(recogniser.decode(recogniser.batch([torch.from_numpy(samples)]))[0][0].text)
        return [" ".join(text.split()) for text in found]

    return heard


@pytest.fixture
def run_alone() -> Callable[..., list[str]]:
    """Run code in a Python without some packages, in a folder of another place; the lines that it prints."""

    def run(code: str, folder: Path, *arguments: object, refused=("torch", "sonosco_like")) -> list[str]:
        command = [sys.executable, "-c", ALONE.format(refused=repr(tuple(refused))) + code, folder, *arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run
