"""Synthetic speakers: their voices, their foreign accents, and how they speak an utterance.

A voice is an espeak-ng accent and a variant, such as `gmw/en-US+f3`. Splits differ in their variants, not only in the
pairs: the same throat with another accent is not a new speaker. Neither is a variant that differs from another in a
detail, so such variants are kept together as families.

A foreign accent replaces some sounds of English by the nearest sounds of another language: espeak-ng turns a text into
its English phonemes (in its own notation), some of these are replaced here, and espeak-ng then speaks the result. A
speaker is consistent: a speaker who pronounces "three" as "sree" always does so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import soxr
from numpy.random import Generator
from numpy.typing import NDArray

from sonosco_like.data.corpora import espeak
from sonosco_like.data.corpora.channel import SAMPLE_RATE, Samples
from sonosco_like.data.corpora.espeak import Espeak, Prosody

ACCENTS = (
    "gmw/en",
    "gmw/en-029",
    "gmw/en-GB-scotland",
    "gmw/en-GB-x-gbclan",
    "gmw/en-GB-x-gbcwmd",
    "gmw/en-GB-x-rp",
    "gmw/en-US",
    "gmw/en-US-nyc",
)

_HIGH_FAMILIES = (
    "Andrea", "Annie", "anika", "aunty, belinda, f4, linda", "f1", "f2, f5", "f3", "grandma", "shelby",
    "steph, steph2, steph3",
)  # fmt: skip
_LOW_FAMILIES = (
    "Alex", "Andy", "Denis", "Diogo, Henrique, Hugo, michel, miguel", "Gene, Gene2", "Jacky", "Mario, Michael",
    "Mike, m3, mike2", "john, Mr serious, Tweaky, norbert", "Nguyen, m7, m8", "Reed", "Storm",
    "adam, benjamin, klatt6", "antonio", "boris", "david", "ed", "edward, edward2", "grandpa", "gustave, marcelo",
    "iven, iven2, iven3, iven4", "klatt, klatt2, klatt3", "klatt4, klatt5", "m1", "m2", "m4", "m5", "m6", "max",
    "pablo", "paul", "pedro", "quincy", "rob, robert", "sandro", "travis", "victor",
)  # fmt: skip

_ROBOT = "a robot: metallic echo or flat melody"
_ECHO = "an echo as in a station hall, which repeats words"
_UNVOICED = "breath without voice"
_MISHEARD = "more than half of its digits are misheard by a recogniser trained on people"
LEFT_OUT = {
    "gmw/en-Shaw": "it reads the Shavian alphabet, not Latin letters",
    **dict.fromkeys(("UniRobot", "anikaRobot", "robosoft", *(f"robosoft{n}" for n in range(2, 9))), _ROBOT),
    **dict.fromkeys(("RicishayMax", "RicishayMax2", "RicishayMax3", "announcer"), _ECHO),
    **dict.fromkeys(("caleb", "whisper", "whisperf"), _UNVOICED),
    **dict.fromkeys(("Alicia", "AnxiousAndy", "Lee", "Marco", "ian", "kaukovalta", "zac"), _MISHEARD),
    "croak": "a hoarse croak without a pitch",
    "Demonic": "a monster",
    "fast": "the plain voice with a limit on speed that its authors call unstable",
}


def families() -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Groups of variants that sound alike; high voices first, then low voices."""
    return tuple(
        tuple(tuple(family.split(", ")) for family in group) for group in (_HIGH_FAMILIES, _LOW_FAMILIES)
    )  # fmt: skip


def split_variants(random: Generator) -> dict[str, list[str]]:
    """Variants for each split: of high and low families, a tenth each for `val` and `test`, the others for `train`."""
    variants: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for group in families():
        tenth = max(1, round(len(group) / 10))
        for place, position in enumerate(random.permutation(len(group))):
            split = "val" if place < tenth else "test" if place < 2 * tenth else "train"
            variants[split] += group[position]
    return variants


def draw_voices(variants: Sequence[str], random: Generator) -> Iterator[str]:
    """An endless sequence of voices: every variant once in each round, with a drawn accent."""
    while True:
        for position in random.permutation(len(variants)):
            yield f"{ACCENTS[int(random.integers(len(ACCENTS)))]}+{variants[position]}"


