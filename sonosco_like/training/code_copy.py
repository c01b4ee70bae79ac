"""The code of a run, kept in its folder: the user's modules, and which version of this package ran them."""

from __future__ import annotations

import hashlib
import logging
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import sonosco_like.version
from sonosco_like.passwords import masked_urls
from sonosco_like.run_folder import CODE
from sonosco_like.serialization import files
from sonosco_like.version import __version__

logger = logging.getLogger(__name__)

VERSION = "sonosco_like.txt"
_PACKAGE = Path(sonosco_like.version.__file__).parent
_INSTALLED = ("site-packages", "dist-packages")
_LARGEST = 2**20


def copy_code(folder: Path, step: int = 0) -> list[Path]:
    """Copy every loaded module that is neither installed, nor Python's, nor ours into `code/`; returns the copies.

    At a later start what differs from the first copy is kept beside it, in `code/from-step-N/`, and named in the log.
    """
    target = folder / CODE
    begun = (target / VERSION).exists()
    sources = {path: _without_passwords(file) for path, file in user_modules().items()}
    sources[Path(VERSION)] = _our_version()
    changed = {path: content for path, content in sources.items() if not _holds(target / path, content)}
    if begun and changed:
        names = ", ".join(path.as_posix() for path in changed)
        target = target / f"from-step-{step:08d}"
        logger.warning("Code differs from when the run began: %s. It is kept in %s.", names, target)
    for path, content in changed.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        files.replace_file(target / path, content)
    return [target / path for path in changed]


def _without_passwords(file: Path) -> bytes:
    text = file.read_bytes().decode(errors="surrogateescape")
    return masked_urls(text).encode(errors="surrogateescape")


def user_modules() -> dict[Path, Path]:
    """The files of the user's loaded modules, each under the path an import would look for: `package/module.py`."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        file = _source_of(module) if name.partition(".")[0] != _PACKAGE.name else None
        if file is not None and not _is_installed(file) and file.stat().st_size <= _LARGEST:
            found[_place(name, file)] = file
    return found


def _source_of(module: ModuleType | None) -> Path | None:
    name = getattr(module, "__file__", None)
    file = Path(name) if isinstance(name, str) else None
    return file.resolve() if file is not None and file.suffix == ".py" and file.is_file() else None


def _is_installed(file: Path) -> bool:
    if any(part in _INSTALLED for part in file.parts):
        return True
    return any(file.is_relative_to(home) for home in _homes())


def _homes() -> Iterator[Path]:
    yield _PACKAGE.resolve()
    for name in ("stdlib", "platstdlib"):
        yield Path(sysconfig.get_paths()[name]).resolve()


def _place(name: str, file: Path) -> Path:
    """Where a module is kept. A script, whose name is `__main__`, keeps the name of its file."""
    if name == "__main__":
        return Path(file.name)
    parts = name.split(".")
    return Path(*parts, "__init__.py") if file.name == "__init__.py" else Path(*parts).with_suffix(".py")


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _our_version() -> bytes:
    """Version and a hash over our own sources, which tells an edited copy from a released one."""
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        digest.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return f"sonosco_like {__version__}\nsources {digest.hexdigest()[:16]}\n".encode()
