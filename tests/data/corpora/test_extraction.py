"""Archives of strangers, some of them hostile."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from sonosco_like.data.corpora import extraction
from sonosco_like.data.corpora.extraction import archive_stem, extract_archive, is_archive
from sonosco_like.errors import DataError, UsageError


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(content), kind, link
    return info, content


def make(path: Path, *members: tuple) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix != ".tar" else "w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar"])
def test_files_and_folders_come_out_as_they_went_in(suffix, tmp_path):
    archive = make(
        tmp_path / f"a{suffix}", member("x", kind=tarfile.DIRTYPE), member("x/one", b"1"), member("./y/two", b"22")
    )
    assert is_archive(archive)
    assert files(extract_archive(archive, tmp_path / "out")) == {"x/one": b"1", "y/two": b"22"}
    assert not (tmp_path / "out.partial").exists()


HOSTILE = {
    "upwards": [member("../evil", b"!")],
    "upwards in the middle": [member("a/../../evil", b"!")],
    "absolute": [member("/tmp/evil", b"!")],
    "backslashes": [member("..\\evil", b"!")],
    "drive": [member("C:/evil", b"!")],
    "symbolic link out": [member("link", kind=tarfile.SYMTYPE, link="../../secret")],
    "symbolic link to root": [member("link", kind=tarfile.SYMTYPE, link="/etc/passwd")],
    "hard link out": [member("link", kind=tarfile.LNKTYPE, link="../secret")],
    "link through a link": [
        member("d/x", b"1"),
        member("a", kind=tarfile.SYMTYPE, link="d"),
        member("b", kind=tarfile.SYMTYPE, link="a/../.."),
    ],
    "file through a link": [
        member("a", kind=tarfile.SYMTYPE, link=".."),
        member("a/evil", b"!"),
    ],
    "link behind a link": [
        member("a/b", kind=tarfile.SYMTYPE, link=".."),
        member("a/b/x", kind=tarfile.SYMTYPE, link="good"),
    ],
    "hard link to root": [member("link", kind=tarfile.LNKTYPE, link="/etc/passwd")],
    "link in the place of a file": [member("link", kind=tarfile.SYMTYPE, link="good"), member("link", b"1")],
    "link to nothing": [member("link", kind=tarfile.SYMTYPE, link="nowhere")],
    "link to itself": [member("link", kind=tarfile.SYMTYPE, link="link")],
    "device": [member("device", kind=tarfile.CHRTYPE)],
    "pipe": [member("pipe", kind=tarfile.FIFOTYPE)],
    "the same file twice": [member("one", b"1"), member("one", b"2")],
    "a file as a folder": [member("one", b"1"), member("one/two", b"2")],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_archives_are_refused_and_leave_nothing(members, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "deep").mkdir()
    archive = make(tmp_path / "a.tgz", member("good", b"good"), *members)
    with pytest.raises(DataError):
        extract_archive(archive, tmp_path / "deep" / "out")
    assert list((tmp_path / "deep").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tgz", "deep", "secret"]
    assert secret.read_text() == "secret"


def test_links_inside_of_the_archive_work(tmp_path):
    archive = make(
        tmp_path / "a.tgz",
        member("legacy/train/sph", kind=tarfile.SYMTYPE, link="../../data/sph"),
        member("data/sph/talk.sph", b"audio"),
        member("first.sph", kind=tarfile.SYMTYPE, link="data/sph/talk.sph"),
        member("second.sph", kind=tarfile.LNKTYPE, link="data/sph/talk.sph"),
    )
    out = extract_archive(archive, tmp_path / "out")
    for name in ("legacy/train/sph/talk.sph", "first.sph", "second.sph"):
        assert (out / name).read_bytes() == b"audio"
        assert (out / name).resolve().is_relative_to(out)


def test_bombs_are_refused(tmp_path, monkeypatch):
    archive = make(tmp_path / "a.tgz", member("zeros", bytes(50_000_000)))
    assert archive.stat().st_size < 100_000
    assert extract_archive(archive, tmp_path / "allowed")
    monkeypatch.setattr(extraction, "_ALWAYS_ALLOWED", 1 << 20)
    with pytest.raises(DataError, match="50 times its own size"):
        extract_archive(archive, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    monkeypatch.setattr(extraction, "_MOST_MEMBERS", 1)
    with pytest.raises(DataError):
        extract_archive(make(tmp_path / "b.tgz", member("one"), member("two")), tmp_path / "refused")


@pytest.mark.parametrize("damage", ["cut", "garbage", "changed"])
def test_broken_archives_are_named_and_leave_nothing(damage, tmp_path):
    archive = make(tmp_path / "a.tgz", member("one", bytes(range(256)) * 4000))
    content = bytearray(archive.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "garbage":
        content = bytearray(b"not an archive at all")
    else:
        content[len(content) // 2] ^= 0xFF
    archive.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.tgz is broken or cut off"):
        extract_archive(archive, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tgz"]


def test_a_former_attempt_is_replaced(tmp_path):
    (tmp_path / "out.partial" / "old").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "older").write_text("older")
    out = extract_archive(make(tmp_path / "a.tgz", member("new", b"new")), tmp_path / "out")
    assert files(out) == {"new": b"new"}


def test_names_lose_their_whole_suffix():
    assert archive_stem("dev-clean.tar.gz") == archive_stem("dev-clean.tgz") == "dev-clean"
    assert archive_stem("cv-corpus-17.0") == "cv-corpus-17.0"


@pytest.mark.parametrize("name", [".tgz", "..tgz", "...tgz", "...tar.gz"])
def test_names_that_are_no_folder_of_their_own_are_refused(name):
    with pytest.raises(DataError, match="nothing is left of its name"):
        archive_stem(name)


def test_a_python_without_the_data_filter_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(UsageError, match=r"Use Python 3\.10\.12, 3\.11\.4 or newer, or unpack the archive by hand"):
        extract_archive(make(tmp_path / "a.tgz", member("one", b"1")), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tgz"]


def test_a_member_for_the_folder_itself_is_allowed(tmp_path):
    archive = make(tmp_path / "a.tgz", member("./", kind=tarfile.DIRTYPE), member("./one", b"1"))
    assert files(extract_archive(archive, tmp_path / "out")) == {"one": b"1"}
