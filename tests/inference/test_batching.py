"""Items in batches of similar length, and back in their order."""

from __future__ import annotations

import numpy as np

from sonosco_like.inference.transcriber import in_batches


def test_results_come_in_order_and_batches_keep_to_their_limit():
    lengths = np.random.default_rng(0).uniform(0.5, 9.0, 300).tolist()
    batches = []

    def work(items: list[float]) -> list[float]:
        batches.append(items)
        return [2 * item for item in items]

    assert list(in_batches(lengths, float, work, 30.0)) == [(item, 2 * item) for item in lengths]
    assert max(max(batch) * len(batch) for batch in batches) <= 30.0
    padding = 1 - sum(lengths) / sum(max(batch) * len(batch) for batch in batches)
    assert padding < 0.25
    assert len(batches) < len(lengths) / 2


def test_the_first_result_does_not_wait_for_the_last_item():
    taken = []

    def items():
        for number in range(100):
            taken.append(number)
            yield 5.0

    next(in_batches(items(), float, lambda batch: batch, 20.0))
    assert len(taken) == 4


def test_what_is_longer_than_a_batch_is_worked_on_alone():
    assert [result for _, result in in_batches([50.0, 1.0], float, lambda batch: [len(batch)] * len(batch), 20.0)] == [
        1,
        1,
    ]


def test_nothing_gives_nothing():
    assert list(in_batches([], float, lambda batch: batch, 20.0)) == []
