"""The synthetic corpus, as a command makes it and as a config asks for it."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sonosco_like.data.corpora.rendering import split_of_text
from sonosco_like.data.corpora.synth import SyntheticCorpus, plan_speakers, synthesize
from sonosco_like.data.manifest import Manifest
from sonosco_like.errors import UsageError
from sonosco_like.serialization import dumps, loads

SPLITS = ("train", "val", "test")
MINUTES = 1.0


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """A minute of digits, made by two processes."""
    folder = tmp_path_factory.mktemp("synth")
    synthesize(folder, minutes=MINUTES, seed=5, workers=2)
    return folder


def rows(folder: Path, split: str) -> list[dict]:
    return [json.loads(line) for line in (folder / f"{split}.jsonl").read_text().splitlines()]


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def voice_of(row: dict) -> str:
    return row["speaker"].split("-", 2)[2]


def test_the_corpus_does_not_depend_on_the_number_of_processes(corpus, tmp_path):
    synthesize(tmp_path / "one", minutes=MINUTES, seed=5, workers=1)
    synthesize(tmp_path / "three", minutes=MINUTES, seed=5, workers=3)
    assert digest(tmp_path / "one") == digest(corpus) == digest(tmp_path / "three")


def test_the_bits_are_those_of_former_versions(tmp_path):
    """Texts, voices and lengths bit for bit; the sound within what another processor rounds differently."""
    synthesize(tmp_path, kind="commands", minutes=0.5, seed=3, workers=1)
    manifests = "".join((tmp_path / f"{split}.jsonl").read_text() for split in SPLITS)
    assert hashlib.sha256(manifests.encode()).hexdigest()[:16] == "293206e8d701f6af"
    recordings = [soundfile.read(path, dtype="int16")[0] for path in sorted(tmp_path.rglob("*.flac"))]
    loudness = [236.508, 499.453, 1057.315, 906.059, 1122.171, 961.027, 379.2, 282.801, 635.32, 844.08]
    assert [np.abs(samples.astype(float)).mean() for samples in recordings] == pytest.approx(loudness, rel=1e-4)


def test_another_seed_is_another_corpus(corpus, tmp_path):
    synthesize(tmp_path, minutes=0.2, seed=6, workers=1)
    assert not set(digest(tmp_path).values()) & set(digest(corpus).values())


def test_manifests_are_relative_portable_and_true(corpus):
    for split in SPLITS:
        assert all(not Path(row["audio_filepath"]).is_absolute() for row in rows(corpus, split))
        for utterance in Manifest.read(corpus / f"{split}.jsonl"):
            info = soundfile.info(utterance.audio_filepath)
            assert (info.samplerate, info.channels, info.format) == (16000, 1, "FLAC")
            assert info.duration == pytest.approx(utterance.duration)


def test_audio_is_neither_empty_nor_clipped(corpus):
    for path in corpus.rglob("*.flac"):
        samples, _ = soundfile.read(path, dtype="int16")
        peak = np.abs(samples.astype(int)).max()
        assert 300 < peak < 32767, path
        assert len(samples) > 0.5 * 16000


def test_no_voice_no_variant_and_no_text_is_in_two_splits(corpus):
    for kind in (lambda row: row["text"], voice_of, lambda row: voice_of(row).partition("+")[2]):
        sets = [{kind(row) for row in rows(corpus, split)} for split in SPLITS]
        assert all(sets)
        assert sum(map(len, sets)) == len(set.union(*sets))


def test_minutes_and_shares_are_about_what_was_asked(tmp_path):
    synthesize(tmp_path, minutes=4.0, workers=1)
    seconds = {split: sum(row["duration"] for row in rows(tmp_path, split)) for split in SPLITS}
    assert sum(seconds.values()) == pytest.approx(240, rel=0.12)
    assert seconds["train"] == pytest.approx(192, rel=0.12)


def test_plans_have_many_speakers_with_names_of_their_own():
    jobs = plan_speakers(Path(), "digits", minutes=30, seed=0, variety=1.0)
    assert len({job.name for job in jobs}) == len({job.seed for job in jobs}) == len(jobs)
    assert len({job.voice for job in jobs if job.split == "train"}) > 100


@pytest.mark.parametrize("kind", ["commands", "sentences"])
def test_other_kinds_have_texts_of_their_own(kind, tmp_path):
    synthesize(tmp_path, kind=kind, minutes=0.3, workers=1)
    texts = [row["text"] for split in SPLITS for row in rows(tmp_path, split)]
    assert len(set(texts)) > 3
    assert all(split_of_text(row["text"]) == split for split in SPLITS for row in rows(tmp_path, split))


def test_an_existing_folder_is_not_touched_without_force(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"not empty.*--force"):
        synthesize(tmp_path, minutes=0.1, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    synthesize(tmp_path, minutes=0.1, workers=1, force=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "train.jsonl").exists()


def test_an_interrupted_run_leaves_no_manifest_not_even_a_former_one(tmp_path):
    synthesize(tmp_path, minutes=0.1, workers=1)

    class InterruptionError(Exception):
        pass

    def interrupt(name, total, unit):
        raise InterruptionError

    with pytest.raises(InterruptionError):
        synthesize(tmp_path, minutes=0.1, workers=1, force=True, progress=interrupt)
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_a_kill_end_all_processes_and_leave_no_manifest(number, tmp_path):
    program = (
        "import signal\nfrom pathlib import Path\nfrom sonosco_like.data.corpora.synth import synthesize\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it\n"
        f"if __name__ == '__main__': synthesize(Path({str(tmp_path)!r}), minutes=600, workers=2)"
    )
    script = tmp_path.parent / "make.py"
    script.write_text(program)
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list(tmp_path.rglob("*.flac")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)  # returns only when every worker has closed the pipe too
    assert process.returncode == -number, errors
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minutes": 0}, "minutes"),
        ({"minutes": float("nan")}, "minutes"),
        ({"seed": -1}, "seed"),
        ({"variety": 1.5}, "variety"),
        ({"workers": 0}, "workers"),
        ({"kind": "digit"}, "did you mean 'digits'"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(options, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        synthesize(tmp_path / "corpus", **options)
    assert not (tmp_path / "corpus").exists()


def test_workers_need_no_torch(run_python):
    done = run_python("import sys, sonosco_like.data.corpora.rendering; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def configured(folder, **settings) -> SyntheticCorpus:
    return SyntheticCorpus(folder=folder, minutes=0.2, **{"seed": 3, **settings})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a prepared corpus, to look at only."""
    folder = tmp_path_factory.mktemp("synthetic") / "deep" / "digits"
    configured(folder).prepare()
    return folder


