"""How a synthetic speaker talks: the voice, its habits, and one utterance in it with pauses where people make them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import soxr
from numpy.random import Generator
from numpy.typing import NDArray

from sonosco_like.data.corpora import espeak
from sonosco_like.data.corpora.accents import Accent, draw_accent
from sonosco_like.data.corpora.channel import SAMPLE_RATE, Samples
from sonosco_like.data.corpora.espeak import Espeak, Prosody

_TRACT = (0.82, 1.2)  # from a child's throat to one longer than any
_FADE = int(0.003 * espeak.SAMPLE_RATE)  # seconds over which a phrase comes and goes, so that its edges do not click
_INTONATIONS = ("", "", ",", "?", "!")  # a list in progress, a question, an order: punctuation bends the melody


@dataclass(frozen=True, slots=True)
class Speaker:
    """Habits of one speaker. `tract` stretches the spectrum as a longer or shorter throat would."""

    voice: str
    speed: float
    pitch: float
    pitch_range: float
    tract: float
    accent: Accent | None


def draw_speaker(voice: str, random: Generator) -> Speaker:
    """The habits of somebody with this voice."""
    return Speaker(
        voice=voice,
        speed=random.uniform(80.0, 180.0),
        pitch=random.uniform(25.0, 75.0),
        pitch_range=random.uniform(15.0, 85.0),
        tract=random.uniform(*_TRACT),
        accent=draw_accent(random),
    )


def say(engine: Espeak, speaker: Speaker, text: str, random: Generator) -> Samples:
    """An utterance at 16 kHz, between two silences: some in one breath, some word by word, some between these."""
    phrases = _phrases(text.split(), random)
    parts = [_silence(random.uniform(0.05, 0.5))]
    for number, phrase in enumerate(phrases):
        if number:
            parts.append(_silence(float(np.clip(random.lognormal(-1.7, 0.7), 0.02, 1.0))))
        parts.append(_say_phrase(engine, speaker, phrase, random))
    parts.append(_silence(random.uniform(0.05, 0.5)))
    voice = np.concatenate(parts).astype(np.float32)
    voice /= np.abs(voice).max()
    resampled: Samples = soxr.resample(voice, espeak.SAMPLE_RATE * speaker.tract, SAMPLE_RATE)
    return resampled


def _phrases(words: list[str], random: Generator) -> list[str]:
    """The words in groups said without a pause."""
    pause_probability = (0.0, 1.0, random.random())[int(random.choice(3, p=[0.35, 0.4, 0.25]))]
    phrases = [words[:1]]
    for word in words[1:]:
        if random.random() < pause_probability:
            phrases.append([])
        phrases[-1].append(word)
    return [" ".join(phrase) for phrase in phrases]


def _say_phrase(engine: Espeak, speaker: Speaker, phrase: str, random: Generator) -> NDArray[np.float32]:
    prosody = Prosody(
        speed=round(speaker.speed * random.uniform(0.9, 1.1)),
        pitch=round(speaker.pitch + random.uniform(-6.0, 6.0)),
        pitch_range=round(speaker.pitch_range + random.uniform(-10.0, 10.0)),
        word_gap=int(random.integers(4)),
    )
    intonation = _INTONATIONS[int(random.integers(len(_INTONATIONS)))]
    if speaker.accent:
        phrase = f"[[{speaker.accent.apply(engine.sounds_of(phrase))}]]"
    samples = engine.speak(phrase + intonation, prosody).astype(np.float32)
    ramp = np.linspace(0.0, 1.0, min(_FADE, len(samples) // 2), dtype=np.float32)
    samples[: len(ramp)] *= ramp
    samples[len(samples) - len(ramp) :] *= ramp[::-1]
    return samples


def _silence(seconds: float) -> NDArray[np.float32]:
    return np.zeros(int(seconds * espeak.SAMPLE_RATE), np.float32)
