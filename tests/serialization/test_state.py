"""What a run changed: kept by path, with the class beside it, and given back to the same object."""

from __future__ import annotations

from dataclasses import field
from math import inf
from typing import Any

import pytest
import torch
from torch import nn

from sonosco_like import dumps, load, loads, save, serializable, state
from sonosco_like.errors import ConfigError
from sonosco_like.serialization import restore


@serializable
class Best:
    monitor: str = "val_loss"
    best: float = state(inf)
    seen: list[int] = state([])


@serializable
class Counter:
    """Keeps its state in the way of PyTorch."""

    start: int = 0

    def __post_init__(self):
        self.count = self.start

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "pair": (1, 2)}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        assert content["pair"] == (1, 2)
        self.count = content["count"]


@serializable
class Part(nn.Module):
    size: int = 2
    used: int = state(0)

    def __post_init__(self):
        self.linear = nn.Linear(self.size, self.size)


@serializable
class Whole(nn.Module):
    part: Part = field(default_factory=Part)
    again: Part | None = None


@serializable
class Trainer:
    model: nn.Module
    callbacks: list[Best] = field(default_factory=list)
    counter: Counter = field(default_factory=Counter)
    favourite: Best | None = state(None)
    moments: torch.Tensor | None = state(None)
    anything: Any = state(None)


def test_several_instances_of_one_class_keep_their_own_state(tmp_path):
    trainer = Trainer(model=Whole(), callbacks=[Best(), Best(monitor="val_wer"), Best()])
    for index, callback in enumerate(trainer.callbacks):
        callback.best, callback.seen = index / 10, [index] * index
    save(trainer, tmp_path / "run")
    restored = load(tmp_path / "run", Trainer)
    assert [(c.monitor, c.best, c.seen) for c in restored.callbacks] == [
        ("val_loss", 0.0, []),
        ("val_wer", 0.1, [1]),
        ("val_loss", 0.2, [2, 2]),
    ]


def test_weights_nested_state_and_state_dicts_come_back(tmp_path):
    trainer = Trainer(model=Whole(part=Part(size=3)))
    trainer.model.part.used = 7
    trainer.counter.count = 5
    trainer.moments = torch.arange(3.0)
    trainer.anything = {"generator": torch.get_rng_state(), 0: [(1, None), {"a": 0.1}]}
    save(trainer, tmp_path / "run")
    restored = load(tmp_path / "run")
    assert torch.equal(restored.model.part.linear.weight, trainer.model.part.linear.weight)
    assert restored.model.part.used == 7
    assert restored.counter.count == 5
    assert torch.equal(restored.moments, trainer.moments)
    assert torch.equal(restored.anything["generator"], trainer.anything["generator"])
    assert restored.anything[0] == [(1, None), {"a": 0.1}]


def test_weights_of_a_module_inside_a_module_are_stored_once(tmp_path):
    save(Trainer(model=Whole()), tmp_path / "run")
    text = (tmp_path / "run" / "state.yaml").read_text()
    assert text.count("!tensor") == 2


def test_a_module_used_twice_is_one_module_again(tmp_path):
    part = Part()
    save(Whole(part=part, again=part), tmp_path / "run")
    restored = load(tmp_path / "run", Whole)
    assert restored.part is restored.again
    assert restored.part.linear.weight is restored.again.linear.weight


def test_state_may_point_to_an_object_of_the_graph(tmp_path):
    trainer = Trainer(model=Whole(), callbacks=[Best(), Best()])
    trainer.favourite = trainer.callbacks[1]
    save(trainer, tmp_path / "run")
    restored = load(tmp_path / "run", Trainer)
    assert restored.favourite is restored.callbacks[1]


def test_a_text_carries_state_unless_it_is_not_wanted():
    fresh, changed = Best(), Best()
    changed.best = 0.25
    assert loads(dumps(fresh)).best == Best().best
    assert loads(dumps(changed)).best == 0.25
    assert "state:" not in dumps(changed, state=False)


def test_weights_never_become_text_and_the_message_says_what_to_do():
    with pytest.raises(ConfigError, match="never written as text; save to a folder"):
        dumps(Whole())
    assert "class" in dumps(Whole(), state=False)


def test_restore_gives_an_existing_graph_the_saved_state(tmp_path):
    saved, other = Trainer(model=Whole()), Trainer(model=Whole())
    saved.counter.count = 9
    save(saved, tmp_path / "run")
    restore(other, tmp_path / "run")
    assert other.counter.count == 9
    assert torch.equal(other.model.part.linear.bias, saved.model.part.linear.bias)


def test_a_graph_that_no_longer_fits_is_refused_with_the_whole_list(tmp_path):
    save(Trainer(model=Whole(), callbacks=[Best(), Best()]), tmp_path / "run")
    with pytest.raises(ConfigError) as caught:
        restore(Trainer(model=Part(size=9), callbacks=[Best()]), tmp_path / "run")
    said = str(caught.value)
    assert "holds the state of 'callbacks[1]', which this graph does not have" in said
    assert "holds the state of 'model.part', which this graph does not have" in said
    assert "but this graph has a Part here" in said


def test_weights_of_another_shape_are_refused_naming_the_parameter(tmp_path):
    save(Part(size=2), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"size mismatch for linear\.weight"):
        restore(Part(size=3), tmp_path / "run")


def test_an_object_that_is_not_serializable_is_named_with_its_path():
    with pytest.raises(ConfigError, match=r"Trainer: model: Linear is not serializable\. Decorate the class"):
        dumps(Trainer(model=nn.Linear(1, 1)), state=False)


def test_a_field_that_holds_something_else_than_it_declares_is_named():
    with pytest.raises(ConfigError, match=r"callbacks\[0\].monitor: expected text, got 3 of type int"):
        dumps(Trainer(model=Whole(), callbacks=[Best(monitor=3)]), state=False)


@serializable
class Loose:
    items: list[Any] | tuple[Any, ...] | None = None


def test_a_problem_inside_a_union_is_reported_and_never_written_as_null():
    with pytest.raises(ConfigError, match=r"items\[1\]: object is not serializable"):
        dumps(Loose(items=[1, object()]))