@pytest.fixture
def copied(made, tmp_path):
    """A copy of that folder, to change."""
    return shutil.copytree(made, tmp_path / "digits")


def test_it_is_made_once_and_then_left_alone(made):
    assert all(len(Manifest.read(made / f"{split}.jsonl")) > 0 for split in ("train", "val", "test"))
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    configured(made).prepare()
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*")} == before


def test_one_that_was_left_half_made_is_made_anew_and_the_seed_decides_what_it_is(made, copied):
    (copied / "test.jsonl").unlink()
    next(copied.rglob("*.flac")).unlink()
    configured(copied).prepare()
    assert contents(copied) == contents(made)
    (copied / "test.jsonl").unlink()
    configured(copied, seed=4).prepare()
    assert contents(copied)["train.jsonl"] != contents(made)["train.jsonl"]


def test_a_corpus_of_other_settings_is_not_taken_for_this_one(made):
    with pytest.raises(UsageError, match=r'made with .*"seed": 3.* asks for .*"seed": 4.* Remove that folder'):
        configured(made, seed=4).prepare()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match=r"holds other files \('thesis.txt'\).* --set corpus.folder="):
        configured(tmp_path).prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_damaged_note_of_the_settings_is_one_of_other_settings(copied):
    (copied / "made_with.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(UsageError, match="Remove that folder"):
        configured(copied).prepare()


def test_one_made_by_hand_is_taken_as_it_is(copied):
    (copied / "made_with.json").unlink()
    before = contents(copied)
    configured(copied, seed=4).prepare()
    assert contents(copied) == before


def test_it_is_a_part_of_a_config(tmp_path):
    asked = configured(tmp_path, kind="commands", seed=7)
    read = loads(dumps(asked), SyntheticCorpus)
    assert (read.folder, read.kind, read.minutes, read.seed) == (tmp_path, "commands", 0.2, 7)
