"""The first config follows the data, the machine and the time; every one that it can write is valid."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sonosco_like.data.text import SentencePieceTokenizer
from sonosco_like.data.tools.examination import Examination
from sonosco_like.data.tools.survey import SetSurvey, Survey, examine_writing
from sonosco_like.errors import UsageError
from sonosco_like.serialization import Document
from sonosco_like.training import Experiment
from sonosco_like.training.proposal import SIZES, Machine, Proposal, TrialTimes, fit_to_time, next_smaller, propose
from sonosco_like.training.proposal_text import model_names, write_proposal

LAPTOP = Machine(processors=4, memory=16 << 30)
SERVER = Machine(processors=16, memory=64 << 30, gpu="GPU", gpu_memory=24 << 30)
TEXTS = ["one two three", "four five six", "seven eight nine zero"]


def survey(hours: float, seconds: float = 4.0, rate: int = 16000, texts: list[str] = TEXTS, **fields: object) -> Survey:
    """A survey of training data with so many hours, and of a tenth of it for validation."""

    def data(name: str, hours: float) -> SetSurvey:
        count = max(2, round(hours * 3600 / seconds))
        examined = Examination(sample_rates=Counter({rate: count}), channels=Counter({1: count}))
        given = {"letters": [len(texts[n % len(texts)]) for n in range(count)], **fields}
        return SetSurvey(Path(f"corpus/{name}.jsonl"), np.full(count, seconds), examined, **given)

    return Survey(data("train", hours), data("val", hours / 10), examine_writing(texts))


def proposal(hours: float = 1.0, machine: Machine = LAPTOP, minutes: float = 30.0, **options: object) -> Proposal:
    model, labels = options.pop("model", None), options.pop("labels", "auto")
    return propose(Path("mine"), survey(hours, **options), machine, minutes, model, labels)


def times(epoch: float, validation: float = 1.0, batches: int = 1000, memory: int = 1 << 28) -> TrialTimes:
    step = epoch / batches / 1.05  # a twentieth is for logs and checkpoints
    return TrialTimes(step, step / 10, validation, batches, workers=1, memory=memory, batches=5)


def content(chosen: Proposal) -> Document:
    return Document.parse(write_proposal(chosen))


@pytest.mark.parametrize("epoch", [0.5, 7.0, 40.0, 300.0, 5000.0])
@pytest.mark.parametrize("validation", [0.1, 30.0])
def test_the_training_takes_the_time_that_was_given(epoch, validation):
    fitted = fit_to_time(proposal(minutes=30.0), times(epoch, validation))
    trained = fitted.batches / 1000 * epoch if fitted.batches else fitted.epochs * epoch
    validations = (fitted.batches or fitted.epochs) / fitted.validate_every
    assert validations == int(validations) >= 3
    assert 0.85 < (trained + validations * validation) / 1800 < 1.1


def test_a_training_shorter_than_a_few_epochs_ends_after_so_many_batches_and_validates_on_the_way():
    fitted = fit_to_time(proposal(minutes=10.0), times(1000.0))
    config = content(fitted)
    assert config.get("trainer.max_duration") == f"{fitted.batches}ba"
    assert 550 <= fitted.batches <= 600
    assert int(str(config.get("trainer.test_step")).removesuffix("ba")) * 3 <= fitted.batches


def test_only_a_training_of_several_epochs_begins_with_short_utterances():
    """Otherwise it would hear hardly anything else."""
    place = "trainer.train_data_loader.sampler.sorted_first_epoch"
    assert content(fit_to_time(proposal(minutes=10.0), times(1000.0))).get(place) is None
    assert content(fit_to_time(proposal(minutes=10.0), times(10.0))).get(place) is True


@pytest.mark.parametrize("model", model_names())
@pytest.mark.parametrize("size", SIZES)
def test_every_config_that_can_be_written_is_valid(model, size):
    config = content(replace(proposal(model=model), size=size))
    trainer = config.build(Experiment).trainer
    assert trainer.model.vocabulary_size == trainer.train_data_loader.dataset.tokenizer.size
    assert trainer.model.features == trainer.train_data_loader.dataset.features.size
    assert trainer.val_data_loader.dataset.features is trainer.train_data_loader.dataset.features
    assert len(write_proposal(proposal(model=model)).splitlines()) < 70


def test_a_larger_model_is_for_more_hours_and_not_for_a_cpu_or_too_little_time():
    sizes = [proposal(hours, SERVER).size for hours in (1, 50, 500)]
    assert sizes == ["small", "medium", "large"]
    assert proposal(500, LAPTOP).size == "medium"
    smaller = next_smaller(proposal(500, SERVER), times(epoch=1000.0))
    assert smaller.size == "medium"
    assert "only 1.8 passes" in smaller.reasons["size"]
    assert next_smaller(proposal(1, LAPTOP), times(epoch=1e6)) is None


def test_batches_that_need_too_much_memory_are_halved():
    chosen = proposal(50, SERVER)
    smaller = next_smaller(chosen, times(epoch=1.0, memory=23 << 30))
    assert smaller.batch_seconds == chosen.batch_seconds // 2
    assert "GB" in smaller.reasons["batch"]


def test_batches_hold_a_few_utterances_on_a_cpu_and_always_the_longest():
    assert proposal(seconds=4.0).batch_seconds == 32
    assert proposal(seconds=29.0).batch_seconds == 160
    assert proposal(machine=SERVER, hours=100).batch_seconds > 300


def test_telephone_speech_gets_features_of_its_rate():
    config = content(proposal(rate=8000))
    assert config.get("trainer.train_data_loader.dataset.features.sample_rate") == 8000
    assert config.build(Experiment).trainer.train_data_loader.dataset.features.sample_rate == 8000


def test_long_utterances_are_left_out_and_a_corpus_of_them_is_refused():
    data = survey(1.0)
    data.train.durations[:5] = 100.0
    chosen = propose(Path("mine"), data, LAPTOP, 30.0, None, "auto")
    assert content(chosen).get("trainer.train_data_loader.dataset.max_duration") == 30
    assert content(chosen).get("trainer.train_data_loader.dataset.on_bad") == "skip"
    with pytest.raises(UsageError, match="Cut them at pauses"):
        propose(Path("mine"), survey(10.0, seconds=600.0), LAPTOP, 30.0, None, "auto")


def test_word_pieces_are_chosen_for_crowded_texts_and_for_large_corpora(tmp_path):
    assert proposal().pieces is None
    assert proposal(labels="pieces").pieces
    crowded = proposal(seconds=0.5)
    assert crowded.pieces
    assert "more characters than CTC has frames" in crowded.reasons["labels"]
    words = [f"{one}{two}{three} word" for one in "abcdefghij" for two in "klmnopqrst" for three in range(60)]
    assert proposal(100, texts=words).pieces == 1000
    pieces = SentencePieceTokenizer.train(TEXTS * 3, tmp_path / "pieces.model", 32)
    chosen = replace(proposal(labels="pieces"), folder=tmp_path)
    assert content(chosen).build(Experiment).trainer.model.vocabulary_size == pieces.size


def test_any_alphabet_is_written_and_texts_without_spaces_are_judged_by_characters():
    chosen = proposal(texts=["今天天气很好我们去公园散步吧", "他昨天在图书馆里看了一本很有意思的书"])
    config = content(chosen)
    assert chosen.pieces is None
    assert set("今天") < set(str(config.get("trainer.train_data_loader.dataset.tokenizer.characters")))
    assert "monitor: val_character_error_rate" in write_proposal(chosen)


@pytest.mark.parametrize("name", ["true", "my run: 2", "Ünïcode", "1.0", "a'b\"c"])
def test_any_folder_name_makes_a_valid_config(name):
    chosen = propose(Path("runs") / name, survey(1.0), LAPTOP, 30.0, None, "auto")
    assert content(chosen).build(Experiment).name == name


@pytest.mark.parametrize("path", ["a b/x: y.jsonl", "no", "#1.jsonl", "ü/ö.jsonl"])
def test_any_path_of_a_manifest_makes_a_valid_config(path):
    data = survey(1.0)
    data.train.path = Path(path)
    config = content(propose(Path("mine"), data, LAPTOP, 30.0, None, "auto"))
    assert config.build(Experiment).trainer.train_data_loader.dataset.manifest == Path(path)