SHARE = 0.6  # of speakers who have an accent, like most people who speak English
_HABIT = 0.4  # probability of each replacement in the speech of a speaker with an accent
_SOUND = re.compile(r"(aI@|tS|dZ|[td]\[|[eaO]I|[ao]U|[aiuAO3]:|[iUOoAeE]@|.)([#24-9]*)")  # and marks of its shades
_REPLACED: dict[str, tuple[str, ...]] = {
    "T": ("s", "t", "f", "t[", "ts"),  # three: sree, tree, free
    "D": ("d", "z", "d["),
    "w": ("v", "B"),  # one: von
    "v": ("f", "w", "B"),  # seven: sefen
    "z": ("s", "ts"),  # zero: sero, tsero
    "r": ("R", "*", "Q"),  # rolled, tapped, in the throat
    "V": ("a", "a:", "O", "@"),  # one: wan
    "0": ("O", "a", "o"),
    "I": ("i", "i:"),  # six: seeks
    "i:": ("i", "I"),
    "u:": ("u", "U"),
    "U": ("u", "u:"),
    "eI": ("e:", "e", "E"),  # eight: et
    "oU": ("o:", "o", "O"),
    "i@": ("i:", "e:", "E", "i"),  # zero: zehro
    "o@": ("O:", "o:", "O:R", "o*"),  # four: for with a rolled r
    "O@": ("O:", "o:", "O:R", "o*"),
    "@": ("E", "e", "I"),  # seven: seh-ven
    "E": ("e", "a", "e:"),
    "a": ("E", "a:"),
    "aI": ("a:I", "aE"),
    "t": ("t[", "th", "ts"),  # two: t-hoo, tsoo
    "d": ("d[",),
    "k": ("kh",),
    "h": ("x",),
    "S": ("s",),
    "tS": ("S",),
}
_DEVOICED = {"v": "f", "z": "s", "d": "t", "b": "p", "g": "k", "dZ": "tS"}
_END_OF_WORD = re.compile(r"(dZ|[vzdbg])(?= |$)")


@dataclass(frozen=True, slots=True)
class Accent:
    """The phonemes that a speaker replaces, and whether consonants at the end of a word become voiceless."""

    replaced: dict[str, str]
    devoices: bool

    def apply(self, sounds: str) -> str:
        """The phonemes as this speaker pronounces them."""
        if self.devoices:
            sounds = _END_OF_WORD.sub(lambda match: _DEVOICED[match[1]], sounds)
        return _SOUND.sub(lambda match: self.replaced.get(match[1], match[0]), sounds)


def draw_accent(random: Generator) -> Accent | None:
    """The accent of a speaker, or none."""
    if random.random() >= SHARE:
        return None
    replaced = {
        sound: others[int(random.integers(len(others)))]
        for sound, others in _REPLACED.items()
        if random.random() < _HABIT
    }
    return Accent(replaced, devoices=random.random() < _HABIT)


_TRACT = (0.82, 1.2)  # from the throat of a child to a very long one
_FADE = int(0.003 * espeak.SAMPLE_RATE)  # samples over which a phrase fades in and out, so that its edges do not click
_INTONATIONS = ("", "", ",", "?", "!")  # a list in progress, a question, an order: punctuation changes the melody


@dataclass(frozen=True, slots=True)
class Speaker:
    """The habits of one speaker. `tract` stretches the spectrum like a longer or shorter throat."""

    voice: str
    speed: float
    pitch: float
    pitch_range: float
    tract: float
    accent: Accent | None


def draw_speaker(voice: str, random: Generator) -> Speaker:
    """The habits of a speaker with this voice."""
    return Speaker(
        voice=voice,
        speed=random.uniform(80.0, 180.0),
        pitch=random.uniform(25.0, 75.0),
        pitch_range=random.uniform(15.0, 85.0),
        tract=random.uniform(*_TRACT),
        accent=draw_accent(random),
    )


def say(engine: Espeak, speaker: Speaker, text: str, random: Generator) -> Samples:
    """An utterance at 16 kHz between two silences: spoken in one breath, word by word, or between these."""
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
    """The words in groups that are spoken without a pause."""
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
        phrase = f"[[{speaker.accent.apply(engine.phonemes_of(phrase))}]]"
    samples = engine.speak(phrase + intonation, prosody).astype(np.float32)
    ramp = np.linspace(0.0, 1.0, min(_FADE, len(samples) // 2), dtype=np.float32)
    samples[: len(ramp)] *= ramp
    samples[len(samples) - len(ramp) :] *= ramp[::-1]
    return samples


def _silence(seconds: float) -> NDArray[np.float32]:
    return np.zeros(int(seconds * espeak.SAMPLE_RATE), np.float32)
