"""Downloads that break, change, lie, and still come out right or not at all."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from sonosco_like.data.corpora.download import Download, download_file, list_downloads
from sonosco_like.errors import StorageError, UsageError

CONTENT = np.random.default_rng(0).bytes(1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def archive(web) -> Download:
    web.files["data/archive.tgz"] = CONTENT
    web.versions["data/archive.tgz"] = '"one"'
    return Download(web.url("data/archive.tgz"), SHA256)


def test_a_file_arrives_whole_under_its_own_name(web, archive, tmp_path):
    path = download_file(archive, tmp_path / "new")
    assert path == tmp_path / "new" / "archive.tgz"
    assert path.read_bytes() == CONTENT
    assert [child.name for child in path.parent.iterdir()] == ["archive.tgz"]


def test_a_file_that_is_there_is_not_fetched_again(web, archive, tmp_path):
    (tmp_path / "archive.tgz").write_bytes(b"mine")
    assert download_file(archive, tmp_path).read_bytes() == b"mine"
    assert web.requests == []


def test_broken_connections_are_resumed_from_the_last_byte(web, archive, tmp_path):
    web.break_after = [300_000, 500_000]
    assert download_file(archive, tmp_path, pause=0).read_bytes() == CONTENT
    assert web.requests == [
        ("data/archive.tgz", None),
        ("data/archive.tgz", "bytes=300000-"),
        ("data/archive.tgz", "bytes=800000-"),
    ]


def test_a_later_run_goes_on_where_an_earlier_one_ended(web, archive, tmp_path):
    web.break_after = [400_000, 0, 0, 0, 0, 0]
    with pytest.raises(StorageError, match="the same command continues it"):
        download_file(archive, tmp_path, pause=0)
    assert not (tmp_path / "archive.tgz").exists()
    web.requests.clear()
    assert download_file(archive, tmp_path).read_bytes() == CONTENT
    assert web.requests == [("data/archive.tgz", "bytes=400000-")]


def test_a_run_that_ended_after_the_last_byte_needs_no_more(web, archive, tmp_path):
    (tmp_path / "archive.tgz.part").write_bytes(CONTENT)
    (tmp_path / "archive.tgz.part.version").write_text('"one"')
    assert download_file(archive, tmp_path).read_bytes() == CONTENT


def test_a_file_that_changed_on_the_server_is_begun_anew(web, archive, tmp_path):
    (tmp_path / "archive.tgz.part").write_bytes(b"x" * 1000)
    (tmp_path / "archive.tgz.part.version").write_text('"zero"')
    assert download_file(archive, tmp_path).read_bytes() == CONTENT


def test_a_part_of_unknown_version_is_begun_anew(web, archive, tmp_path):
    (tmp_path / "archive.tgz.part").write_bytes(b"x" * 1000)
    assert download_file(archive, tmp_path).read_bytes() == CONTENT
    assert web.requests == [("data/archive.tgz", None)]


def test_a_server_that_cannot_resume_sends_it_all_again(web, archive, tmp_path):
    web.resumes = False
    web.break_after = [300_000]
    assert download_file(archive, tmp_path, pause=0).read_bytes() == CONTENT


def test_a_wrong_checksum_is_an_error_and_the_file_is_removed(web, archive, tmp_path):
    with pytest.raises(StorageError, match=f"{SHA256}, but {'0' * 64} was published"):
        download_file(Download(archive.url, "0" * 64), tmp_path)
    assert not (tmp_path / "archive.tgz").exists()
    assert not (tmp_path / "archive.tgz.part").exists()
    assert download_file(archive, tmp_path).read_bytes() == CONTENT


def test_a_busy_server_is_asked_again_and_a_refusal_is_not(web, archive, tmp_path):
    web.statuses = [503, 503, 200]
    assert download_file(archive, tmp_path, pause=0).read_bytes() == CONTENT
    web.requests.clear()
    with pytest.raises(StorageError, match="404"):
        download_file(Download(web.url("nothing.tgz")), tmp_path, pause=0)
    assert len(web.requests) == 1


def test_a_place_that_cannot_be_written_to_is_named(web, archive, tmp_path):
    (tmp_path / "archive.tgz.part").mkdir()
    with pytest.raises(StorageError, match=r"archive\.tgz\.part could not be written: Is a directory"):
        download_file(archive, tmp_path, pause=0)


def test_progress_counts_every_byte_once(web, archive, tmp_path):
    from contextlib import contextmanager

    told = []

    @contextmanager
    def progress(name, total, unit):
        told.append(total)
        yield told.append

    web.break_after = [250_000]
    download_file(archive, tmp_path, progress, pause=0)
    assert told[0] == len(CONTENT)
    assert sum(told[1:]) == len(CONTENT)


def test_only_the_web_is_downloaded_from():
    with pytest.raises(UsageError, match="http"):
        Download("file:///etc/passwd")


def test_the_name_of_a_file_is_never_a_path():
    assert Download("http://host/a/b%2F..%2Fc.tgz?x=1").name == "c.tgz"


def test_a_page_lists_its_archives_once_and_in_order(web):
    web.files["list/"] = b'<a href="b.tgz">b</a> <a href="a.tgz">a</a> <a href="a.tgz">A</a> <a href="../">up</a>'
    web.statuses = [503]
    found = list_downloads(web.url("list/"), ".tgz", pause=0)
    assert [download.url for download in found] == [web.url("list/a.tgz"), web.url("list/b.tgz")]
    with pytest.raises(StorageError, match="404"):
        list_downloads(web.url("none/"), ".tgz", pause=0)
