"""Texts that would stop a training or spoil it: each is found, with the reason that a person would give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tones import write_rows, write_tone

from sonosco_like.data import AudioDataset
from sonosco_like.data.text import Alphabet, TextCleaner
from sonosco_like.data.tools.examination import REMEDIES, examine_texts, frames_for, group_faults
from sonosco_like.errors import DataError
from sonosco_like.losses import frames_needed
from sonosco_like.records import Batch


@pytest.fixture
def dataset(tmp_path):
    """Rows of which each but the first has a text with a fault of its own."""
    write_tone(tmp_path / "a.wav", 1.0)
    texts = ["a good text", "ALL CAPITALS", "привет мир", "naïve", "", "b" * 8]
    rows = [
        {"audio_filepath": "a.wav", "duration": 1.0, "text": text, "id": f"row-{place}"}
        for place, text in enumerate(texts)
    ]
    return AudioDataset(manifest=write_rows(tmp_path / "m.jsonl", rows), cleaner=TextCleaner(case="keep"))


def reasons(dataset, **options):
    found = examine_texts(dataset, dataset.usable, **options)
    return {index: [fault.reason for fault in faults] for index, faults in found.items()}


def test_each_kind_of_fault_has_its_own_name_and_remedy(dataset):
    found = reasons(dataset)
    assert found == {1: ["other case"], 2: ["other alphabet"], 3: ["no label"], 4: ["no text"]}
    assert all(each in REMEDIES for faults in found.values() for each in faults)


def test_a_cleaner_that_fits_leaves_no_fault(dataset):
    lowered = replace(dataset, cleaner=TextCleaner(), tokenizer=Alphabet(characters="abcdefghijklmnopqrstuvwxyz ï"))
    assert reasons(lowered) == {2: ["other alphabet"], 4: ["no text"]}


def test_what_the_tokenizer_drops_is_found_too_but_stops_nothing(dataset):
    dropping = replace(dataset, tokenizer=Alphabet(missing="drop"))
    found = examine_texts(dropping, dropping.usable)
    assert {index: faults[0].usable for index, faults in found.items()} == dict.fromkeys([1, 2, 3, 4], True)
    assert not any(fault.usable for fault in examine_texts(dataset, dataset.usable)[1])
    assert not dropping.tokenizer.missing_counts


class Strict(Alphabet):
    """A tokenizer of a user's own, which refuses whatever `missing` says, and has its own constructor."""

    def __init__(self) -> None:
        super().__init__(characters="ab ")

    def encode(self, text: str) -> list[int]:
        if set(text) - set("ab "):
            raise DataError(f"There is no label for some of {text!r}.")
        return super().encode(text)


def test_a_tokenizer_of_ones_own_is_asked_too(dataset):
    dataset.tokenizer = Strict()
    assert reasons(dataset) == {0: ["no label"], 1: ["no label"], 2: ["no label"], 3: ["no label"], 4: ["no text"]}


def test_texts_that_ctc_cannot_write_are_found_by_labels_and_repetitions(dataset):
    found = examine_texts(dataset, dataset.usable, lambda seconds: np.full(len(seconds), 14))
    long = {index: fault for index, faults in found.items() for fault in faults if "CTC" in fault.reason}
    assert list(long) == [5]  # eight letters, and seven blanks between them
    assert "15 frames are needed for 'bbbbbbbb', there are 14" in long[5].detail
    assert not long[5].usable


@given(st.lists(st.integers(1, 3), max_size=12))
def test_the_frames_for_labels_are_those_that_the_loss_asks_for(labels):
    import torch

    lengths_B = torch.tensor([len(labels)])
    batch = Batch(torch.zeros(1, 1, 1), lengths_B, torch.tensor([labels], dtype=torch.int64), lengths_B)
    assert frames_for(labels) == int(frames_needed(batch))


def test_faults_of_one_kind_are_one_finding_and_what_stops_a_run_comes_first(dataset):
    faults = examine_texts(dataset, dataset.usable)
    faults[0] = faults[3]
    findings = group_faults(faults)
    assert [(each.reason, each.count, each.usable) for each in findings] == [
        ("no label", 2, False), ("other case", 1, False), ("other alphabet", 1, False), ("no text", 1, True),
    ]  # fmt: skip
    lines = findings[0].describe(dataset.utterances, most=1).splitlines()
    assert lines[0].startswith(f"{dataset.manifest}: 2 rows: no label. Add the characters to the tokenizer")
    assert lines[1].startswith("  m.jsonl, row 1 (row-0): no label for 'ï'")
    assert lines[2] == "  and 1 more row"
