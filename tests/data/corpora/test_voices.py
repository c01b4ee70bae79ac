"""Who speaks in which split."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.data.corpora.espeak import Espeak
from sonosco_like.data.corpora.voices import ACCENTS, LEFT_OUT, draw_voices, families, split_variants

MEMBERS = [variant for group in families() for family in group for variant in family]


def test_every_installed_voice_is_either_used_or_left_out_for_a_reason():
    with Espeak() as engine:
        accents, variants = engine.voice_names()
    assert sorted([*ACCENTS, *MEMBERS, *LEFT_OUT]) == sorted([*accents, *variants])
    assert all(LEFT_OUT.values())


@given(seed=st.integers(0, 2**32))
def test_no_family_is_in_two_splits_and_each_split_has_high_and_low_voices(seed):
    splits = split_variants(np.random.default_rng(seed))
    assert sorted(variant for variants in splits.values() for variant in variants) == sorted(MEMBERS)
    for group in families():
        for family in group:
            assert sum(not set(family).isdisjoint(variants) for variants in splits.values()) == 1
        for variants in splits.values():
            assert any(set(family) <= set(variants) for family in group)
    assert len(splits["train"]) > 0.6 * len(MEMBERS)


def test_every_variant_speaks_once_before_any_speaks_twice():
    variants = ["f1", "m1", "m2"]
    voices = list(itertools.islice(draw_voices(variants, np.random.default_rng(0)), 6))
    spoken = [voice.partition("+")[2] for voice in voices]
    assert sorted(spoken[:3]) == sorted(spoken[3:]) == variants
    assert {voice.partition("+")[0] for voice in voices} <= set(ACCENTS)
