"""Mixing corpora: shares follow the weights, no utterance is drawn again before the others, any place is resumable."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_loader import assert_same
from tones import make_corpus, write_rows

from sonosco_like import dumps, loads
from sonosco_like.data.augment import SpeedPerturbation, WhiteNoise
from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.features import LogMel
from sonosco_like.data.loader import AudioDataLoader
from sonosco_like.data.manifest import Manifest
from sonosco_like.data.mixing import Mixture, WeightedManifest
from sonosco_like.data.sampling import BucketSampler
from sonosco_like.data.text import Alphabet
from sonosco_like.errors import ConfigError, DataError, SonoscoError, UsageError

SMALL, LARGE = 5, 19


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two corpora whose recordings have the same names: 5 utterances and 19."""
    folder = tmp_path_factory.mktemp("mixed")
    lengths = np.random.default_rng(1).uniform(0.2, 0.6, LARGE).round(3).tolist()
    return [make_corpus(folder / "small", lengths[:SMALL]), make_corpus(folder / "large", lengths)]


def mixed(corpora: list[Path], *weights: float | None) -> list[WeightedManifest]:
    return [WeightedManifest(manifest=path, weight=weight) for path, weight in zip(corpora, weights, strict=True)]


def loader(corpora: list[Path], *weights: float | None, **options: Any) -> AudioDataLoader:
    dataset = AudioDataset(
        manifest=mixed(corpora, *weights),
        features=LogMel(mels=8),
        tokenizer=Alphabet(missing="drop"),
        waveform_augmentations=[SpeedPerturbation(), WhiteNoise()],
    )
    sampler = options.pop("sampler", BucketSampler(batch_seconds=2.0, buckets=2))
    return AudioDataLoader(dataset=dataset, sampler=sampler, **{"seed": 3, **options})


def heard(loader: AudioDataLoader, epoch: int) -> list[str]:
    loader.set_epoch(epoch)
    return [name for batch in loader for name in batch.ids]


@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=4), seed=st.integers(0, 5), data=st.data(),
    epochs=st.integers(1, 5),
)  # fmt: skip
@settings(max_examples=60)
def test_shares_follow_the_weights_and_no_utterance_comes_twice_before_all_came_once(
    sizes: list[int], seed: int, data: st.DataObject, epochs: int
) -> None:
    weights = data.draw(st.lists(st.floats(0.2, 50), min_size=len(sizes), max_size=len(sizes)))
    total = sum(sizes)
    exact = [total * weight / sum(weights) for weight in weights]
    sources = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    corpora = [WeightedManifest(manifest=Path(str(number)), weight=weight) for number, weight in enumerate(weights)]
    if min(exact) < 1:
        return
    times: Counter[int] = Counter()
    most = Counter(Mixture(sources, corpora).rows_at_most().tolist())
    drawn_in: set[tuple[int, int]] = set()
    for epoch in range(epochs):
        drawn = Mixture(sources, corpora).draw(seed, epoch)
        assert len(drawn.rows) == len(drawn.passes) == total
        counts = np.bincount(sources[drawn.rows], minlength=len(sizes))
        assert np.abs(counts - exact).max() < 1
        times.update(drawn.rows.tolist())
        assert Counter(drawn.rows.tolist()) <= most
        drawn_in.update(zip(drawn.rows.tolist(), drawn.passes.tolist(), strict=True))
        for corpus in range(len(sizes)):
            often = [times[row] for row in np.flatnonzero(sources == corpus).tolist()]
            assert max(often) - min(often) <= 1
    assert len(drawn_in) == total * epochs, "an utterance is once in each pass, so its augmentation always differs"


