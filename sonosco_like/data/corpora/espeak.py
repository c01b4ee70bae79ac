"""Speech from text: the espeak-ng library inside the wheel `espeakng-loader`, driven through ctypes.

The library keeps one global state per process, is not thread safe, and three of its habits are hidden here:
an unknown accent silently keeps the former voice, an unknown variant is silently dropped, and the sound of a sentence
depends on the time of day and on all that was said before it. So a voice is read back after it was set, and closing
really unloads the library: what a fresh `Espeak` says is a pure function of the calls made on it.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sonosco_like.errors import DataError, MissingPackageError, UsageError, did_you_mean

SAMPLE_RATE = 22_050
_SYNCHRONOUS = 2  # audio goes to the callback, no sound device is opened
_DO_NOT_EXIT = 0x8000  # a missing data folder is an error code, not the end of the process
_UTF8 = 1
_SOUNDS = 0x100  # what stands in double brackets is not spelling but sounds
_RATE, _VOLUME, _PITCH, _RANGE, _WORD_GAP = 1, 2, 3, 4, 7
_QUIET = 25  # percent; at the full volume a third of the voices clip
_LONGEST_PATH = 159  # a longer data path is cut by the library
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


@dataclass(frozen=True, slots=True)
class Prosody:
    """How something is said: words per minute, pitch and its range (0 to 99, 50 is the voice's own), gap in 10 ms."""

    speed: int = 175
    pitch: int = 50
    pitch_range: int = 50
    word_gap: int = 0


class Espeak:
    """One loaded library; at most one per process at a time. Use it in a `with`."""

    _open: ClassVar[bool] = False

    def __init__(self) -> None:
        if Espeak._open:
            raise UsageError("espeak-ng is already open in this process; close it first, or use another process.")
        self._chunks: list[bytes] = []
        self._callback = _Callback(self._receive)
        self._resources = contextlib.ExitStack()
        self._library = self._load()
        Espeak._open = True

    def set_voice(self, name: str) -> None:
        """Speak as `accent+variant` from now on, such as `gmw/en-US+f3`."""
        status = self._library.espeak_SetVoiceByName(name.encode())
        current = self._library.espeak_GetCurrentVoice().contents.identifier.decode()
        if status != 0 or current != name:
            accents, variants = voice_names()
            known = [*accents, *(f"{accent}+{variant}" for accent in accents for variant in variants)]
            raise DataError(f"espeak-ng has no voice {name!r}{did_you_mean(name, known)}")

    def sounds_of(self, text: str) -> str:
        """How the present voice pronounces a text, in the library's own notation; in `[[...]]` `speak` reads it."""
        rest, sounds = ctypes.c_char_p(text.encode()), []
        while rest:  # clause by clause
            sounds.append(self._library.espeak_TextToPhonemes(ctypes.byref(rest), _UTF8, 0).decode().strip())
        return " ".join(sounds)

    def speak(self, text: str, prosody: Prosody) -> NDArray[np.int16]:
        """The sound of a text at `SAMPLE_RATE`."""
        for parameter, value in (
            (_RATE, prosody.speed),
            (_VOLUME, _QUIET),
            (_PITCH, prosody.pitch),
            (_RANGE, prosody.pitch_range),
            (_WORD_GAP, prosody.word_gap),
        ):
            self._library.espeak_SetParameter(parameter, value, 0)
        self._chunks.clear()
        encoded = text.encode()
        status = self._library.espeak_Synth(encoded, len(encoded) + 1, 0, 0, 0, _UTF8 | _SOUNDS, None, None)
        samples = np.frombuffer(b"".join(self._chunks), np.int16)
        if status != 0 or not samples.any():
            raise DataError(f"espeak-ng made no sound of {text!r} (status {status}); is there anything to read aloud?")
        return samples

    def close(self) -> None:
        """Unload the library, so that the next one starts from nothing."""
        if Espeak._open:
            self._library.espeak_Terminate()
            _unload(self._library)
            self._resources.close()
            Espeak._open = False

    def __enter__(self) -> Espeak:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, samples: Any, count: int, events: int | None) -> int:
        if count > 0:
            self._chunks.append(ctypes.string_at(samples, count * 2))
        return 0

    def _load(self) -> ctypes.CDLL:
        loader = _loader()
        library = ctypes.CDLL(loader.get_library_path())
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        library.espeak_GetCurrentVoice.restype = ctypes.POINTER(_Voice)
        data = self._resources.enter_context(_short_path(Path(loader.get_data_path())))
        rate = library.espeak_Initialize(_SYNCHRONOUS, 0, str(data).encode(), _DO_NOT_EXIT)
        if rate != SAMPLE_RATE:
            raise MissingPackageError(
                f"espeak-ng did not start with its data in {data} (it answered {rate}, expected {SAMPLE_RATE}). "
                "Install it anew: pip install --force-reinstall espeakng-loader"
            )
        library.espeak_SetSynthCallback(self._callback)
        _fix_randomness(library)
        return library


def _fix_randomness(library: ctypes.CDLL) -> None:
    """Breath is noise: of most voices from a generator that begins with the time of day, of some from the C library."""
    library.espeak_ng_SetRandSeed(ctypes.c_long(1))
    if os.name == "posix":
        ctypes.CDLL(None).srand(1)


def voice_names() -> tuple[list[str], list[str]]:
    """All English accents and all variants that the installed espeak-ng has; any accent goes with any variant."""
    data = Path(_loader().get_data_path())
    accents = sorted(f"gmw/{path.name}" for path in (data / "lang" / "gmw").glob("en*"))
    return accents, sorted(path.name for path in (data / "voices" / "!v").iterdir())


def _loader() -> Any:
    try:
        import espeakng_loader
    except ImportError as error:
        raise MissingPackageError(
            f"Synthetic speech needs espeak-ng ({error}). Install it with: pip install espeakng-loader"
        ) from None
    return espeakng_loader


@contextlib.contextmanager
def _short_path(data: Path) -> Iterator[Path]:
    """The data folder under a name that the library does not cut."""
    if len(os.fsencode(data)) <= _LONGEST_PATH:
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="espeak-") as folder:
        link = Path(folder) / data.name
        link.symlink_to(data, target_is_directory=True)
        yield link


def _unload(library: ctypes.CDLL) -> None:
    if os.name == "nt":
        _ctypes.FreeLibrary(library._handle)  # type: ignore[attr-defined,unused-ignore]
    else:
        _ctypes.dlclose(library._handle)
