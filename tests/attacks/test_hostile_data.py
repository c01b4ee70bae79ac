"""Manifests, recordings, archives and language models of strangers: refused at once, and in little memory."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sonosco_like.cli import run
from sonosco_like.data.audio import audio_info, load_audio
from sonosco_like.data.corpora.extraction import extract_archive
from sonosco_like.data.manifest import Manifest
from sonosco_like.data.tools.manifests import make_manifest
from sonosco_like.decoding.language_model import ArpaModel, NGramLanguageModel
from sonosco_like.errors import DataError, SonoscoError, UsageError
from sonosco_like.inference.audio_stream import read_blocks

ROW = {"audio_filepath": "a.wav", "text": "one", "duration": 1.0}
MEMORY = 600 << 20
READ = """
import resource, sys
from pathlib import Path
from sonosco_like.data.audio import load_audio
from sonosco_like.data.corpora.extraction import extract_archive
from sonosco_like.data.manifest import Manifest
from sonosco_like.decoding.language_model import ArpaModel
from sonosco_like.errors import SonoscoError
path, kind = Path(sys.argv[1]), sys.argv[2]
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + %d, -1))
try:
    {"manifest": Manifest.read, "audio": lambda p: load_audio(p, 16000), "arpa": ArpaModel,
     "tar": lambda p: extract_archive(p, p.with_name("unpacked"))}[kind](path)
except SonoscoError as error:
    print("refused:", error)
    raise SystemExit(0)
raise SystemExit(3)
""" % MEMORY  # fmt: skip  # noqa: UP031


def refused_in_little_memory(path: Path, kind: str) -> str:
    """What is said of a file by a process that may take no more than some memory."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", READ, str(path), kind]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def compressed(pieces, path: Path) -> Path:
    with gzip.open(path, "wb", 1) as file:
        for piece in pieces:
            file.write(piece)
    return path


