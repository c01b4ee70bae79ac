"""The soft window is turned off when its time is over."""

from __future__ import annotations

import pytest
from tiny_run import FEATURES, TOKENIZER, differences, make_trainer, whole_and_resumed

from sonosco_like.callbacks import DisableSoftWindowAttention
from sonosco_like.events import CallbackError
from sonosco_like.models import KeyValueDecoder, Recogniser, TDSEncoder, TDSGroup
from sonosco_like.serialization import load


def windowed_batches(after: str) -> list[int]:
    """The batches of a run that were trained with the window on."""
    trainer = make_trainer(DisableSoftWindowAttention(after=after), val_data_loader=None)
    found = []

    def note(moment):
        if moment.context.model.decoder.soft_window:
            found.append(moment.context.global_step)

    trainer.add_callback(("forward_start", note))
    trainer.start_training()
    return found


@pytest.mark.parametrize(("after", "count"), [("1ep", 4), ("2ep", 8), ("3ba", 3), ("0.5dur", 6), ("1h", 12)])
def test_the_window_is_on_for_so_long(after, count):
    assert windowed_batches(after) == list(range(count))


@pytest.mark.parametrize("at", [2, 6])
def test_the_window_of_a_resumed_run_is_that_of_the_whole_one(at, tmp_path):
    whole, resumed = whole_and_resumed(at, tmp_path, DisableSoftWindowAttention(after="5ba"))
    assert load(tmp_path / f"at-{at}").model.decoder.soft_window is (at < 5)
    assert differences(whole, resumed) == []


def test_a_model_without_a_window_is_refused_at_the_start():
    encoder = TDSEncoder(groups=[TDSGroup(channels=1, blocks=1, kernel=3, stride=1)])
    model = Recogniser(
        vocabulary_size=TOKENIZER.size, features=FEATURES, encoder=encoder, decoder=KeyValueDecoder(size=4)
    )
    trainer = make_trainer(DisableSoftWindowAttention(), model=model)
    with pytest.raises(CallbackError, match="give its attention decoder a `window_sigma`"):
        trainer.start_training()
    assert trainer.global_step == 0
