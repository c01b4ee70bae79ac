"""Speech from text by espeak-ng, which runs in a separate process.

The library is under the GPL and comes with the extra `synth`; nothing of it is loaded here (see NOTICE). A process of
`espeak_process.py` answers requests through a pipe, and ends when the pipe is closed, also if its owner is killed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonosco_like.errors import DataError, MissingPackageError, did_you_mean
from sonosco_like.process import block_signals

SAMPLE_RATE = 22_050
_PROGRAM = Path(__file__).with_name("espeak_process.py")
_RATE, _VOLUME, _PITCH, _RANGE, _WORD_GAP = 1, 2, 3, 4, 7
_QUIET = 25  # percent; at the full volume a third of the voices clip


@dataclass(frozen=True, slots=True)
class Prosody:
    """Words per minute, pitch and its range (0 to 99; 50 is that of the voice), and gap between words in 10 ms."""

    speed: int = 175
    pitch: int = 50
    pitch_range: int = 50
    word_gap: int = 0


class Espeak:
    """One process with the library, for a `with`. Its speech is a pure function of the calls since `restart`."""

    def __init__(self) -> None:
        self._process = _start_process()
        self.restart()

    def restart(self) -> None:
        """Load the library again, so that earlier speech has no influence."""
        rate, _ = self._ask("start")
        if rate != SAMPLE_RATE:
            self.close()
            raise MissingPackageError(
                f"espeak-ng did not start with its data (it answered {rate}, expected {SAMPLE_RATE}). "
                "Install it again: pip install --force-reinstall espeakng-loader"
            )

    def set_voice(self, name: str) -> None:
        """Speak as `accent+variant` from now on, such as `gmw/en-US+f3`."""
        known, _ = self._ask("set_voice", name)
        if not known:
            accents, variants = self.voice_names()
            names = [*accents, *(f"{accent}+{variant}" for accent in accents for variant in variants)]
            raise DataError(f"espeak-ng has no voice {name!r}{did_you_mean(name, names)}")

    def voice_names(self) -> tuple[list[str], list[str]]:
        """All English accents and all variants of this espeak-ng; any accent goes with any variant."""
        (accents, variants), _ = self._ask("voices")
        return accents, variants

    def phonemes_of(self, text: str) -> str:
        """The phonemes of a text in the current voice, in espeak's notation; `speak` reads them in `[[...]]`."""
        phonemes, _ = self._ask("phonemes_of", text)
        return str(phonemes)

    def speak(self, text: str, prosody: Prosody) -> NDArray[np.int16]:
        """The sound of a text at `SAMPLE_RATE`."""
        parameters = (
            (_RATE, prosody.speed),
            (_VOLUME, _QUIET),
            (_PITCH, prosody.pitch),
            (_RANGE, prosody.pitch_range),
            (_WORD_GAP, prosody.word_gap),
        )
        status, sound = self._ask("speak", text, parameters)
        samples = np.frombuffer(sound, np.int16)
        if status != 0 or not samples.any():
            raise DataError(f"espeak-ng made no sound of {text!r} (status {status}). Does the text hold words?")
        return samples

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # of a process that has ended
                pipe.close()
        self._process.wait()

    def __enter__(self) -> Espeak:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, *request: Any) -> tuple[Any, bytes]:
        """The answer to a request, and the sound that belongs to it."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        try:
            questions.write(json.dumps(request).encode() + b"\n")
            questions.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise DataError(f"The process of espeak-ng ended ({self._process.wait()}) while it answered {request}.")
        answer, length = json.loads(line)
        return answer, answers.read(length)


def require_espeak() -> Path:
    """The folder in which Python finds the package with espeak-ng; an error with the remedy if it is missing."""
    try:
        spec = importlib.util.find_spec("espeakng_loader")
    except ImportError:
        spec = None
    if spec is None or spec.origin is None:
        raise MissingPackageError(
            "Synthetic speech needs the package espeakng-loader, which is not installed. "
            "Install it with: pip install 'sonosco_like[synth]'"
        )
    return Path(spec.origin).parents[1]


def _start_process() -> subprocess.Popen[bytes]:
    """Start a bare Python, which is ready at once; it leaves Ctrl-C to this process from the beginning."""
    command = [sys.executable, "-I", "-S", str(_PROGRAM), str(require_espeak())]
    with block_signals():
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - a program of ours