GIGABYTE = 1 << 30
ONE_LINE = [b'{"audio_filepath": "a.wav", "text": "', *[b"x" * (1 << 24)] * 64, b'"}\n']
BOMBS = {
    "one line": lambda: ONE_LINE,
    "one line of blanks": lambda: [b" " * (1 << 24)] * 64,
    "one CSV cell": lambda: [b"wav,txt\na.wav,", *[b"x" * (1 << 24)] * 64],
    "one quoted CSV cell": lambda: [b'wav,txt\na.wav,"', *[b"x\n" * (1 << 23)] * 64],
    "a second line": lambda: [json.dumps(ROW).encode() + b"\n", *ONE_LINE],
    "many rows": lambda: [(json.dumps(ROW).encode() + b"\n") * 200_000] * 100,
    "many CSV rows": lambda: [b"wav,txt,duration\n", *[b"a.wav,b,1\n" * 1_000_000] * 30],
    "many empty lines": lambda: [b"\n" * (1 << 24)] * 64,
    "a Lhotse cut": lambda: [b'{"id": "a", "recording": {"sources": [', *[b"{}," * (1 << 22)] * 64],
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_manifest_that_stands_for_much_is_refused(tmp_path, name):
    path = compressed(BOMBS[name](), tmp_path / "bomb.jsonl.gz")
    assert path.stat().st_size < 20 << 20
    said = refused_in_little_memory(path, "manifest")
    assert "bomb.jsonl.gz" in said
    assert "line of more than" in said or "times its own size" in said or "cannot be read" in said, said


def test_a_manifest_that_is_one_long_hole_is_refused(tmp_path):
    path = tmp_path / "hole.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    os.truncate(path, 20 * GIGABYTE)
    assert "line of more than" in refused_in_little_memory(path, "manifest")


def test_a_packed_manifest_of_usual_density_is_read(tmp_path):
    rows = [{**ROW, "audio_filepath": f"audio/speaker-{n % 50}/utterance-{n}.wav", "id": str(n)} for n in range(50_000)]
    path = compressed([json.dumps(row).encode() + b"\n" for row in rows], tmp_path / "good.jsonl.gz")
    assert len(Manifest.read(path)) == 50_000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"wav,txt\n", "has a header and no rows"),
        (b"wav,txt,duration", "has a header and no rows"),
        (b"\n\n", "has no rows"),
        (gzip.compress(json.dumps(ROW).encode() * 50, mtime=0)[:-9], "torn or damaged gzip"),
        (gzip.compress(bytes(range(256)) * 50, mtime=0)[:12] + b"\xff" * 40, "torn or damaged gzip"),
        (b'{"audio_filepath": "a", "text": "b", "duration": 1' + b"0" * 4000 + b"}", "`duration` must be"),
        (b'{"audio_filepath": "a", "text": "b", "duration": 1' + b"0" * 9000 + b"}", "row 1"),
        (b'{"audio_filepath": "a", "text": "b", "duration": 1e300}', "`duration` must be"),
        (b'{"audio_filepath": "a", "text": "b", "duration": 1, "offset": 1e300}', "`offset` must be"),
        (b'{"audio_filepath": "a", "text": "\\ud800", "duration": 1}', "half of a character"),
        (b'{"audio_filepath": "\\udfff", "text": "b", "duration": 1}', "half of a character"),
        (b'{"audio_filepath": "a", "text": 1, "x": ' + b"[" * 900_000, "nested too deeply"),
        (b'{"recording": ' + b'{"a":' * 300_000, "nested too deeply"),
        (b"wav,txt\na.wav,/dev/zero.txt\n", "transcript that cannot be read"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_wrong_is_told_in_a_sentence(tmp_path, content, said):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(DataError) as caught:
        Manifest.read(tmp_path / "m")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_a_transcript_that_never_ends_is_refused(tmp_path):
    (tmp_path / "t.txt").symlink_to("/dev/zero")
    (tmp_path / "m.csv").write_text("wav,txt\na.wav,t.txt\n")
    with pytest.raises(DataError, match="is a device"):
        Manifest.read(tmp_path / "m.csv")


@pytest.fixture(params=["pipe", "device", "socket", "folder", "link to a pipe"])
def special(request, tmp_path) -> Path:
    """Something that is no file, called like one."""
    path = tmp_path / "special.wav"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    elif request.param == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif request.param == "folder":
        path.mkdir()
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    return path


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_no_file_is_refused_and_not_waited_for(special, tmp_path):
    from sonosco_like.data.augment_recordings import find_recordings
    from sonosco_like.data.text import SentencePieceTokenizer

    readers = (
        Manifest.read, audio_info, ArpaModel, lambda path: load_audio(path, 16_000),
        lambda path: NGramLanguageModel(path=path).load(), lambda path: list(read_blocks(path, 16_000, 1.0)),
        lambda path: SentencePieceTokenizer(model=path).symbols, lambda path: extract_archive(path, tmp_path / "out"),
    )  # fmt: skip
    for read in readers:
        with pytest.raises(DataError, match=r"is (a|no) (named pipe|device|socket|folder|file)"):
            read(special)
    with pytest.raises(UsageError):
        [each.read(16_000) for each in find_recordings(special)]
    assert run(["train", "--config", str(special)]) == 2
    assert run(["check", "--config", str(special)]) == 2


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_folder_of_recordings_with_pipes_in_it_is_not_waited_for(special, tmp_path):
    special.with_suffix(".txt").write_text("one")
    soundfile.write(tmp_path / "good.wav", np.zeros(1600), 16_000)
    (tmp_path / "good.txt").write_text("two")
    found = make_manifest(tmp_path, tmp_path / "m.jsonl")
    assert "special.wav" in str(found)
    os.mkfifo(tmp_path / "other.txt")
    with pytest.raises(DataError, match="named pipe"):
        make_manifest(tmp_path, tmp_path / "n.jsonl")


# recordings


def wav(path: Path, **fields: int) -> Path:
    """A second of noise whose header says something else."""
    places = {"channels": (22, 2), "rate": (24, 4), "bytes": (40, 4)}
    soundfile.write(path, np.random.default_rng(0).uniform(-0.1, 0.1, 20_000), 16_000)
    content = bytearray(path.read_bytes())
    for name, value in fields.items():
        start, size = places[name]
        content[start : start + size] = value.to_bytes(size, "little")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("rate", [1, 10, 999, 1_000_001, 2**31 - 1])
def test_a_rate_that_cannot_be_is_refused(tmp_path, rate):
    path = wav(tmp_path / "a.wav", rate=rate)
    for read in (audio_info, lambda path: load_audio(path, 16_000)):
        with pytest.raises(DataError, match=r"samples per second; 1,000 to 1,000,000 are possible"):
            read(path)
    assert "samples per second" in refused_in_little_memory(path, "audio") if rate == 1 else True


@pytest.mark.parametrize("fields", [{"channels": 1000}, {"channels": 60_000}, {"rate": 0}])
def test_other_headers_that_cannot_be_are_refused(tmp_path, fields):
    with pytest.raises(DataError, match=r"a\.wav"):
        load_audio(wav(tmp_path / "a.wav", **fields), 16_000)


def test_a_length_beyond_the_end_of_a_file_is_not_believed(tmp_path):
    assert len(load_audio(wav(tmp_path / "a.wav", bytes=2**32 - 16), 16_000)) == 20_000


def flac(path: Path, samples: int) -> Path:
    """A FLAC file that claims so many samples."""
    soundfile.write(path, np.random.default_rng(0).uniform(-0.1, 0.1, 20_000), 16_000)
    content = bytearray(path.read_bytes())
    fields = int.from_bytes(content[18:26], "big") >> 36 << 36 | samples
    content[18:26] = fields.to_bytes(8, "big")
    path.write_bytes(content)
    return path


def mp3(path: Path) -> Path:
    """An MP3 file that claims two billion frames."""
    soundfile.write(path, np.random.default_rng(0).uniform(-0.1, 0.1, 20_000), 16_000)
    content = bytearray(path.read_bytes())
    place = max(content.find(b"Xing"), content.find(b"Info"))
    assert place > 0
    content[place + 8 : place + 12] = (2**31 - 1).to_bytes(4, "big")
    path.write_bytes(content)
    return path


def ogg(path: Path) -> Path:
    """An OGG file whose last page claims to end at sample 2^60, with the right checksum."""
    soundfile.write(path, np.random.default_rng(0).uniform(-0.1, 0.1, 20_000), 16_000)
    content = bytearray(path.read_bytes())
    place = content.rfind(b"OggS")
    content[place + 6 : place + 14] = (2**60).to_bytes(8, "little")
    content[place + 22 : place + 26] = bytes(4)
    checksum = 0
    for byte in content[place:]:
        checksum ^= byte << 24
        for _ in range(8):
            checksum = (checksum << 1 ^ (0x04C11DB7 if checksum & 0x80000000 else 0)) & 0xFFFFFFFF
    content[place + 22 : place + 26] = checksum.to_bytes(4, "little")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "make", [lambda folder: flac(folder / "a.flac", 2**36 - 1), lambda f: mp3(f / "a.mp3"), lambda f: ogg(f / "a.ogg")]
)
def test_a_length_that_cannot_be_in_the_file_is_refused(tmp_path, make):
    path = make(tmp_path)
    assert "which cannot be in its" in refused_in_little_memory(path, "audio")
    with pytest.raises(DataError, match="which cannot be in its"):
        audio_info(path)


