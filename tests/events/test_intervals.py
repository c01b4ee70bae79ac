"""When it is time again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.errors import UsageError
from sonosco_like.events import Every, Moment, Stop, epoch_is_over, share_done


def walk(
    every: Every, epochs: int, batches: int, start: int = 0, sized: bool = True, pace: float = 1.0, max_duration=None
):
    """The times at which an interval is over, from a batch of a run to its end: batch numbers, and epochs as `e1`."""
    loader = [None] * batches if sized else iter(())
    found = []
    for epoch in range(epochs):
        for step in range(batches):
            done = epoch * batches + step + 1
            context = SimpleNamespace(
                callbacks=[], max_duration=max_duration,
                epoch=epoch, epochs=epochs, batches_done=step + 1, global_step=done, seconds=pace * done,
                train_data_loader=loader,
            )  # fmt: skip
            if done > start and every.after_batch(context):
                found.append(done)
        if (epoch + 1) * batches > start and every.after_epoch(context):
            found.append(f"e{epoch + 1}")
    return found


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("3ba", [3, 6, 9, 12]),
        ("1ep", ["e1", "e2", "e3"]),
        ("2ep", ["e2"]),
        ("0.25dur", [3, 6, 9, 12]),
        ("0.5dur", [6, 12]),
        ("5s", [5, 10]),
    ],
)
def test_times_of_a_run_of_three_epochs_of_four_batches(text, times):
    assert walk(Every(text), epochs=3, batches=4) == times


def test_shares_are_counted_in_epochs_if_nobody_knows_how_long_one_is():
    assert walk(Every("0.5dur"), epochs=4, batches=3, sized=False) == ["e2", "e4"]


@given(start=st.integers(0, 23), text=st.sampled_from(["1ba", "5ba", "2ep", "0.1dur", "0.3dur", "1dur"]))
def test_a_resumed_run_has_the_times_of_the_whole_one(start, text):
    whole = walk(Every(text), epochs=4, batches=6)
    resumed = walk(Every(text), epochs=4, batches=6, start=start)
    assert resumed == [time for time in whole if (int(time[1:]) * 6 if isinstance(time, str) else time) > start]


def test_a_tenth_of_a_training_comes_ten_times():
    assert len(walk(Every("0.1dur"), epochs=7, batches=30)) == 10


def test_shares_that_floats_cannot_hold_come_at_their_own_batch():
    assert walk(Every("0.1dur"), epochs=10, batches=1) == list(range(1, 11))  # 0.3 / 0.1 is below 3


def test_half_of_a_training_that_is_limited_is_half_of_its_limit():
    assert walk(Every("0.5dur"), epochs=4, batches=6, max_duration="8ba")[0] == 4
    assert walk(Every("0.5dur"), epochs=4, batches=6, max_duration="2ep")[0] == 6


@pytest.mark.parametrize("text", ["0s", "0ba", "ten", "1.5ep"])
def test_what_is_no_interval_is_refused(text):
    with pytest.raises(UsageError, match=text):
        Every(text)


def test_an_epoch_is_over_unless_it_was_interrupted():
    assert epoch_is_over(Moment("epoch_end", None))
    assert epoch_is_over(Moment("epoch_end", None, error=Stop("enough of it", scope="epoch")))
    assert not epoch_is_over(Moment("epoch_end", None, error=Stop("enough")))


def test_the_share_done_counts_batches_where_it_can():
    context = SimpleNamespace(
        epoch=1, epochs=4, batches_done=2, global_step=6, train_data_loader=[0] * 4, callbacks=[], max_duration=None
    )
    assert share_done(context) == 0.375
    context.train_data_loader = iter(())
    assert share_done(context) == 0.25


@pytest.mark.parametrize(
    ("limit", "share"), [("12ba", 0.5), ("2ep", 0.75), ("0.5dur", 0.75), ("100ba", 0.375), ("5min", 0.375)]
)
def test_a_limit_shortens_the_training_that_shares_are_of(limit, share):
    context = SimpleNamespace(
        epoch=1, epochs=4, batches_done=2, global_step=6, train_data_loader=[0] * 4, callbacks=[], max_duration=limit
    )
    assert share_done(context) == share
