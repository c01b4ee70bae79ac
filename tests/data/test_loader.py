"""The loader: the order, the bits and the position do not depend on who does the work, or where one begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dataset import equal
from tones import make_corpus

from sonosco_like import load, loads, save
from sonosco_like.data import audio
from sonosco_like.data.augment import SpecAugment, SpeedPerturbation, TempoPerturbation, WhiteNoise
from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.features import LogMel
from sonosco_like.data.loader import AudioDataLoader
from sonosco_like.data.manifest import Manifest, write_manifest
from sonosco_like.data.normalization import GlobalNormalization
from sonosco_like.data.sampling import BucketSampler
from sonosco_like.data.text import Alphabet
from sonosco_like.errors import DataError, UsageError
from sonosco_like.records import Batch


def loader(manifest: Path, **options: Any) -> AudioDataLoader:
    dataset = AudioDataset(
        manifest=manifest,
        features=LogMel(mels=20),
        tokenizer=Alphabet(missing="drop"),
        waveform_augmentations=[SpeedPerturbation(), WhiteNoise(probability=0.7), TempoPerturbation(probability=0.3)],
        feature_augmentations=[SpecAugment(frequency_width=5)],
        on_bad=options.pop("on_bad", "error"),
        max_duration=options.pop("max_duration", None),
    )
    sampler = options.pop("sampler", BucketSampler(batch_seconds=4.0, buckets=4))
    return AudioDataLoader(dataset=dataset, sampler=sampler, **{"seed": 3, **options})


def assert_same(batches: list[Batch], others: list[Batch]) -> None:
    assert [batch.ids for batch in batches] == [batch.ids for batch in others]
    for batch, other in zip(batches, others, strict=True):
        assert equal(batch, other)


@cache
def full_pass(manifest: Path, epoch: int) -> list[Batch]:
    whole = loader(manifest)
    whole.set_epoch(epoch)
    return list(whole)


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_the_bits_do_not_depend_on_the_number_of_workers(corpus: Path, workers: int) -> None:
    some = loader(corpus, num_workers=workers, prefetch=3)
    for epoch in range(2):
        some.set_epoch(epoch)
        assert_same(list(some), full_pass(corpus, epoch))
    assert len(full_pass(corpus, 0)) == len(some) > 5


def test_the_bits_do_not_depend_on_the_threads_of_the_main_process(corpus: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 2)
    try:
        assert_same(list(loader(corpus)), full_pass(corpus, 0))
        assert torch.get_num_threads() == threads + 2
    finally:
        torch.set_num_threads(threads)


def test_an_epoch_holds_every_utterance_once_and_differs_from_the_next(corpus: Path) -> None:
    for epoch in (0, 1):
        ids = [identity for batch in full_pass(corpus, epoch) for identity in batch.ids]
        assert sorted(ids) == [f"wav/{number:03d}" for number in range(40)]
    assert [batch.ids for batch in full_pass(corpus, 0)] != [batch.ids for batch in full_pass(corpus, 1)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_fresh_loader_at_batch_k_gives_the_rest_of_the_pass(corpus: Path, workers: int) -> None:
    whole = full_pass(corpus, 1)
    for position in range(len(whole) + 1):
        if workers and position % 4:
            continue
        fresh = loader(corpus, num_workers=workers)
        fresh.load_state_dict({"epoch": 1, "position": position})
        fresh.set_epoch(1)
        assert_same(list(fresh), whole[position:])


@given(
    chosen=st.sets(st.integers(0, 39), min_size=4, max_size=12),
    sampler=st.builds(
        BucketSampler, batch_seconds=st.floats(1.2, 5.0), buckets=st.integers(1, 5), shuffle=st.booleans(),
        sorted_first_epoch=st.booleans(),
    ),
    seed=st.integers(0, 9), epoch=st.integers(0, 2), world=st.integers(1, 4), data=st.data(),
)  # fmt: skip
@settings(max_examples=25)
def test_any_position_of_any_rank_is_reached_directly(
    corpus: Path, chosen: set[int], sampler: BucketSampler, seed: int, epoch: int, world: int, data: st.DataObject
) -> None:
    utterances = Manifest.read(corpus).select(sorted(chosen))
    manifest = write_manifest(corpus.with_name("chosen.jsonl"), utterances)
    heard: list[str] = []
    for rank in range(world):
        whole, fresh = (loader(manifest, sampler=sampler, seed=seed) for _ in range(2))
        for one in (whole, fresh):
            one.distribute(rank, world)
            one.set_epoch(epoch)
        batches = list(whole)
        assert len(batches) == len(whole)
        heard += [identity for batch in batches for identity in batch.ids]
        position = data.draw(st.integers(0, len(batches)))
        fresh.seek(position)
        assert_same(list(fresh), batches[position:])
    left_out = [whole.dataset.utterances[index].id for index in whole.plan.left_out.tolist()]
    assert sorted(heard + left_out) == [utterance.id for utterance in utterances]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_position_is_what_was_consumed_not_what_was_prefetched(corpus: Path, workers: int) -> None:
    some = loader(corpus, num_workers=workers, prefetch=4)
    batches = iter(some)
    for count in range(1, 4):
        next(batches)
        assert some.position == count
        assert some.state_dict()["position"] == count
    resumed = loader(corpus)
    resumed.load_state_dict(some.state_dict())
    assert_same(list(resumed), list(batches))


def test_a_pass_that_was_left_is_continued_and_a_finished_one_begins_anew(corpus: Path) -> None:
    some = loader(corpus)
    for _ in zip(range(3), some, strict=False):
        pass
    assert some.position in (3, 4)
    some.seek(3)
    assert_same(list(some), full_pass(corpus, 0)[3:])
    assert some.position == 0
    assert_same(list(some), full_pass(corpus, 0))


def test_changing_the_epoch_goes_to_its_beginning_and_staying_stays(corpus: Path) -> None:
    some = loader(corpus)
    next(iter(some))
    some.set_epoch(0)
    assert some.position == 1
    some.set_epoch(1)
    assert some.position == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_the_global_generators_are_not_touched(corpus: Path, workers: int) -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1:3]
    list(loader(corpus, num_workers=workers))
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_equal(np.random.get_state()[1:3], states[1])


def test_no_audio_is_opened_to_plan(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("audio was opened")

    monkeypatch.setattr(audio.soundfile, "SoundFile", refuse)
    some = loader(corpus)
    assert len(some) == len(some.plan) > 5
    assert "40 utterances" in some.report()
    with pytest.raises(DataError, match="audio was opened"):
        next(iter(some))


def test_reaching_a_late_batch_reads_only_that_batch(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = soundfile.SoundFile
    monkeypatch.setattr(audio.soundfile, "SoundFile", lambda path: opened.append(path) or real(path))
    some = loader(corpus)
    some.seek(len(some) - 1)
    batch = next(iter(some))
    assert len(opened) == len(batch)


BAD = ("wav/003", "wav/011", "wav/012", "wav/020")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A corpus with a missing, a silent, an unreadable and an overlong recording; each batch holds two utterances."""
    manifest = make_corpus(tmp_path, [0.5 + 0.01 * number for number in range(20)] + [3.0])
    (tmp_path / "wav/003.wav").unlink()
    soundfile.write(tmp_path / "wav/011.wav", np.zeros(16000), 16000)
    (tmp_path / "wav/012.wav").write_bytes(b"no audio")
    return manifest


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_what_is_skipped_is_listed_and_the_same_for_any_number_of_workers(broken: Path, workers: int) -> None:
    options: dict[str, Any] = {"sampler": BucketSampler(batch_size=2), "on_bad": "skip", "max_duration": 1.0}
    some = loader(broken, num_workers=workers, **options)
    assert list(some.skipped) == ["wav/020"]
    batches = list(some)
    assert sorted(some.skipped) == sorted(BAD)
    assert all("row" in reason for reason in some.skipped.values())
    assert sorted(identity for batch in batches for identity in batch.ids) == [
        f"wav/{number:03d}" for number in range(20) if f"wav/{number:03d}" not in BAD
    ]
    assert_same(batches, list(loader(broken, **options)))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_of_which_nothing_is_left_counts_but_is_not_handed_out(broken: Path, workers: int) -> None:
    sampler = BucketSampler(batch_size=1)
    some = loader(broken, num_workers=workers, sampler=sampler, on_bad="skip", max_duration=1.0)
    assert len(some) == 20
    positions = [some.position for _ in some]
    assert len(positions) == 17
    assert positions[-1] >= 17
    assert sorted(set(range(1, 21)) - set(positions)) == [
        position + 1 for position in range(20) if f"wav/{some.plan[position][0]:03d}" in BAD
    ]