def test_hours_of_silence_in_a_small_file_are_not_held_in_memory_at_once(tmp_path):
    path = tmp_path / "silence.flac"
    with soundfile.SoundFile(path, "w", 16_000, 1) as file:
        for _ in range(240):
            file.write(np.zeros(16_000 * 60, dtype="int16"))
    assert "samples in memory" in refused_in_little_memory(path, "audio")
    assert len(load_audio(path, 16_000, offset=7200, duration=10)) == 160_000, "a part of it is no matter"


def test_a_streamed_recording_without_a_length_is_told_in_a_sentence(tmp_path):
    path = flac(tmp_path / "streamed.flac", 0)
    for read in (audio_info, lambda path: load_audio(path, 16_000), lambda path: list(read_blocks(path, 16_000, 10.0))):
        with pytest.raises(DataError, match="has no length"):
            read(path)


@pytest.mark.parametrize("url", ["s3://bucket/a.wav", "https://example.org/a.wav", "gs://b/c/d.flac"])
def test_a_url_is_told_to_be_one(tmp_path, url, capsys):
    (tmp_path / "m.jsonl").write_text(json.dumps({"audio_filepath": url, "text": "one"}) + "\n")
    with pytest.raises(DataError, match="URLs are not read yet"):
        Manifest.read(tmp_path / "m.jsonl")
    (tmp_path / "m.jsonl").write_text(json.dumps({**ROW, "audio_filepath": url}) + "\n")
    with pytest.raises(DataError, match="URLs are not read yet"):
        load_audio(Manifest.read(tmp_path / "m.jsonl")[0].audio_filepath, 16_000)
    with pytest.raises(DataError, match="URLs are not read yet"):
        Manifest.read(url)


