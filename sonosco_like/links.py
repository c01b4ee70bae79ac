"""Nothing in a folder may lead out of it: what others put into a folder is looked at before anything is written there.

A link in the place of a file or folder that is written, cut or deleted would have that done elsewhere. Whatever writes
to a run folder, also a package of others, is safe once what it writes to was looked through.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from sonosco_like.errors import StorageError, UsageError

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def refuse_links(folder: Path, names: Iterable[str], but_in: str = "") -> None:
    """Raise UsageError if one of these in a folder is a link, or no file or folder, or holds a link that leads away.

    The folder itself may be a link. A link further inside may lead to its neighbours, as those of Weights & Biases do.
    Nothing is looked for in folders whose names match the pattern `but_in`: they are not written to.
    """
    for path, found in _entries(folder, names, but_in):
        if stat.S_ISLNK(found.st_mode) and _leads_away(path, folder):
            raise UsageError(
                f"{path} is a link to {path.readlink()}, and links in a run folder or a corpus are not followed: "
                "a stranger's would have your own files written over or deleted. Put the real thing in its place; to "
                f"keep everything on another disk, make the whole of {folder} a link."
            )
        if stat.S_IFMT(found.st_mode) in _KINDS:
            kind = _KINDS[stat.S_IFMT(found.st_mode)]
            raise UsageError(f"{path} is {kind}, and only files and folders belong in {folder}. Remove it.")


def own_files(folder: Path, names: Iterable[str]) -> None:
    """Replace each file of these in a folder that is elsewhere too, under a hard link, by a copy of it."""
    for path, found in _entries(folder, names):
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            _copy_in_place(path)


def open_own(path: Path) -> int:
    """A descriptor of a file to read and write, made if it is not there; never that of another by a link."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if path.is_symlink():
        raise UsageError(f"{path} is a link to {path.readlink()}, which would be written over. Remove it.")
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        raise StorageError(f"{path} could not be opened: {error.strerror or error}.") from error
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    what = "is no file" if not stat.S_ISREG(found.st_mode) else "is a hard link, and another file would change with it"
    raise UsageError(f"{path} {what}. Remove it.")


def _entries(folder: Path, names: Iterable[str], but_in: str = "") -> Iterator[tuple[Path, os.stat_result]]:
    """What is called so in a folder, and all below it, with what it is; what others delete meanwhile is left out."""
    waiting = [folder / name for name in names]
    while waiting:
        path = waiting.pop()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and not fnmatchcase(path.name, but_in):
                waiting += path.iterdir()
            yield path, found


def _leads_away(link: Path, folder: Path) -> bool:
    """Whether a link leads out of that part of a folder, such as `wandb`, in which it is."""
    parts = link.relative_to(folder).parts
    part = (folder / parts[0]).resolve()
    return len(parts) == 1 or not Path(os.path.realpath(link)).is_relative_to(part)


def _copy_in_place(path: Path) -> None:
    aside = path.with_name(f".{path.name}.own")
    try:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
        with path.open("rb") as source, aside.open("xb") as target:
            shutil.copyfileobj(source, target)
        shutil.copystat(path, aside)
        aside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        said = f"{path} is a hard link, and could not be made a file of its own: {error.strerror or error}."
        raise StorageError(said) from error
