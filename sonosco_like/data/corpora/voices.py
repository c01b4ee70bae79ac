"""Which espeak-ng voices speak in synthetic corpora, and which of them in which split.

A voice is an accent and a variant, such as `gmw/en-US+f3`. Splits differ in their variants, not only in the pairs: the
same throat with another accent is not an unheard speaker. Neither is a variant that differs from another in a detail,
so these are kept together as families.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from numpy.random import Generator

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
_ECHO = "an echo as in a station hall, which says words twice"
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
    """Variants that sound alike, in groups; high voices first, then low ones."""
    return tuple(
        tuple(tuple(family.split(", ")) for family in group) for group in (_HIGH_FAMILIES, _LOW_FAMILIES)
    )  # fmt: skip


def split_variants(random: Generator) -> dict[str, list[str]]:
    """Variants for each split: of high and of low families a tenth for `val`, a tenth for `test`, most to train."""
    variants: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for group in families():
        tenth = max(1, round(len(group) / 10))
        for place, position in enumerate(random.permutation(len(group))):
            split = "val" if place < tenth else "test" if place < 2 * tenth else "train"
            variants[split] += group[position]
    return variants


def draw_voices(variants: Sequence[str], random: Generator) -> Iterator[str]:
    """Voices without end: every variant once in each round, with an accent drawn for it."""
    while True:
        for position in random.permutation(len(variants)):
            yield f"{ACCENTS[int(random.integers(len(ACCENTS)))]}+{variants[position]}"
