"""The loader among several processes: another number of them goes on with the utterances that none has heard."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from test_loader import loader

from sonosco_like.data.loader import AudioDataLoader
from sonosco_like.data.sampling import BucketSampler
from sonosco_like.errors import UsageError


def heard_by(group: list[AudioDataLoader], batches: int) -> list[str]:
    """The utterances of so many batches of each rank, or of all there are."""
    taken = [list(itertools.islice(iter(each), batches)) for each in group]
    return [identity for of_rank in taken for batch in of_rank for identity in batch.ids]


def group_of(corpus: Path, world: int, states: list[dict[str, Any]]) -> list[AudioDataLoader]:
    """Loaders of so many ranks that go on where those of the states were."""
    group = [loader(corpus, sampler=BucketSampler(batch_size=2)) for _ in range(world)]
    for rank, each in enumerate(group):
        each.distribute(rank, world)
        if len(states) == world:
            each.load_state_dict(states[rank])
        else:
            each.load_shares(states)
        each.set_epoch(1)
    return group


@pytest.mark.parametrize(
    "numbers", [(2, 1), (1, 2), (2, 3), (2, 1, 2), (1, 3, 2), (3, 2, 2, 1), (2, 3, 2)], ids=lambda numbers: f"{numbers}"
)
def test_other_numbers_of_processes_hear_every_utterance_of_the_epoch_once(corpus: Path, numbers: tuple[int]) -> None:
    states: list[dict[str, Any]] = [{"epoch": 1, "position": 0}] * numbers[0]
    heard: list[str] = []
    done = 0
    for world in numbers[:-1]:
        group = group_of(corpus, world, states)
        heard += heard_by(group, 3)
        done += 3
        states = [each.state_dict() for each in group]
        assert {each.position for each in group} == {done}
    last = group_of(corpus, numbers[-1], states)
    assert {each.position for each in last} == {done}
    lengths = [len(each) for each in last]
    left_out = [last[0].dataset.utterances[index].id for index in last[0].plan.left_out.tolist()]
    rest = [list(each) for each in last]
    assert [done + len(batches) for batches in rest] == lengths
    heard += [identity for batches in rest for batch in batches for identity in batch.ids]
    assert sorted(heard + left_out) == [f"wav/{number:03d}" for number in range(40)]
    assert len(left_out) < numbers[-1]
    last[0].set_epoch(2)
    assert len(last[0]) == len(last[0].plan)


def test_a_finished_epoch_is_not_trained_again_by_another_number_of_processes(corpus: Path) -> None:
    group = group_of(corpus, 2, [{"epoch": 1, "position": 0}] * 2)
    heard_by(group, len(group[0]))
    (alone,) = group_of(corpus, 1, [each.state_dict() for each in group])
    assert list(alone) == []


def test_the_place_among_processes_can_be_undone_but_not_before_it(corpus: Path) -> None:
    group = group_of(corpus, 2, [{"epoch": 1, "position": 0}] * 2)
    heard_by(group, 4)
    (alone,) = group_of(corpus, 1, [each.state_dict() for each in group])
    first = next(iter(alone)).ids
    alone.seek(4)
    assert next(iter(alone)).ids == first
    with pytest.raises(UsageError, match="The first 4 batches"):
        alone.seek(3)
    alone.seek(0)
    assert sum(len(batch.ids) for batch in alone) == 40
