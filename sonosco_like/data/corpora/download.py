"""Downloading large files: a broken download is resumed, and a file is checked against its published checksum."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from sonosco_like.errors import StorageError, UsageError, as_sentence
from sonosco_like.progress import Advance, Progress, no_progress

_BLOCK = 1 << 18
_ATTEMPTS = 5  # in a row without a single new byte
_TIMEOUT = 60.0  # seconds without an answer
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
_NOTHING_LEFT = 416  # the answer to a range that begins at the end


@dataclass(frozen=True, slots=True)
class Download:
    """A file on the web, with its SHA-256 if that is known."""

    url: str
    sha256: str | None = None

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise UsageError(f"Only http and https are downloaded, got {self.url!r}.")

    @property
    def name(self) -> str:
        """The name of the file."""
        return Path(unquote(urlsplit(self.url).path)).name


def download_file(download: Download, folder: Path, progress: Progress = no_progress, pause: float = 1.0) -> Path:
    """The file in a folder, downloaded if it is missing.

    After a broken connection, also of a former run, the download continues after the last byte. After an attempt that
    received nothing there is a pause of `pause` seconds, which doubles each time.
    """
    path = folder / download.name
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with progress(f"downloading {path.name}", _size(download.url), "B") as advance:
        advance(_length(part))
        _receive_all(download.url, part, advance, pause)
    _check(download, part)
    part.replace(path)
    _validator(part).unlink(missing_ok=True)
    return path


def list_downloads(url: str, suffix: str, pause: float = 1.0) -> list[Download]:
    """The files with this suffix that a page on the web links to."""
    for attempt in range(_ATTEMPTS):
        try:
            with _open(url, {}) as response:
                page = response.read().decode("utf-8", "replace")
            break
        except _BROKEN as error:
            if attempt == _ATTEMPTS - 1 or _is_refusal(error):
                raise StorageError(f"{url} cannot be read: {as_sentence(error)}") from None
            time.sleep(pause * 2**attempt)
    links = _Links()
    links.feed(page)
    return [Download(link) for link in sorted({urljoin(url, link) for link in links.found}) if link.endswith(suffix)]


def _receive_all(url: str, part: Path, advance: Advance, pause: float) -> None:
    failed_attempts = 0
    while True:
        before = _length(part)
        try:
            return _receive(url, part, advance)
        except _BROKEN as error:
            failed_attempts = 0 if _length(part) > before else failed_attempts + 1
            if failed_attempts == _ATTEMPTS or _is_refusal(error):
                raise StorageError(
                    f"{url} cannot be downloaded: {as_sentence(error)} The received part is kept; the same command "
                    "continues it. Or get the file in another way, and give it with --source."
                ) from None
            time.sleep(pause * 2**failed_attempts)
        except OSError as error:  # of the disk; errors of the network are caught above
            raise StorageError(
                f"{part} could not be written: {error.strerror or error}. "
                "Make room, or choose another folder; the same command continues the download."
            ) from error


def _receive(url: str, part: Path, advance: Advance) -> None:
    """One connection: the rest of the file, or all of it if the server cannot resume or the file has changed."""
    have, validator = _length(part), _validator(part)
    headers = {}
    if have and validator.exists():
        headers = {"Range": f"bytes={have}-", "If-Range": validator.read_text()}
    try:
        response = _open(url, headers)
    except urllib.error.HTTPError as error:
        if error.code != _NOTHING_LEFT or error.headers.get("Content-Range") != f"bytes */{have}":
            raise
        return
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        validator.write_text(response.headers.get("ETag") or response.headers.get("Last-Modified") or "")
        if not validator.read_text():
            validator.unlink()
        if not resumed:
            advance(-have)
        expected = response.headers.get("Content-Length")
        received = 0
        with part.open("ab" if resumed else "wb") as stream:
            while block := response.read(_BLOCK):
                received += stream.write(block)
                advance(len(block))
    if expected is not None and received < int(expected):
        raise ConnectionError(f"the connection ended after {received} of {expected} bytes")


def _open(url: str, headers: dict[str, str], method: str = "GET") -> http.client.HTTPResponse:
    sent = {"User-Agent": "sonosco", **headers}
    request = urllib.request.Request(url, headers=sent, method=method)  # noqa: S310 - Download checks
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310
    return response


def _is_refusal(error: Exception) -> bool:
    """Whether the server refused the request; then another attempt is useless."""
    return isinstance(error, urllib.error.HTTPError) and error.code < http.HTTPStatus.INTERNAL_SERVER_ERROR


def _size(url: str) -> int | None:
    try:
        with _open(url, {}, "HEAD") as response:
            size = response.headers.get("Content-Length")
            return None if size is None else int(size)
    except _BROKEN:
        return None


def _check(download: Download, part: Path) -> None:
    if download.sha256 is None:
        return
    digest = hashlib.sha256()
    with part.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != download.sha256:
        part.unlink()
        raise StorageError(
            f"{download.url} has the SHA-256 {digest.hexdigest()}, but {download.sha256} was published. "
            "The file was removed. Try again; if the checksum stays wrong, do not trust the source."
        )


def _validator(part: Path) -> Path:
    """The path of the note with the server's mark of this version, so that two versions are never mixed."""
    return part.with_name(f"{part.name}.version")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


class _Links(HTMLParser):
    """Collects the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]
