"""Classes and functions that hostile files aim at, and what the attacks share."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sonosco_like.serialization import REGISTRY, loads, serializable, state

FILES = ("trainer.yaml", "state.yaml", "tensors.safetensors")


@serializable
class Part:
    size: int = 1
    label: str = ""
    visits: int = state(0)


@serializable
def harmless(value: int = 0) -> int:
    return value


@serializable
class Target:
    """One field for every door a file might try."""

    number: int = 0
    name: str = ""
    listed: list[Any] = field(default_factory=list)
    mapping: dict[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None
    device: torch.device | None = None
    dtype: torch.dtype | None = None
    place: Path | None = None
    part: Part | None = None
    choice: Part | dict[str, Any] | None = None
    anything: Any = None
    seen: int = state(0)
    tensor: Any = state(None)
    friend: Part | None = state(None)


@serializable
class Model(nn.Module):
    size: int = 3

    def __post_init__(self) -> None:
        self.linear = nn.Linear(self.size, self.size)


@serializable(version=2)
class Renewed:
    """A class with a second version: what a file says of the first one passes through code."""

    content: Any = None

    @staticmethod
    def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
        return dict(fields)


class _Watch:
    """Notes what Python reports about itself while a hostile file is read."""

    FORBIDDEN = (
        "import", "exec", "compile", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile",
        "subprocess.Popen",
        "pickle.find_class", "marshal.loads", "ctypes.dlopen", "socket.connect", "socket.getaddrinfo",
        "urllib.Request", "shutil.rmtree", "shutil.move",
        "shutil.copyfile", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.chmod",
        "os.putenv",
    )  # fmt: skip

    def __init__(self) -> None:
        self.watching = False
        self.heard: list[str] = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if event in self.FORBIDDEN or writes:
            self.heard.append(f"{event} {arguments[:2]!r}")


_WATCH = _Watch()


@contextmanager
def nothing_is_executed_or_written() -> Iterator[None]:
    """Fail if reading runs, imports or writes anything. What Python needs for any text at all happens before."""
    warm_up()
    _WATCH.heard.clear()
    _WATCH.watching = True
    try:
        yield
    finally:
        _WATCH.watching = False
    assert not _WATCH.heard, _WATCH.heard


@functools.cache
def warm_up() -> None:
    """Have every room imported, every annotation of the classes above resolved, and the codec of UTF-8 loaded."""
    REGISTRY.registrations()
    loads(b"class: attack_targets.Target\nfunction: {function: attack_targets.harmless, value: 1}\npart: {size: 1}\n")
    loads("class: attack_targets.Model\n")
    loads("class: attack_targets.Renewed@1\n")


def seal(folder: Path) -> None:
    """Make the hashes in a folder fit its files, as an attacker who knows the format would."""
    body = (folder / "state.yaml").read_bytes().rpartition(b"sha256: ")[0]
    lines = body.split(b"\n")
    for index, line in enumerate(lines):
        for name in ("trainer.yaml", "tensors.safetensors"):
            if line.startswith(f"  {name}: ".encode()) and (folder / name).is_file():
                lines[index] = f"  {name}: {hashlib.sha256((folder / name).read_bytes()).hexdigest()}".encode()
    body = b"\n".join(lines)
    (folder / "state.yaml").write_bytes(body + b"sha256: " + hashlib.sha256(body).hexdigest().encode() + b"\n")


def said_plainly(error: BaseException) -> str:
    """The message, which must be short and printable whatever was in the file."""
    message = str(error)
    assert message.strip()
    assert len(message) < 20_000
    assert all(character.isprintable() or character in "\n\t" for character in message), ascii(message)
    return message
