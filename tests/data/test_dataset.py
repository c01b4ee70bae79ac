"""The dataset: whole batches in one call, and every way in which a recording can be bad."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from signals import RATE
from tones import make_corpus, tone, write_rows, write_tone

from sonosco_like.data import audio
from sonosco_like.data.augment import FeatureAugmentation, WaveformAugmentation
from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.features import LogMel
from sonosco_like.data.normalization import GlobalNormalization, UtteranceNormalization
from sonosco_like.data.text import Alphabet, TextCleaner
from sonosco_like.errors import DataError, UsageError
from sonosco_like.records import BLANK
from sonosco_like.serialization import serializable


@serializable
class Hiss(WaveformAugmentation):
    def apply(self, samples_N: Any, sample_rate: int, random: np.random.Generator) -> Any:
        return samples_N + random.normal(0, 0.01, len(samples_N)).astype(np.float32)


@serializable
class Mask(FeatureAugmentation):
    def apply(self, features_TF: Any, random: np.random.Generator) -> Any:
        masked_TF = features_TF.copy()
        masked_TF[:, random.integers(features_TF.shape[1])] = 0
        return masked_TF


def dataset(manifest: Path, **options: Any) -> AudioDataset:
    return AudioDataset(manifest=manifest, features=LogMel(mels=20), **options)


def equal(a: Any, b: Any) -> bool:
    tensors = ("features_BTF", "feature_lengths_B", "labels_BU", "label_lengths_B")
    same = all(torch.equal(getattr(a, name), getattr(b, name)) for name in tensors)
    return same and (a.ids, a.texts, a.durations) == (b.ids, b.texts, b.durations)


def test_a_batch_is_what_its_drawing_says(corpus: Path) -> None:
    data = dataset(corpus)
    batch = data.batch([5, 0, 17])
    assert batch is not None
    rows = [data.utterances[index] for index in (5, 0, 17)]
    assert batch.ids == [row.id for row in rows]
    assert batch.texts == [row.text for row in rows]
    assert batch.durations == [row.duration for row in rows]
    assert batch.features_BTF.shape == (3, int(batch.feature_lengths_B.max()), 20)
    for number, row in enumerate(rows):
        frames, labels = int(batch.feature_lengths_B[number]), int(batch.label_lengths_B[number])
        assert frames == data.features.frames(row.duration)
        assert torch.all(batch.features_BTF[number, frames:] == 0)
        assert data.tokenizer.decode(batch.labels_BU[number, :labels].tolist()) == row.text
        assert torch.all(batch.labels_BU[number, labels:] == BLANK)
        expected_TF = UtteranceNormalization()(data.features([audio.load_audio(row.audio_filepath, RATE)])[0])
        assert torch.equal(batch.features_BTF[number, :frames], expected_TF)


def test_an_utterance_is_the_same_in_every_batch(corpus: Path) -> None:
    data = dataset(corpus, waveform_augmentations=[Hiss()], feature_augmentations=[Mask()])
    alone, among = data.batch([3], 1, 2), data.batch([8, 3, 1], 1, 2)
    assert alone is not None
    assert among is not None
    frames = int(alone.feature_lengths_B[0])
    assert torch.equal(alone.features_BTF[0], among.features_BTF[1, :frames])


def test_randomness_is_that_of_seed_epoch_and_utterance(corpus: Path) -> None:
    data = dataset(corpus, waveform_augmentations=[Hiss()])
    first, same, epoch, seed = (data.batch([3], *key) for key in ((1, 2), (1, 2), (1, 3), (2, 2)))
    assert equal(first, same)
    assert not equal(first, epoch)
    assert not equal(first, seed)


def test_only_a_part_of_a_long_recording_is_used(tmp_path: Path) -> None:
    write_tone(tmp_path / "long.wav", 5.0)
    rows = [{"audio_filepath": "long.wav", "duration": 0.5, "offset": 0.5 * i, "text": "a"} for i in range(4)]
    batch = dataset(write_rows(tmp_path / "m.jsonl", rows)).batch(range(4))
    assert batch is not None
    assert batch.ids == ["long", "long@0.5", "long@1.0", "long@1.5"]
    assert set(batch.feature_lengths_B.tolist()) == {LogMel().frames(0.5)}


def test_recordings_of_any_rate_and_channel_count_fit(tmp_path: Path) -> None:
    write_tone(tmp_path / "a.flac", 0.5, rate=44100, channels=2)
    rows = [{"audio_filepath": "a.flac", "duration": 0.5, "text": "a"}]
    batch = dataset(write_rows(tmp_path / "m.jsonl", rows)).batch([0])
    assert batch is not None
    assert batch.feature_lengths_B.tolist() == [LogMel().frames(0.5)]


def test_building_a_dataset_reads_nothing(tmp_path: Path) -> None:
    data = dataset(tmp_path / "not there.jsonl")
    with pytest.raises(DataError, match="does not exist"):
        data.batch([0])


def missing(path: Path) -> None:
    path.unlink()


def zero_bytes(path: Path) -> None:
    path.write_bytes(b"")


def header_only(path: Path) -> None:
    soundfile.write(path, np.zeros(0), RATE)


def not_audio(path: Path) -> None:
    path.write_bytes(b"RIFF" + bytes(range(256)) * 40)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def torn_flac(path: Path) -> None:
    other = write_tone(path.with_suffix(".flac"), 1.0)
    path.write_bytes(other.read_bytes()[: other.stat().st_size // 3])


def silent(path: Path) -> None:
    soundfile.write(path, np.zeros(RATE), RATE)


def nearly_silent(path: Path) -> None:
    soundfile.write(path, np.full(RATE, 1 / 32768), RATE)


def not_numbers(path: Path) -> None:
    samples_N = tone(1.0)
    samples_N[100] = np.nan
    soundfile.write(path, samples_N, RATE, subtype="FLOAT")


def too_short(path: Path) -> None:
    write_tone(path, 0.5)


CORRUPTIONS = {
    missing: "does not exist",
    zero_bytes: "0 bytes",
    header_only: "no samples",
    not_audio: "cannot be read as audio",
    torn: "ends after",
    torn_flac: "ends after|cannot be decoded",
    silent: "is silent",
    nearly_silent: "is silent",
    not_numbers: "not numbers",
    too_short: r"ends after 0\.50 s, but should have 1\.00 s",
}


@pytest.mark.parametrize(("corrupt", "message"), CORRUPTIONS.items(), ids=[c.__name__ for c in CORRUPTIONS])
def test_a_bad_recording_stops_with_its_row_or_is_skipped_and_listed(
    make: Callable[[list[float]], Path], corrupt: Callable[[Path], None], message: str
) -> None:
    manifest = make([1.0, 1.0, 1.0])
    corrupt(manifest.parent / "wav/001.wav")
    with pytest.raises(DataError, match=message) as caught:
        dataset(manifest).batch([0, 1, 2])
    assert f"{manifest}, row 2" in str(caught.value)
    assert "001.wav" in str(caught.value)
    assert "on_bad: skip" in str(caught.value)

    skipping = dataset(manifest, on_bad="skip")
    fetched = skipping.load_batch([0, 1, 2], 0, 0)
    assert fetched.batch is not None
    assert fetched.batch.ids == ["wav/000", "wav/002"]
    assert list(fetched.skipped) == ["wav/001"]
    assert f"{manifest}, row 2" in fetched.skipped["wav/001"]
    assert equal(fetched.batch, skipping.batch([0, 2]))
    assert skipping.batch([1]) is None


def test_recordings_outside_of_the_limits_stop_or_are_left_out(make: Callable[[list[float]], Path]) -> None:
    manifest = make([0.2, 0.5, 0.9, 1.4])
    strict = dataset(manifest, min_duration=0.3, max_duration=1.0)
    with pytest.raises(DataError, match=r"row 1: 0\.20 s is less(.|\n)*row 4: 1\.40 s is more"):
        _ = strict.usable
    skipping = replace(strict, on_bad="skip")
    assert skipping.usable.tolist() == [1, 2]
    assert skipping.durations.tolist() == [0.5, 0.9]
    assert list(skipping.out_of_limits) == ["wav/000", "wav/003"]
    with pytest.raises(DataError, match="No utterance"):
        _ = replace(skipping, min_duration=0.95, max_duration=1.0).usable
    with pytest.raises(UsageError, match="max_duration"):
        replace(skipping, min_duration=2.0)


def test_durations_that_are_rounded_are_no_corruption(tmp_path: Path) -> None:
    write_tone(tmp_path / "a.wav", 0.96)
    rows = [{"audio_filepath": "a.wav", "duration": 1.0, "text": "a"}]
    assert dataset(write_rows(tmp_path / "m.jsonl", rows)).batch([0]) is not None


def with_texts(manifest: Path, *texts: str) -> Path:
    rows = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]
    return write_rows(manifest, [{**row, "text": text} for row, text in zip(rows, texts, strict=True)])


def test_a_text_without_labels_names_its_row(make: Callable[[list[float]], Path]) -> None:
    manifest = with_texts(make([0.3, 0.3]), "fine", "caf\u00e9 3")
    with pytest.raises(DataError, match=r"row 2: There is no label for 'é', '3'"):
        dataset(manifest).batch([0, 1])
    batch = dataset(manifest, on_bad="skip").batch([0, 1])
    assert batch is not None
    assert batch.ids == ["wav/000"]


def test_texts_are_cleaned_and_what_was_lost_is_told_batch_by_batch(make: Callable[[list[float]], Path]) -> None:
    manifest = with_texts(make([0.3, 0.3]), "Fine, thanks!", "caf\u00e9!")
    data = dataset(manifest, tokenizer=Alphabet(missing="drop"))
    first, second = data.load_batch([0], 0, 0), data.load_batch([1], 0, 0)
    assert first.batch is not None
    assert first.batch.texts == ["fine thanks"]
    assert (first.dropped_counts, first.missing_counts) == ({",": 1, "!": 1}, {})
    assert (second.dropped_counts, second.missing_counts) == ({"!": 1}, {"é": 1})


def test_the_texts_can_be_checked_without_audio(make: Callable[[list[float]], Path]) -> None:
    manifest = with_texts(make([0.3, 0.3]), "Fine!", "3")
    (manifest.parent / "wav/000.wav").unlink()
    data = dataset(manifest)
    report = data.text_report()
    assert "'!' 1 times" in report
    assert "'3' 1 times" in report
    assert "1 of 2 utterances have no label" in report
    assert not data.cleaner.dropped_counts  # type: ignore[union-attr]


def test_texts_can_be_left_as_they_are(make: Callable[[list[float]], Path]) -> None:
    manifest = with_texts(make([0.3]), "A-b")
    batch = dataset(manifest, cleaner=None, tokenizer=Alphabet(characters="Ab-")).batch([0])
    assert batch is not None
    assert batch.texts == ["A-b"]
    assert batch.labels_BU.tolist() == [[4, 6, 5]]


def test_global_statistics_are_gathered_once_without_augmentation(corpus: Path) -> None:
    shared = GlobalNormalization()
    train = dataset(corpus, normalization=shared, waveform_augmentations=[Hiss()])
    train.prepare()
    plain = dataset(corpus, normalization=None)
    features = [plain.batch([index]).features_BTF[0] for index in range(len(plain.utterances))]  # type: ignore[union-attr]
    torch.testing.assert_close(shared.mean_F, torch.cat(features).double().mean(dim=0), rtol=1e-4, atol=1e-4)
    before = shared.mean_F.clone()
    replace(train, manifest=corpus).prepare()
    assert torch.equal(shared.mean_F, before)
    batch = replace(train, waveform_augmentations=[]).batch([0])
    assert batch is not None
    torch.testing.assert_close(batch.features_BTF[0], shared(features[0]))


def test_gathering_statistics_follows_the_same_policy(make: Callable[[list[float]], Path]) -> None:
    manifest = make([0.5, 0.5])
    (manifest.parent / "wav/000.wav").unlink()
    with pytest.raises(DataError, match="row 1"):
        dataset(manifest, normalization=GlobalNormalization()).prepare()
    skipping = dataset(manifest, normalization=GlobalNormalization(), on_bad="skip")
    skipping.prepare()
    assert skipping.normalization.frames == LogMel().frames(0.5)  # type: ignore[union-attr]


def test_an_empty_transcript_is_an_utterance_too(tmp_path: Path) -> None:
    manifest = with_texts(make_corpus(tmp_path, [0.3]), "")
    batch = dataset(manifest).batch([0])
    assert batch is not None
    assert batch.labels_BU.shape == (1, 0)
    assert batch.label_lengths_B.tolist() == [0]


def test_real_speech_becomes_batches() -> None:
    manifest = Path(__file__).parents[2].parent / "shared/data/digits60/val.jsonl"
    if not manifest.exists():
        pytest.skip("the recordings are not on this machine")
    data = AudioDataset(manifest=manifest, cleaner=TextCleaner())
    batch = data.batch(range(4))
    assert batch is not None
    assert len(batch) == 4
    assert torch.isfinite(batch.features_BTF).all()