@pytest.mark.parametrize("position", range(0, 11, 2))
def test_skips_are_the_same_after_a_resume(broken: Path, position: int) -> None:
    options: dict[str, Any] = {"sampler": BucketSampler(batch_size=2), "on_bad": "skip", "max_duration": 1.0}
    whole = loader(broken, **options)
    reference = list(whole)
    first = loader(broken, **options)
    batches = iter(first)
    before = [next(batches) for _ in range(position)] if position < 10 else list(batches)
    resumed = loader(broken, num_workers=1, **options)
    resumed.load_state_dict(first.state_dict())
    rest = list(resumed) if position < 10 else []
    assert_same(before + rest, reference)
    assert resumed.skipped == whole.skipped


@pytest.mark.parametrize("workers", [0, 2])
def test_by_default_a_bad_recording_stops_with_the_same_clear_error(broken: Path, workers: int) -> None:
    sampler = BucketSampler(batch_size=2, shuffle=False)
    with pytest.raises(DataError, match="1 utterances are not within") as caught:
        list(loader(broken, num_workers=workers, sampler=sampler, max_duration=1.0))
    assert "row 21" in str(caught.value)
    some = loader(broken, num_workers=workers, sampler=sampler)
    with pytest.raises(DataError, match=r"row 4: .*003\.wav does not exist.*on_bad: skip") as caught:
        list(some)
    assert "Traceback" not in str(caught.value)
    assert some.position == 1, "the bad batch was not consumed"


