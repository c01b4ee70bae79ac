"""Transcripts in TensorBoard's own tabs, read back with TensorBoard's own reader."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import soundfile
import torch
from event_records import records
from text_samples import sample
from tiny import SaveAt
from tiny_speech import TEXTS, Utterances, logged, speech_trainer
from torch import nn

from sonosco_like.callbacks import (
    Audio,
    Image,
    LasTextComparisonCallback,
    Markdown,
    MetricsFile,
    TbTeacherForcingTextComparisonCallback,
    TbTextComparisonCallback,
    TensorBoardCallback,
    TranscriptDashboard,
)
from sonosco_like.callbacks.text_comparison.samples import SampleCollector
from sonosco_like.callbacks.text_comparison.tables import comparison_table
from sonosco_like.data import AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.manifest import write_manifest
from sonosco_like.data.text import Alphabet
from sonosco_like.decoding import AttentionBeamDecoder, GreedyCTCDecoder
from sonosco_like.errors import UsageError
from sonosco_like.events import CallbackError
from sonosco_like.models import Recogniser, TDSEncoder, TDSGroup
from sonosco_like.records import Utterance
from sonosco_like.serialization import load, serializable, state

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

VALIDATED = {"u7-0", "u7-1", "u8-0", "u8-1"}  # what Utterances(batches=2, seed=7) holds


def run(*callbacks, **fields):
    trainer = speech_trainer(*callbacks, **{"epochs": 1, **fields})
    rows = logged(trainer)
    trainer.start_training()
    return trainer, rows


def tables(rows, how="free_running"):
    """What was logged as Markdown: by step, then by name."""
    found = {}
    for step, values in rows:
        texts = {name: value.text for name, value in values.items() if isinstance(value, Markdown)}
        if any(name.startswith(how) for name in texts):
            found[step] = texts
    return found


@serializable
class CountingDecoder(GreedyCTCDecoder):
    """Counts the utterances it decodes."""

    decoded: int = state(0)

    def decode(self, output, vocabulary, **options):
        self.decoded += len(output.encoded_lengths_B)
        return super().decode(output, vocabulary, **options)


@serializable
class WatchingDecoder(AttentionBeamDecoder):
    """Notes how many utterances it is given at a time, and whether the model was learning then."""

    searches: list[int] = state([])
    was_training: list[bool] = state([])

    def decode(self, output, vocabulary, *, model=None, **options):
        self.searches.append(len(output.encoded_lengths_B))
        self.was_training.append(model.training)
        return super().decode(output, vocabulary, model=model, **options)


@pytest.mark.parametrize("cls", [TbTextComparisonCallback, LasTextComparisonCallback, TranscriptDashboard])
def test_samples_are_chosen_once_by_seed(cls):
    chosen = [tuple(run(cls(samples=2, seed=seed))[0].callbacks[0].chosen["val"]) for seed in (0, 0, 1, 2, 3, 4)]
    assert chosen[0] == chosen[1]
    assert len(set(chosen)) > 1
    assert all(set(each) < VALIDATED and len(each) == 2 for each in chosen)


@pytest.mark.parametrize("size", [1, 3, 40])
def test_samples_depend_neither_on_batches_nor_on_their_order(size):
    names = [f"u{number}" for number in range(40)]
    expected = gathered(names, 40)
    shuffled = np.random.default_rng(size).permutation(names).tolist()
    assert gathered(shuffled, size) == expected
    assert len(expected) == 5


def gathered(names, size):
    """The samples that are left when batches of some size were gathered."""
    gathering = SampleCollector(5, 0, None)
    for first in range(0, len(names), size):
        batch = names[first : first + size]
        for row in gathering.wanted(batch):
            gathering.keep(sample(name=batch[row]))
    return [each.id for each in gathering.samples()]


def test_samples_given_by_id_are_those_and_missing_ones_are_named(caplog):
    trainer, rows = run(TbTextComparisonCallback(ids=["u8-1", "nobody", "u7-0"]))
    assert trainer.callbacks[0].chosen == {"val": ["u8-1", "u7-0"]}
    assert "not in the validation set val: nobody" in caplog.text
    assert {name for each in tables(rows).values() for name in each} == {
        "free_running/val/u8-1",
        "free_running/val/u7-0",
    }


def test_every_validation_compares_the_same_samples_with_their_rate_before():
    _, rows = run(TbTextComparisonCallback(samples=2), epochs=2)
    found = tables(rows)
    assert list(found) == [2, 4, 6, 8]
    assert len({tuple(each) for each in found.values()}) == 1
    assert all("(before" not in text for text in found[2].values())
    assert all("(before" in text for step in (4, 6, 8) for text in found[step].values())


def test_the_table_says_what_the_decoder_heard():
    heard = {}

    def note(moment):
        heard.update(zip(moment.result.batch.ids, moment.result.hypotheses, strict=True))

    _, rows = run(TbTextComparisonCallback(samples=4), ("prediction_end", note))
    for name, text in tables(rows)[4].items():
        identity = name.rpartition("/")[2]
        reference = TEXTS[(2 * int(identity[1]) + int(identity[-1])) % len(TEXTS)]
        assert (
            text.split("\n\n")[1:]
            == comparison_table(identity, reference, heard[identity], None, "x").split("\n\n")[1:]
        )


def test_ways_of_decoding_are_labelled_and_kept_apart():
    callbacks = [TbTextComparisonCallback(), TbTeacherForcingTextComparisonCallback(), LasTextComparisonCallback()]
    _, rows = run(*callbacks, LasTextComparisonCallback(decoder=AttentionBeamDecoder(beam_size=2)))
    names = {
        name.partition("/")[0] for _, values in rows for name, value in values.items() if isinstance(value, Markdown)
    }
    assert names == {"free_running", "teacher_forced", "beam_search", "beam_search_2"}
    forced = next(text for name, text in tables(rows, "teacher_forced")[2].items())
    assert ", teacher-forced: WER" in forced


def test_nothing_is_decoded_twice():
    decoder = CountingDecoder()
    run(
        TbTextComparisonCallback(), TbTextComparisonCallback(seed=1), TranscriptDashboard(),
        TbTeacherForcingTextComparisonCallback(), decoder=decoder,
    )  # fmt: skip
    assert decoder.decoded == 2 * len(VALIDATED)


def test_a_beam_search_decodes_samples_only_and_none_if_it_is_the_trainers():
    searching = LasTextComparisonCallback(ids=["u7-0"], decoder=CountingDecoder())
    run(searching)
    assert searching.decoder.decoded == 2
    shared = LasTextComparisonCallback(decoder=CountingDecoder())
    _, rows = run(shared, decoder=CountingDecoder())
    assert shared.decoder.decoded == 0
    assert len(tables(rows, "beam_search")[2]) == len(VALIDATED)


def test_samples_of_all_batches_are_searched_at_once_and_without_dropout():
    searching = LasTextComparisonCallback(samples=3, decoder=WatchingDecoder())
    trainer, _ = run(searching)
    assert searching.decoder.searches == [3, 3]  # of utterances that came in two batches, in each validation
    assert searching.decoder.was_training == [False, False]
    assert trainer.model.training


def test_a_search_of_all_samples_hears_what_a_search_of_each_batch_hears():
    searching = LasTextComparisonCallback(decoder=AttentionBeamDecoder(beam_size=3))
    _, rows = run(searching)
    free = TbTextComparisonCallback()
    _, expected = run(free, decoder=AttentionBeamDecoder(beam_size=3))
    assert searching.rates == free.rates
    heard = {name.partition("/")[2]: text for name, text in tables(rows, "beam_search")[4].items()}
    freely = {name.partition("/")[2]: text for name, text in tables(expected)[4].items()}
    assert {name: text.replace("beam search", "free-running") for name, text in heard.items()} == freely


def test_texts_are_decoded_even_if_no_metric_wants_them():
    _, rows = run(TbTextComparisonCallback(), metrics=[])
    assert len(tables(rows)[4]) == 4


def test_other_predictions_than_those_of_validations_are_not_compared():
    _, rows = run(
        TbTextComparisonCallback(),
        ("epoch_end", lambda moment: moment.context.evaluate(Utterances(batches=1, seed=50))),
    )
    assert not any("u50" in name for each in tables(rows).values() for name in each)


def test_pictures_are_logged_once_for_all_callbacks():
    _, rows = run(TbTextComparisonCallback(samples=2), TbTeacherForcingTextComparisonCallback(samples=4))
    images = Counter(
        (name, step) for step, values in rows for name, value in values.items() if isinstance(value, Image)
    )
    assert set(images.values()) == {1}
    kinds = Counter((name.partition("/")[0], step) for name, step in images)
    assert kinds == {("log_mel", 2): 4, ("alignment", 2): 4, ("alignment", 4): 4}


def test_without_pictures_there_are_none():
    _, rows = run(TbTextComparisonCallback(pictures=False))
    assert not any(isinstance(value, (Image, Audio)) for _, values in rows for value in values.values())


def test_tables_are_not_for_files_of_numbers(tmp_path):
    run(TbTextComparisonCallback(), TranscriptDashboard(), MetricsFile(folder=tmp_path))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines() if (tmp_path / "metrics.jsonl").exists() else []
    assert not any("free_running" in name for line in lines for name in json.loads(line))


@pytest.mark.parametrize("at", [2, 3, 6])
def test_after_a_resume_nothing_is_there_twice_and_nothing_is_missing(at, tmp_path):
    callbacks = [
        TbTextComparisonCallback(samples=2),
        TranscriptDashboard(samples=2),
        TensorBoardCallback(folder=tmp_path),
    ]
    speech_trainer(*callbacks, SaveAt(at=at, path=tmp_path / "checkpoint"), epochs=2).start_training()
    unbroken = records(tmp_path / "tensorboard")
    assert set(unbroken.values()) == {1}
    resumed = load(tmp_path / "checkpoint")
    resumed.continue_training()
    assert records(tmp_path / "tensorboard") == unbroken
    assert resumed.callbacks[0].rates == callbacks[0].rates


def ctc_only():
    encoder = TDSEncoder(groups=[TDSGroup(channels=1, blocks=1, kernel=3, stride=1)], norm_over="frame")
    return Recogniser(vocabulary_size=7, features=6, encoder=encoder, ctc=True)


@pytest.mark.parametrize("cls", [TbTeacherForcingTextComparisonCallback, LasTextComparisonCallback])
def test_models_without_attention_are_refused(cls):
    with pytest.raises((CallbackError, UsageError), match="needs a model with an attention decoder"):
        speech_trainer(cls(), model=ctc_only(), metrics=[]).start_training()


def test_the_dashboard_takes_what_texts_a_trainer_can_give():
    def modes(**fields):
        _, rows = run(TranscriptDashboard(), metrics=[], **fields)
        return {
            tuple(json.loads(value.about)["modes"])
            for _, values in rows
            for name, value in values.items()
            if "/heard/" in name
        }

    assert modes() == {("free", "teacher_forced")}
    assert modes(decoder=None) == {("teacher_forced",)}
    assert modes(model=ctc_only(), loss=ctc_loss) == {("free",)}


@serializable
def ctc_loss(output, batch):
    """Enough to train a CTC model for a batch."""
    return output.ctc_logits_BSV.square().mean()


@serializable
class Line(nn.Module):
    """A model of something else than speech."""

    def __post_init__(self):
        self.layer = nn.Linear(2, 1)

    def forward(self, inputs):
        return self.layer(inputs)


@serializable
def mean_square(output, target):
    """A loss for it."""
    return (output - target).square().mean()


def test_data_without_utterances_is_passed_over():
    batches = [(torch.ones(3, 2), torch.ones(3, 1))] * 2
    _, rows = run(
        TranscriptDashboard(), model=Line(), loss=mean_square, decoder=None, metrics=[],
        train_data_loader=batches, val_data_loader=batches,
    )  # fmt: skip
    assert rows == []


def test_every_validation_set_has_samples_of_its_own():
    loaders = {"clean": Utterances(batches=1, seed=7), "noisy": Utterances(batches=1, seed=8)}
    trainer, rows = run(TbTextComparisonCallback(), TranscriptDashboard(), val_data_loader=loaders)
    assert {name: set(ids) for name, ids in trainer.callbacks[0].chosen.items()} == {
        "clean": {"u7-0", "u7-1"}, "noisy": {"u8-0", "u8-1"},
    }  # fmt: skip
    names = {name for _, values in rows for name in values}
    assert {"free_running/clean/u7-0", "free_running/noisy/u8-1", "transcripts/noisy/heard/00000004"} <= names


def test_a_negative_number_of_samples_is_refused():
    with pytest.raises(UsageError, match="must not be negative, got -1"):
        TbTextComparisonCallback(samples=-1)


# Audio, from real files


@pytest.fixture
def loader(tmp_path):
    """Two utterances of one file each, and one of the second half of a file."""
    rows = []
    for number, seconds in enumerate((0.5, 0.6, 1.0)):
        samples = 0.3 * np.sin(np.arange(int(16000 * seconds)) * 0.2 * (number + 1))
        soundfile.write(tmp_path / f"{number}.wav", samples, 16000)
        offset = 0.5 if number == 2 else 0.0
        rows.append(
            Utterance(f"tone-{number}", str(tmp_path / f"{number}.wav"), seconds - offset, "a b", offset=offset)
        )
    manifest = write_manifest(tmp_path / "tones.jsonl", rows)
    dataset = AudioDataset(manifest=manifest, tokenizer=Alphabet(characters="ab "))
    return AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=2, shuffle=False))


def test_audio_is_that_of_the_sample_and_logged_once(loader, tmp_path):
    model = ctc_of(loader.dataset.features.mels)
    callbacks = [TbTextComparisonCallback(samples=3), TbTextComparisonCallback(samples=3)]
    _, rows = run(
        *callbacks, TensorBoardCallback(folder=tmp_path / "run"), train_data_loader=loader, val_data_loader=loader,
        model=model, loss=ctc_loss, epochs=2, test_step=1, metrics=[],
    )  # fmt: skip
    audio = [(step, name, value) for step, values in rows for name, value in values.items() if isinstance(value, Audio)]
    assert sorted((step, name) for step, name, _ in audio) == [(1, f"audio/val/tone-{number}") for number in range(3)]
    half = next(value for _, name, value in audio if name.endswith("2"))
    assert len(half.samples_N) == 8000
    seen = accumulators.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert len(seen.Tags()["audio"]) == 3
    clip = seen.Audio("audio/val/tone-0")[0]
    assert (clip.sample_rate, clip.length_frames, clip.content_type) == (16000, 8000, "audio/wav")


def ctc_of(features):
    encoder = TDSEncoder(groups=[TDSGroup(channels=1, blocks=1, kernel=3, stride=2)], norm_over="frame")
    return Recogniser(vocabulary_size=7, features=features, encoder=encoder, ctc=True)


def test_a_recording_that_is_gone_is_named_and_left_out(loader, tmp_path, caplog):
    (tmp_path / "1.wav").unlink()
    callback = TbTextComparisonCallback()
    callback._loader = loader
    assert set(callback.recordings(["tone-0", "tone-1", "nobody"])) == {"tone-0"}
    assert "The recording of a sample cannot be shown" in caplog.text
