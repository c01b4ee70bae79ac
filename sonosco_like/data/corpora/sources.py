"""Where a corpus comes from: a folder, archives on the disk, or the web; in the end unpacked folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sonosco_like.data.corpora.download import Download, fetch
from sonosco_like.data.corpora.extraction import ARCHIVE_SUFFIXES, archive_stem, extract_archive, is_archive
from sonosco_like.data.tools.progress import Progress
from sonosco_like.errors import UsageError

DOWNLOADS, UNPACKED = "downloads", "unpacked"


def unpack_downloads(target: Path, downloads: Sequence[Download], progress: Progress) -> list[Path]:
    """Get and unpack archives one after the other; what a former run has unpacked is not fetched again."""
    folders = [target / UNPACKED / archive_stem(download.name) for download in downloads]
    for download, folder in zip(downloads, folders, strict=True):
        if not folder.exists():
            archive = fetch(download, target / DOWNLOADS, progress)
            extract_archive(archive, folder, progress)
            archive.unlink()
    return folders


def unpack_source(
    target: Path, source: Path, is_corpus: Callable[[Path], bool], force: bool, progress: Progress
) -> list[Path]:
    """The folder itself if it is the corpus, else what its archives, or the one archive, hold."""
    if source.is_dir():
        archives = sorted(filter(is_archive, source.iterdir()))
        if not archives or is_corpus(source):
            return [source]
    elif is_archive(source):
        archives = [source]
    else:
        state = "is neither a folder nor an archive" if source.exists() else "does not exist"
        raise UsageError(f"The source {source} {state}. Archives end with {', '.join(ARCHIVE_SUFFIXES)}.")
    folders = [target / UNPACKED / archive_stem(archive.name) for archive in archives]
    for archive, folder in zip(archives, folders, strict=True):
        if force or not folder.exists():
            extract_archive(archive, folder, progress)
    return folders