def test_counts_of_lost_characters_come_back_from_the_workers(tmp_path: Path) -> None:
    manifest = make_corpus(tmp_path, [0.3] * 8)
    manifest.write_text(manifest.read_text(encoding="utf-8").replace("zero", "zéro!"), encoding="utf-8")
    reports = []
    for workers in (0, 2):
        some = loader(manifest, num_workers=workers)
        for _ in range(2):
            list(some)
        assert some.dataset.cleaner is not None
        reports.append((some.dataset.cleaner.dropped_counts, some.dataset.tokenizer.missing_counts))
    assert reports[0] == reports[1] == ({"!": 2 * 17}, {"é": 2 * 17})


def test_a_manifest_that_changed_since_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    some = loader(make_corpus(tmp_path, [0.5] * 20))
    next(iter(some))
    state = some.state_dict()
    same = loader(tmp_path / "train.jsonl")
    same.load_state_dict(state)
    list(same)
    assert "changed" not in caplog.text
    changed = loader(make_corpus(tmp_path, [0.6] * 20))
    changed.load_state_dict(state)
    list(changed)
    assert "changed since this position was saved" in caplog.text


def test_a_loader_is_saved_and_comes_back_at_its_place(corpus: Path, tmp_path: Path) -> None:
    some = loader(corpus, num_workers=1)
    some.dataset.normalization = GlobalNormalization()
    batches = iter(some)
    next(batches)
    save(some, tmp_path / "saved")
    again = load(tmp_path / "saved", expected=AudioDataLoader)
    assert again.position == 1
    assert_same(list(again), list(batches))


def test_a_config_of_a_few_lines_is_a_loader(corpus: Path) -> None:
    text = f"{{class: AudioDataLoader, sampler: {{batch_size: 8}}, dataset: {{manifest: '{corpus}'}}}}"
    some = loads(text, expected=AudioDataLoader)
    batch = next(iter(some))
    assert len(batch) == 8
    assert batch.features_BTF.shape[2] == 80


def test_what_validation_skipped_is_not_forgotten_with_its_place(broken: Path) -> None:
    some = loader(broken, sampler=BucketSampler(batch_size=2), on_bad="skip", max_duration=1.0)
    place = some.state_dict()
    list(some)
    some.load_state_dict(place)
    assert sorted(some.skipped) == sorted(BAD)


def test_settings_that_make_no_sense_are_refused(corpus: Path) -> None:
    for options in ({"num_workers": -1}, {"prefetch": 0}, {"seed": -1}):
        with pytest.raises(UsageError):
            loader(corpus, **options)
    some = loader(corpus)
    with pytest.raises(UsageError, match="rank"):
        some.distribute(2, 2)
    with pytest.raises(UsageError, match="position"):
        some.seek(-1)


def test_fewer_utterances_than_processes_are_an_error(make: Callable[[list[float]], Path]) -> None:
    some = loader(make([0.3, 0.3]))
    some.distribute(0, 3)
    with pytest.raises(DataError, match="2 usable utterances, too few for 3 processes"):
        list(some)


def test_limits_belong_to_the_dataset_and_its_copies(corpus: Path) -> None:
    some = loader(corpus, on_bad="skip")
    shorter = replace(some, dataset=replace(some.dataset, max_duration=0.6))
    assert len(shorter.plan.order) == int((some.dataset.durations <= 0.6).sum()) < 40
    assert f"{len(shorter.skipped)} left out for their length" in shorter.report()
