"""Data is read, processed, divided and handed out in stages that callbacks hear, and through which it really goes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
import torch
from tiny import whole_and_cut

from sonosco_like import serializable
from sonosco_like.callbacks import HistoryRecorder
from sonosco_like.data import Alphabet, AudioDataLoader, AudioDataset, BucketSampler, ManifestPart
from sonosco_like.data.features import LogMel
from sonosco_like.errors import DataError, UsageError
from sonosco_like.events import AbstractCallback, CallbackError, Stop
from sonosco_like.losses import CTCLoss
from sonosco_like.models import Recogniser, TDSEncoder, TDSGroup
from sonosco_like.optim import SGD
from sonosco_like.serialization import dumps, loads, state
from sonosco_like.training import ModelTrainer, seed_everything

STAGES = ("load_data", "process_data", "split_data", "create_loader")
EVENTS = [f"{stage}_{end}" for stage in STAGES for end in ("start", "end")]


@pytest.fixture
def manifest(tmp_path):
    """Twelve recordings of noise, 0.2 to 0.42 seconds, by four speakers."""
    random = np.random.default_rng(0)
    rows = []
    for number in range(12):
        seconds = 0.2 + 0.02 * number
        soundfile.write(tmp_path / f"{number:02d}.wav", random.normal(0, 0.1, round(16000 * seconds)), 16000)
        text = "ab" if number % 2 else "b a"
        rows.append({"audio_filepath": f"{number:02d}.wav", "duration": seconds, "text": text, "speaker": number % 4})
    path = tmp_path / "all.jsonl"
    path.write_text("".join(json.dumps({**row, "speaker": str(row["speaker"])}) + "\n" for row in rows))
    return path


def loader_of(manifest, **fields) -> AudioDataLoader:
    fields = {"features": LogMel(mels=6), "tokenizer": Alphabet(characters="ab "), **fields}
    return AudioDataLoader(dataset=AudioDataset(manifest=manifest, **fields), sampler=BucketSampler(batch_size=2))


@serializable
class Diary(AbstractCallback):
    """Notes data events with the name of the loader, and the utterances that are trained."""

    heard: list[str] = state([])
    trained: list[str] = state([])

    def on_event(self, moment):
        if moment.event in EVENTS:
            self.heard.append(f"{moment.args['name']} {moment.event}")
        if moment.event == "batch_start":
            self.trained += moment.args["batch"].ids


def make_trainer(*callbacks, train, cls=ModelTrainer, **fields) -> ModelTrainer:
    seed_everything(1)
    encoder = TDSEncoder(groups=[TDSGroup(channels=1, blocks=1, kernel=3, stride=1)], norm_over="frame")
    model = Recogniser(vocabulary_size=Alphabet(characters="ab ").size, features=6, encoder=encoder, ctc=True)
    given = {"epochs": 1, "optimizer": SGD(lr=0.01), "test_step": None, "callbacks": list(callbacks), **fields}
    return cls(model=model, loss=CTCLoss(), train_data_loader=train, **given)


def trained(*callbacks, train, **fields) -> list[str]:
    trainer = make_trainer(*callbacks, diary := Diary(), train=train, **fields)
    trainer.start_training()
    return sorted(diary.trained)


def ids(*numbers: int) -> list[str]:
    return [f"{number:02d}" for number in numbers]


def test_every_loader_goes_through_the_stages_in_their_order(manifest):
    diary = Diary()
    sets = {"clean": loader_of(manifest), "long": loader_of(manifest, min_duration=0.3, on_bad="skip")}
    trainer = make_trainer(
        diary, train=loader_of(manifest), val_data_loader=sets, test_data_loader=[next(iter(loader_of(manifest)))]
    )
    trainer.start_training()
    names = ("train", "val_clean", "val_long")
    assert diary.heard == [
        *(f"{name} {event}" for name in names for event in EVENTS),
        "test create_loader_start",  # a list brings its batches with it
        "test create_loader_end",
    ]


def test_a_manifest_can_be_replaced_after_it_was_read(manifest):
    def only_late(trainer, return_value):
        return return_value.select([8, 9, 10, 11])

    loader = loader_of(manifest)
    assert len(loader) == 6  # a plan that was made before is not kept
    assert trained(("post-load", only_late), train=loader) == ids(8, 9, 10, 11)


def test_a_dataset_can_be_changed_before_it_is_read(manifest):
    def short(moment):
        moment.args["dataset"].max_duration = 0.25
        moment.args["dataset"].on_bad = "skip"

    assert trained(("load_data_start", short), train=loader_of(manifest)) == ids(0, 1, 2)


def test_utterances_can_be_left_out_when_data_is_processed(manifest):
    def without_blanks(trainer, return_value):
        utterances = trainer.train_data_loader.dataset.utterances
        return [row for row in return_value.tolist() if " " not in utterances[row].text]

    processed = trained(("post-process", without_blanks), train=loader_of(manifest))
    assert processed == ids(1, 3, 5, 7, 9, 11)


def test_lengths_are_what_processing_is_about(manifest):
    rows = []
    look = ("post-process", lambda trainer, return_value: rows.extend(return_value.tolist()) or return_value)
    trained(look, train=loader_of(manifest, max_duration=0.301, on_bad="skip"))
    assert rows == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("by", "shared"), [("speaker", "speaker"), ("text", "text"), ("both", "speaker")])
def test_parts_of_one_manifest_share_nothing(manifest, by, shared):
    kept = {keep: loader_of(manifest, part=ManifestPart(keep=keep, by=by)).dataset for keep in ("train", "val")}
    rows = {keep: dataset.usable.tolist() for keep, dataset in kept.items()}
    assert sorted(rows["train"] + rows["val"]) == list(range(12))
    values = {keep: {getattr(dataset.utterances[row], shared) for row in rows[keep]} for keep, dataset in kept.items()}
    assert values["train"]
    assert values["val"]
    assert not values["train"] & values["val"]


def test_training_and_validation_of_one_manifest(manifest):
    loaders = {keep: loader_of(manifest, part=ManifestPart(keep=keep)) for keep in ("train", "val")}
    validated = []
    look = ("pre-validation_batch", lambda trainer, batch: validated.extend(batch.ids))
    learned = trained(look, train=loaders["train"], val_data_loader=loaders["val"])
    assert len(learned) == 9
    assert sorted(learned + validated) == ids(*range(12))


def test_the_split_can_be_replaced(manifest):
    def first_half(trainer, name, rows):
        return name, rows[: len(rows) // 2] if name == "train" else rows

    assert trained(("pre-split", first_half), train=loader_of(manifest)) == ids(0, 1, 2, 3, 4, 5)


def test_a_part_holds_for_other_limits_too(manifest):
    longer = loader_of(manifest, part=ManifestPart(keep="val"), min_duration=0.3, on_bad="skip").dataset.usable.tolist()
    assert longer == [
        row for row in loader_of(manifest, part=ManifestPart(keep="val")).dataset.usable.tolist() if row > 4
    ]


def test_a_part_without_utterances_and_one_without_share_are_refused(manifest):
    speakers = loader_of(manifest, part=ManifestPart(keep="val")).dataset.usable.tolist()
    limit = 0.2 + 0.02 * min(speakers) - 0.001
    with pytest.raises(DataError, match="is in its part 'val'"):
        list(loader_of(manifest, part=ManifestPart(keep="val"), max_duration=limit, on_bad="skip"))
    with pytest.raises(UsageError, match="`keep` must be a part with a share: train, val; got 'valid'"):
        ManifestPart(keep="valid")


def test_a_part_is_written_and_read(manifest):
    text = dumps(loader_of(manifest, part=ManifestPart(keep="val", seed=3)))
    assert loads(text).dataset.part.seed == 3


@pytest.mark.parametrize("event", EVENTS)
def test_a_stop_and_a_failure_at_each_of_them(manifest, event):
    def stop(moment):
        raise Stop("enough")

    def fail(moment):
        raise RuntimeError("broken")

    trainer = make_trainer((event, stop), train=loader_of(manifest))
    trainer.start_training()
    assert trainer.global_step == 0
    with pytest.raises(CallbackError, match=f"fail failed at {event}: RuntimeError: broken"):
        make_trainer((event, fail), train=loader_of(manifest)).start_training()


class Halving(ModelTrainer):
    """Divides in its own way, without a mark."""

    def split_data(self, name, dataset, rows):
        return super().split_data(name, dataset, rows)[::2]


def test_a_stage_of_data_can_be_overridden(manifest):
    diary = Diary()
    make_trainer(diary, train=loader_of(manifest), cls=Halving).start_training()
    assert sorted(diary.trained) == ids(0, 2, 4, 6, 8, 10)
    assert diary.heard == [f"train {event}" for event in EVENTS]


@serializable
def odd_rows(trainer, return_value):
    """Every second utterance."""
    return return_value[1::2]


def test_a_run_whose_data_was_changed_is_resumed_bit_for_bit(manifest, tmp_path):
    def run(**fields):
        train = loader_of(manifest, part=ManifestPart(keep="train"))
        return make_trainer(("post-process", odd_rows), Diary(), HistoryRecorder(), train=train, epochs=3, **fields)

    whole, resumed = whole_and_cut(run, tmp_path)
    assert resumed.callbacks[1].trained == whole.callbacks[1].trained
    assert set(whole.callbacks[1].trained) <= set(ids(1, 3, 5, 7, 9, 11))
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))