def test_an_epoch_differs_from_the_next_and_from_that_of_another_seed() -> None:
    mixture = Mixture(np.repeat([0, 1], [10, 50]), mixed([Path("a"), Path("b")], 1, 1))
    kinds = [frozenset(mixture.draw(seed, epoch).rows[30:].tolist()) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    assert len(set(kinds)) == 3


def test_a_loader_gives_each_corpus_its_share_and_changes_what_returns(corpora: list[Path]) -> None:
    some = loader(corpora, 3, 1)
    for epoch in (0, 1):
        names = heard(some, epoch)
        assert Counter(name[0] for name in names) == {"1": 18, "2": 6}
        assert set(Counter(name for name in names if name[0] == "1").values()) == {3, 4}
    some.set_epoch(0)
    batches = list(some)
    again = [(batch, row) for batch in batches for row, name in enumerate(batch.ids) if name == "1:wav/000"]
    sounds = {batch.features_BTF[row, :4].numpy().tobytes() for batch, row in again}
    assert len(sounds) == len(again) > 2


def test_without_weights_each_utterance_is_there_once_under_a_name_of_its_own(corpora: list[Path]) -> None:
    names = heard(loader(corpora, None, None), 0)
    expected = [f"{corpus}:wav/{number:03d}" for corpus, size in ((1, SMALL), (2, LARGE)) for number in range(size)]
    assert sorted(names) == expected
    paths = loads(f"class: AudioDataset\nmanifest: [{corpora[0]}, {corpora[1]}]")
    assert [each.id for each in paths.utterances] == expected
    assert paths.mixture is None
    assert [each.id for each in AudioDataset(manifest=list(map(str, corpora))).utterances] == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_any_batch_is_reached_directly_with_the_same_bits(corpora: list[Path], workers: int) -> None:
    whole = loader(corpora, 3, 1)
    whole.set_epoch(2)
    batches = list(whole)
    for position in (1, len(batches) // 2, len(batches)) if workers else range(len(batches) + 1):
        fresh = loader(corpora, 3, 1, num_workers=workers)
        fresh.load_state_dict({"epoch": 2, "position": position})
        assert_same(list(fresh), batches[position:])


@pytest.mark.parametrize("sampler", [BucketSampler(batch_size=3), BucketSampler(batch_seconds=2.0, batch_size=4)])
@pytest.mark.parametrize("numbers", [(2,), (3,), (2, 1), (1, 2), (2, 3, 1)])
def test_processes_share_the_utterances_of_an_epoch_whatever_their_number(
    corpora: list[Path], numbers: tuple[int, ...], sampler: BucketSampler
) -> None:
    expected = Counter(heard(loader(corpora, 3, 1, sampler=sampler), 1))
    states: list[dict[str, Any]] = [{"epoch": 1, "position": 0}]
    taken: Counter[str] = Counter()
    for place, world in enumerate(numbers, 1):
        group = [loader(corpora, 3, 1, sampler=sampler) for _ in range(world)]
        for rank, each in enumerate(group):
            each.distribute(rank, world)
            each.load_shares(states)
            each.set_epoch(1)
            batches = itertools.islice(each, 2 if place < len(numbers) else None)
            taken.update(name for batch in batches for name in batch.ids)
        states = [each.state_dict() for each in group]
    left_out = [each.dataset.utterances[index].id for index in group[0].plan.left_out.tolist()]
    assert taken + Counter(left_out) == expected
    assert not left_out


def test_a_position_that_was_saved_with_other_weights_is_told(
    corpora: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    some = loader(corpora, 3, 1)
    next(iter(some))
    other = loader(corpora, 1, 1)
    other.load_state_dict(some.state_dict())
    next(iter(other))
    assert "changed since this position was saved" in caplog.text


def test_the_config_comes_back_as_it_was(corpora: list[Path]) -> None:
    text = dumps(loader(corpora, 3, 1))
    back = loads(text, AudioDataLoader)
    assert [(each.manifest, each.weight) for each in back.dataset.manifest] == list(zip(corpora, (3, 1), strict=True))
    assert dumps(back) == text
    assert heard(back, 1) == heard(loader(corpora, 3, 1), 1)


def test_rows_keep_their_file_their_recordings_and_what_only_some_files_tell(tmp_path: Path) -> None:
    row = {"duration": 1.0, "text": "a"}
    own = write_rows(
        tmp_path / "own" / "m.jsonl", [{**row, "audio_filepath": "x.wav", "offset": 0.5, "speaker": "ann"}]
    )
    rows = [{**row, "audio_filepath": name} for name in ("/else/y.wav", "x.wav")]
    other = write_rows(tmp_path / "other" / "m.jsonl", rows)
    manifest = Manifest.read_all([own, other])
    assert [each.audio_filepath for each in manifest] == [
        str(own.with_name("x.wav")), "/else/y.wav", str(other.with_name("x.wav")),
    ]  # fmt: skip
    assert [each.id for each in manifest] == ["x@0.5", "/else/y", "x"], "they differ as they are"
    assert [(each.speaker, each.offset) for each in manifest] == [("ann", 0.5), (None, 0.0), (None, 0.0)]
    assert manifest.place(2) == f"{other}, row 2"
    assert manifest.select([2, 0]).sources.tolist() == [1, 0]


def test_a_bad_recording_is_named_with_its_own_file_and_row(corpora: list[Path], tmp_path: Path) -> None:
    row = {"audio_filepath": "gone.wav", "duration": 0.3, "text": "a"}
    bad = write_rows(tmp_path / "bad.jsonl", [{**row, "id": "1", "duration": 0.31}, row])
    with pytest.raises(DataError, match=rf"{bad}, row [12]: "):
        list(loader([corpora[0], bad], 1, 1))


def test_lists_that_cannot_be_mixed_are_refused(corpora: list[Path], tmp_path: Path) -> None:
    small, large = corpora
    for weight in (0, -1, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="must be a number above 0"):
            WeightedManifest(manifest=small, weight=weight)
    refused = {
        "empty list": [],
        "is in the list twice": mixed([small, small.parent / ".." / "small" / small.name], 1, 2),
        f"or none of them: {large} has none": mixed(corpora, 1, None),
    }
    for message, given_list in refused.items():
        with pytest.raises(UsageError, match=message):
            AudioDataset(manifest=given_list)
    with pytest.raises(ConfigError, match="must be a number above 0"):
        loads(f"class: AudioDataset\nmanifest: [{{manifest: {small}, weight: -2}}]")


def test_corpora_that_would_give_nothing_are_refused(corpora: list[Path], tmp_path: Path) -> None:
    empty = write_rows(tmp_path / "empty.jsonl", [])
    row = {"audio_filepath": "long.wav", "duration": 60.0, "text": "a"}
    long = write_rows(tmp_path / "long.jsonl", [row])
    for path, message in (
        (tmp_path / "gone.jsonl", "gone.jsonl does not exist"),
        (empty, "empty.jsonl has no rows"),
    ):
        with pytest.raises(DataError, match=message):
            AudioDataset(manifest=mixed([corpora[0], path], 1, 1)).utterances  # noqa: B018 - it is read here
    within = {"max_duration": 1.0, "on_bad": "skip"}
    with pytest.raises(DataError, match=r"No utterance of .*long.jsonl can be used"):
        AudioDataset(manifest=mixed([corpora[0], long], 1, 1), **within).mixture  # noqa: B018
    with pytest.raises(SonoscoError, match=r"would have none of .*small.*: raise its `weight`, which is 1 of 1001"):
        AudioDataset(manifest=mixed(corpora, 1, 1000)).mixture  # noqa: B018
