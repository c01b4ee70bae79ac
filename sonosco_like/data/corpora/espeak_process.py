"""The process that holds espeak-ng, a library under the GPL; no other process of ours loads it.

`espeak.py` starts this file as a separate program, with the folder in which Python finds `espeakng_loader`. It imports
nothing of this package. Requests are lines of JSON on the standard input, such as `["set_voice", "gmw/en"]`; the answer
is a line of JSON with the number of bytes of sound, and then these bytes. The program ends with its input, so also when
its owner is killed.

The library has one global state and three habits that are corrected here: an unknown accent silently keeps the former
voice, an unknown variant is silently dropped, and the sound of a sentence depends on the time of day and on all earlier
sentences. So a voice is read back after it was set, and `start` really loads the library again.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

_SYNCHRONOUS = 2  # audio goes to the callback, no sound device is opened
_DO_NOT_EXIT = 0x8000  # a missing data folder gives an error code and does not end the process
_UTF8 = 1
_PHONEMES = 0x100  # text in double brackets is phonemes, not spelling
LONGEST_PATH = 159  # the library cuts longer data paths
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class _Voice(ctypes.Structure):
    """`espeak_VOICE` of speak_lib.h."""

    _fields_: ClassVar = [
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_char_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    ]


class Engine:
    """The library, and one method for each request; a method returns its answer and the sound."""

    def __init__(self, loader: Any) -> None:
        self._library_path: str = loader.get_library_path()
        self._data = Path(loader.get_data_path())
        self._chunks: list[bytes] = []
        self._callback = _Callback(self._receive)
        self._loaded = contextlib.ExitStack()
        self._library: Any = None

    def start(self) -> tuple[Any, bytes]:
        """Load the library with a fresh state; the answer is the rate of its sound."""
        self.close()
        data = self._loaded.enter_context(short_path(self._data))
        self._library = library = ctypes.CDLL(self._library_path)
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        library.espeak_GetCurrentVoice.restype = ctypes.POINTER(_Voice)
        rate = library.espeak_Initialize(_SYNCHRONOUS, 0, os.fsencode(data), _DO_NOT_EXIT)
        library.espeak_SetSynthCallback(self._callback)
        _fix_randomness(library)
        return rate, b""

    def set_voice(self, name: str) -> tuple[Any, bytes]:
        """Set a voice; the answer is whether it exists."""
        status = self._library.espeak_SetVoiceByName(name.encode())
        current = self._library.espeak_GetCurrentVoice().contents.identifier.decode()
        return status == 0 and current == name, b""

    def voices(self) -> tuple[Any, bytes]:
        """All English accents, and all variants."""
        accents = sorted(f"gmw/{path.name}" for path in (self._data / "lang" / "gmw").glob("en*"))
        return [accents, sorted(path.name for path in (self._data / "voices" / "!v").iterdir())], b""

    def phonemes_of(self, text: str) -> tuple[Any, bytes]:
        """The phonemes of a text in the current voice."""
        rest, sounds = ctypes.c_char_p(text.encode()), []
        while rest:  # clause by clause
            sounds.append(self._library.espeak_TextToPhonemes(ctypes.byref(rest), _UTF8, 0).decode().strip())
        return " ".join(sounds), b""

    def speak(self, text: str, parameters: list[tuple[int, int]]) -> tuple[Any, bytes]:
        """Speak a text; the answer is the status of the library."""
        for parameter, value in parameters:
            self._library.espeak_SetParameter(parameter, value, 0)
        self._chunks.clear()
        encoded = text.encode()
        status = self._library.espeak_Synth(encoded, len(encoded) + 1, 0, 0, 0, _UTF8 | _PHONEMES, None, None)
        return status, b"".join(self._chunks)

    def close(self) -> None:
        """Unload the library."""
        if self._library is not None:
            self._library.espeak_Terminate()
            _unload(self._library)
            self._library = None
        self._loaded.close()

    def _receive(self, samples: Any, count: int, events: int | None) -> int:
        if count > 0:
            self._chunks.append(ctypes.string_at(samples, count * 2))
        return 0


@contextlib.contextmanager
def short_path(data: Path) -> Iterator[Path]:
    """The data folder under a path that is short enough for the library."""
    if len(os.fsencode(data)) <= LONGEST_PATH:
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="espeak-") as folder:
        link = Path(folder) / data.name
        link.symlink_to(data, target_is_directory=True)
        yield link


def _fix_randomness(library: ctypes.CDLL) -> None:
    """Seed the noise of breath: most voices take it from a generator seeded by the time, some from the C library."""
    library.espeak_ng_SetRandSeed(ctypes.c_long(1))
    if os.name == "posix":
        ctypes.CDLL(None).srand(1)


def _unload(library: ctypes.CDLL) -> None:
    if os.name == "nt":
        _ctypes.FreeLibrary(library._handle)  # type: ignore[attr-defined,unused-ignore]
    else:
        _ctypes.dlclose(library._handle)


def _answer_requests(engine: Engine, requests: BinaryIO, answers: BinaryIO) -> None:
    for line in requests:
        name, *arguments = json.loads(line)
        answer, sound = getattr(engine, name)(*arguments)
        answers.write(json.dumps([answer, len(sound)]).encode() + b"\n" + sound)
        answers.flush()


def main(folder: str) -> None:
    """Answer until the input ends. Ctrl-C, which reaches all processes of a terminal, is left to the owner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the library must not mix with the answers
    sys.path.append(folder)
    import espeakng_loader

    engine = Engine(espeakng_loader)
    with contextlib.closing(engine), contextlib.suppress(BrokenPipeError):
        _answer_requests(engine, sys.stdin.buffer, answers)
    os._exit(0)  # the remaining answers are not read


if __name__ == "__main__":
    main(sys.argv[1])