@pytest.mark.parametrize("name", ["a" * 300 + ".wav", "a\0b.wav", "a.wav/b.wav"])
def test_a_name_that_no_file_can_have_is_told_in_a_sentence(tmp_path, name):
    (tmp_path / "a.wav").write_bytes(b"x")
    with pytest.raises(DataError):
        audio_info(tmp_path / name)


@pytest.mark.parametrize(("offset", "duration"), [(1e300, 1.0), (0.0, 1e300), (0.0, float("inf"))])
def test_a_length_that_no_recording_has_is_refused(tmp_path, offset, duration):
    with pytest.raises(DataError, match="no recording is that long"):
        load_audio(wav(tmp_path / "a.wav"), 16_000, offset, duration)


# archives


def tar_with_header(kind: bytes, size: int) -> bytes:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = kind, size
    return header.tobuf() if kind != tarfile.XHDTYPE else header.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
@pytest.mark.parametrize("packer", [gzip.open, bz2.open, lzma.open])
def test_a_header_of_hundreds_of_megabytes_is_refused(tmp_path, kind, packer):
    path = tmp_path / "bomb.tar.gz"
    with packer(path, "wb") as file:
        file.write(tar_with_header(kind, 300 << 20))
        for _ in range(300 if packer is gzip.open else 1):
            file.write(bytes(1 << 20))
    assert "has a header of" in refused_in_little_memory(path, "tar")
    assert not (tmp_path / "unpacked").exists()
    assert not list(tmp_path.glob("*.partial"))


def test_a_plain_archive_with_a_huge_header_is_refused(tmp_path):
    (tmp_path / "bomb.tar").write_bytes(tar_with_header(tarfile.XHDTYPE, 300 << 20))
    os.truncate(tmp_path / "bomb.tar", 400 << 20)
    assert "has a header of" in refused_in_little_memory(tmp_path / "bomb.tar", "tar")


@pytest.mark.parametrize("where", ["behind the end", "in headers"])
def test_what_is_not_in_members_counts_too(tmp_path, where):
    path = tmp_path / "bomb.tar.gz"
    with gzip.open(path, "wb", 9) as file:
        for _ in range(60 if where == "in headers" else 0):
            record = f"{3 << 20} comment=".encode().ljust((3 << 20) - 1, b"x") + b"\n"
            file.write(tar_with_header(tarfile.XGLTYPE, 3 << 20) + record)
        for _ in range(1 if where == "in headers" else 200):
            file.write(bytes(1 << 20))
    with pytest.raises(DataError, match="times its own size"):
        extract_archive(path, tmp_path / "unpacked")


def test_an_archive_with_long_names_is_unpacked(tmp_path):
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        path = tmp_path / f"good-{form}.tar.xz"
        with tarfile.open(path, "w:xz", format=form) as tar:
            member = tarfile.TarInfo("folder/" + "n" * 150 + "/" + "ü" * 80)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"hello"))
        assert [file.read_bytes() for file in extract_archive(path, tmp_path / f"to-{form}").rglob("ü*")] == [b"hello"]


# language models


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\\data\\\n\\" + "9" * 5000 + "-grams:\n\\end\\\n", "n-grams of an order up to 100"),
        ("\\data\\\n\\101-grams:\n\\end\\\n", "n-grams of an order up to 100"),
        ("\\data\\\n\\1-grams:\nnan a\n\\end\\\n", "expected a log probability"),
        ("\\data\\\n\\1-grams:\ninf a\n\\end\\\n", "expected a log probability"),
        ("\\data\\\n\\1-grams:\n" + "1" * 100_000 + "e a\n\\end\\\n", "expected a log probability"),
        ("\\data\\\n\\" + "x" * 100_000 + "\n", "expected `\\N-grams:`"),
    ],
)
def test_a_language_model_that_is_wrong_is_told_in_a_sentence(tmp_path, text, said):
    (tmp_path / "lm.arpa").write_text(text)
    with pytest.raises(SonoscoError) as caught:
        ArpaModel(tmp_path / "lm.arpa")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "pieces", [[b"x" * (1 << 24)] * 64, [b"\\data\\\n\\1-grams:\n", *[b"-1 a\n" * (1 << 21)] * 100]]
)
def test_a_small_language_model_that_stands_for_much_is_refused(tmp_path, pieces):
    said = refused_in_little_memory(compressed(pieces, tmp_path / "lm.arpa.gz"), "arpa")
    assert "line of more than" in said or "times its own size" in said
