"""Tiny corpora in the layout of the real ones, with real audio files."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import soundfile

RATE = 16000


def sound(path: Path, seconds: float = 0.5, rate: int = RATE) -> Path:
    """A recording in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = 0.1 * np.sin(np.arange(round(seconds * rate)) * 0.1)
    soundfile.write(path, samples, rate, format="NIST" if path.suffix == ".sph" else None)
    return path


def write(path: Path, *lines: str) -> Path:
    """A text file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def pack(folder: Path, archive: Path) -> Path:
    """The contents of a folder as an archive."""
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
    return archive


def make_an4(folder: Path) -> Path:
    """Ten speakers for training, two for testing, two utterances each."""
    for part, speakers in (("an4_clstk", [f"fs{n:02d}" for n in range(10)]), ("an4test_clstk", ["fcaw", "mmxg"])):
        names, texts = [], []
        for speaker in speakers:
            for number in (1, 2):
                name = f"an{number}-{speaker}-b"
                sound(folder / "an4" / "wav" / part / speaker / f"{name}.sph")
                names.append(f"{part}/{speaker}/{name}")
                text = "ENTER SIX TWENTY" if number == 1 else "G L E N N"
                texts.append(f"<s> {text} </s> ({name})" if part == "an4_clstk" else f"{text} ({name})")
        kind = "train" if part == "an4_clstk" else "test"
        write(folder / "an4" / "etc" / f"an4_{kind}.fileids", *names)
        write(folder / "an4" / "etc" / f"an4_{kind}.transcription", *texts)
    write(folder / "an4" / "README", "about")
    return folder


def make_librispeech(folder: Path, parts: tuple[str, ...] = ("train-clean-100", "dev-clean", "test-clean")) -> Path:
    """Two speakers with a chapter of two sentences in each part."""
    speaker = 100
    for part in parts:
        for _ in range(2):
            speaker += 1
            chapter = folder / "LibriSpeech" / part / str(speaker) / "7"
            names = [f"{speaker}-7-{number:04d}" for number in range(2)]
            for name in names:
                sound(chapter / f"{name}.flac")
            write(chapter / f"{speaker}-7.trans.txt", f"{names[0]} GO DO YOU HEAR", f"{names[1]} IT'S SO")
    write(folder / "LibriSpeech" / "SPEAKERS.TXT", ";ID  |SEX| SUBSET")
    return folder


def make_common_voice(folder: Path, durations: bool = True, language: str = "en") -> Path:
    """Three splits with two clips of one speaker each; the last clip of `train` is a speaker of `test`."""
    root = folder / "cv-corpus-17.0-2024-03-15" / language
    clips = []
    for part in ("train", "dev", "test"):
        rows = ["client_id\tpath\tsentence_id\tsentence\tup_votes"]
        for number in range(2):
            name = f"common_voice_{language}_{part}{number}.mp3"
            sound(root / "clips" / name, 0.5 + number)
            clips.append((name, 500 + 1000 * number))
            speaker = "testspeaker" if (part, number) == ("train", 1) else f"{part}speaker"
            rows.append(f'{speaker}\t{name}\t0\t"Don\'t  stop," he said {number}.\t2')
        write(root / f"{part}.tsv", *rows)
    write(root / "validated.tsv", "client_id\tpath\tsentence")
    if durations:
        write(root / "clip_durations.tsv", "clip\tduration[ms]", *(f"{name}\t{length}" for name, length in clips))
    return folder


def make_tedlium(folder: Path, legacy: bool = True) -> Path:
    """A talk of four seconds in each split."""
    root = folder / "TEDLIUM_release-3" / "legacy" if legacy else folder / "TEDLIUM_release2"
    for part, talk in (("train", "Bill_2010"), ("dev", "AlGore_2009"), ("test", "Jane_2011")):
        sound(root / part / "sph" / f"{talk}.sph", 4.0)
        start = f"{talk} 1 {talk}"
        write(
            root / part / "stm" / f"{talk}.stm",
            f"{start} 0.0 0.5 <o,,unknown> ignore_time_segment_in_scoring",
            f"{start} 0.5 1.75 <o,f0,male> what i 'm <unk> saying(2) {{NOISE}} is the world 's ({talk}-1)",
            f"{start} 2.0 9.99 <F0_M> the end",
            f"{start} 3.0 3.5 <o,f0,male> {{BREATH}}",
            f"{start} 7.0 8.0 <o,f0,male> too late",
        )
    if legacy:
        write(folder / "TEDLIUM_release-3" / "speaker-adaptation" / "dev" / "stm" / "X.stm", "X 1 X 0 1 <o> no")
    return folder


def make_voxforge(folder: Path) -> Path:
    """Twelve submissions of ten people: two by one of them, two anonymous; half of them with FLAC."""
    speakers = ["anonymous", "anonymous", "ralf", "ralf", *(f"person{number}" for number in range(8))]
    for number, speaker in enumerate(speakers):
        submission = folder / f"{speaker}-20080425-ab{number}"
        kind = "flac" if number % 2 else "wav"
        for stem in ("a0001", "a0002"):
            sound(submission / kind / f"{stem}.{kind}")
        if number % 3:
            start = f"{submission.name}/mfc"
            write(submission / "etc" / "PROMPTS", f"{start}/a0001 HELLO  WORLD", f"{start}/a0002 IT'S ME")
        write(submission / "etc" / "prompts-original", "a0001 Hello world", "a0002 It's me")
        write(submission / "etc" / "README", f"User Name:{speaker}")
    return folder
