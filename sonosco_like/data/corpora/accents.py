"""Foreign accents: sounds of English that a speaker replaces by the nearest ones of another language.

espeak-ng first turns a text into its English sounds (in its own notation), some of these are exchanged here, and it
then says the result. A speaker is consistent: whoever says "sree" for "three" says so each time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from numpy.random import Generator

SHARE = 0.6  # of speakers who have an accent, as most people who speak English do
_HABIT = 0.4  # probability of each habit in somebody with an accent
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
    """What a speaker says instead of some sounds, and whether consonants at the end of a word lose their voice."""

    replaced: dict[str, str]
    devoices: bool

    def apply(self, sounds: str) -> str:
        """The sounds as this speaker makes them."""
        if self.devoices:
            sounds = _END_OF_WORD.sub(lambda match: _DEVOICED[match[1]], sounds)
        return _SOUND.sub(lambda match: self.replaced.get(match[1], match[0]), sounds)


def draw_accent(random: Generator) -> Accent | None:
    """Somebody's accent, or none."""
    if random.random() >= SHARE:
        return None
    replaced = {
        sound: others[int(random.integers(len(others)))]
        for sound, others in _REPLACED.items()
        if random.random() < _HABIT
    }
    return Accent(replaced, devoices=random.random() < _HABIT)
