"""A stage that is overridden stays one: heard once, around the outermost method, with its arguments and its result."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from staged_host import Host
from tiny import Diary, Sums, short_trainer, whole_and_cut

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment, Stop, stage, stages_of
from sonosco_like.serialization import serializable, state
from sonosco_like.training import ModelTrainer


class Notes(AbstractCallback):
    """Notes every start with its arguments and every end with its result."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple] = []

    def on_inner_start(self, moment: Moment) -> None:
        self.heard.append(("start", dict(moment.args)))

    def on_inner_end(self, moment: Moment) -> None:
        self.heard.append(("end", moment.result))


def heard(cls: type, *args, **kwargs) -> list[tuple]:
    """What is heard of one call of the inner stage of a class."""
    host = cls(notes := Notes())
    host.inner(*args, **kwargs)
    return notes.heard


class Plain(Host):
    """Overrides without a mark."""

    def inner(self, number: int, by: int = 1) -> int:
        return super().inner(number + 1, by=by) + 5


class Marked(Host):
    """Overrides with a mark."""

    @stage("inner")
    def inner(self, number: int, by: int = 1) -> int:
        return super().inner(number + 1, by=by) + 5


@pytest.mark.parametrize("cls", [Plain, Marked])
def test_an_overridden_stage_is_heard_once_around_the_outermost_call(cls):
    assert heard(cls, 4, by=10) == [("start", {"number": 4, "by": 10}), ("end", 55)]
    assert cls().inner(4, by=10) == 55


def test_an_override_that_does_not_call_its_parent_is_heard_too():
    class Alone(Host):
        def inner(self, number, by=1):
            return -number

    assert heard(Alone, 4) == [("start", {"number": 4, "by": 1}), ("end", -4)]


@pytest.mark.parametrize("base", [Plain, Marked])
@pytest.mark.parametrize("is_marked", [True, False])
def test_several_levels_are_heard_once(base, is_marked):
    def inner(self, number, by=1):
        return super(Top, self).inner(number * 2, by) + 1

    Top = type("Top", (type("Between", (base,), {}),), {"inner": stage("inner")(inner) if is_marked else inner})
    assert heard(Top, 4, by=10) == [("start", {"number": 4, "by": 10}), ("end", 96)]


class Doubling:
    """A mixin that knows of no stage."""

    def inner(self, number, by=1):
        return 2 * super().inner(number, by)


class Negating(Doubling):
    """A mixin over the mixin."""

    def inner(self, number, by=1):
        return -super().inner(number, by)


def test_mixins_before_and_between_are_heard_once():
    class Mixed(Doubling, Host):
        pass

    class Further(Mixed, Negating):  # Further, Mixed, Negating, Doubling, Host
        pass

    assert heard(Mixed, 4, by=10) == [("start", {"number": 4, "by": 10}), ("end", 80)]
    assert heard(Further, 4, by=10) == [("start", {"number": 4, "by": 10}), ("end", -80)]
    assert not hasattr(Doubling.inner, "stage")  # a class that is not ours stays as it is


def test_a_diamond_is_heard_once():
    class Left(Plain):
        def inner(self, number, by=1):
            return super().inner(number, by) + 100

    class Right(Plain):
        @stage("inner")
        def inner(self, number, by=1):
            return super().inner(number, by) + 1000

    class Both(Left, Right):
        def inner(self, number, by=1):
            return super().inner(number, by) + 10000

    assert heard(Both, 4, by=10) == [("start", {"number": 4, "by": 10}), ("end", 11155)]


# Arguments are those of the outermost method


def test_other_names_and_more_arguments():
    class Renamed(Host):
        def inner(self, amount, times=1, *, offset=7):
            return super().inner(amount, times) + offset

    assert heard(Renamed, 4) == [("start", {"amount": 4, "times": 1, "offset": 7}), ("end", 11)]
    assert stages_of(Renamed)["inner"] == ["amount", "times", "offset"]
    host = Renamed(("pre-inner", lambda self, amount, offset: (amount + 1, 0)))
    assert host.inner(4, times=10) == 50
    with pytest.raises(UsageError, match="takes 'number', but the stage 'inner' has amount, times, offset"):
        Renamed(("pre-inner", lambda self, number: number))


@pytest.mark.parametrize("is_marked", [True, False])
def test_what_is_passed_on_unnamed_has_the_names_of_the_parent(is_marked):
    def inner(self, *args, scale=2, **kwargs):
        return scale * super(Passing, self).inner(*args, **kwargs)

    Passing = type("Passing", (Host,), {"inner": stage("inner")(inner) if is_marked else inner})
    for call in ({"by": 10}, {}):
        expected = {"number": 4, "by": call.get("by", 1), "scale": 2}
        assert heard(Passing, 4, **call) == [("start", expected), ("end", 8 * expected["by"])]
    assert Passing(("pre-inner", lambda self, number, scale: (number + 1, 3))).inner(4, by=10) == 150
    assert Passing(("pre-inner", lambda self, by: by * 2)).outer(4) == 161


def test_what_is_passed_on_by_keyword_has_the_names_of_the_parent():
    class Passing(Host):
        def inner(self, number, **kwargs):
            return super().inner(number, **kwargs)

    assert heard(Passing, 4, by=10) == [("start", {"number": 4, "by": 10}), ("end", 40)]


def test_arguments_that_have_no_name_stay_what_they_are():
    class Own(Host):
        def inner(self, first, *others, **options):
            return (first, others, options)

    start, end = heard(Own, 4, 5, 6, mark=True)
    assert start == ("start", {"first": 4, "others": (5, 6), "options": {"mark": True}})
    assert end == ("end", (4, (5, 6), {"mark": True}))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda moment: moment.args.pop("number"), "removed 'number' from the arguments"),
        (lambda moment: moment.args.update(numbre=3), "put 'numbre' into the arguments.* number, by"),
    ],
)
@pytest.mark.parametrize("cls", [Host, Plain])
def test_arguments_that_the_method_does_not_have_are_refused(cls, edit, said):
    with pytest.raises(UsageError, match=f"A callback at inner_start {said}"):
        cls(("inner_start", edit)).inner(4)


def test_start_hooks_edit_what_the_outermost_method_gets_and_end_hooks_what_it_gave():
    host = Plain(("pre-inner", lambda self, number: 0), ("post-inner", lambda self, return_value: return_value * 2))
    assert host.inner(4, by=10) == 30


@pytest.mark.parametrize(
    "override",
    [
        staticmethod(lambda number, by=1: number),
        classmethod(lambda cls, number, by=1: number),
        functools.partialmethod(lambda self, number, by: number, by=1),
    ],
    ids=["static", "class", "partial"],
)
def test_methods_of_other_kinds_are_heard(override):
    host = type("Other", (Host,), {"inner": override})(notes := Notes())
    assert host.inner(4) == 4
    assert [event for event, _ in notes.heard] == ["start", "end"]
    assert notes.heard[0][1]["number"] == 4


# Several objects, recursion, changes while it runs


def test_each_of_two_objects_is_heard_by_its_own_listeners_also_inside_the_other():
    class Teacher(Host):
        other: Host | None = None

        def inner(self, number, by=1):
            return super().inner(number, by) + (self.other.inner(number, by) if self.other else 0)

    first, second = Teacher(first_notes := Notes()), Teacher(second_notes := Notes())
    first.other = second
    assert first.inner(4, by=10) == 80
    assert first_notes.heard == [("start", {"number": 4, "by": 10}), ("end", 80)]
    assert second_notes.heard == [("start", {"number": 4, "by": 10}), ("end", 40)]


@pytest.mark.parametrize("base", [Host, Plain, Marked])
def test_a_stage_that_calls_itself_is_heard_each_time(base):
    class Again(base):
        def inner(self, number, by=1):
            return 0 if number == 0 else super().inner(number, by) * 0 + self.inner(number - 1, by)

    events = [event for event, _ in heard(Again, 2)]
    assert events == ["start", "start", "start", "end", "end", "end"]


def test_the_parents_method_is_heard_when_another_method_calls_it():
    class Elsewhere(Plain):
        def verify_twice(self):
            return super().inner(4, by=10)

    host = Elsewhere(notes := Notes())
    assert host.verify_twice() == 55
    assert [event for event, _ in notes.heard] == ["start", "end"]


def test_a_stage_with_a_new_name_is_heard_under_both():
    class Named(Host):
        @stage("deeper")
        def inner(self, number, by=1):
            return super().inner(number, by)

    seen = []
    pairs = [
        (f"{name}_{end}", lambda moment: seen.append(moment.event))
        for name in ("inner", "deeper")
        for end in ("start", "end")
    ]
    Named(*pairs).inner(4)
    assert seen == ["deeper_start", "inner_start", "inner_end", "deeper_end"]


def test_a_method_put_on_the_object_or_on_its_class_later_is_heard():
    class Late(Host):
        pass

    host = Late()
    host.inner = lambda number, by=1: number - by
    host.listeners.attach([notes := Notes()])
    host.listeners.attach([notes])  # a second time changes nothing
    assert host.inner(4) == 3
    assert notes.heard == [("start", {"number": 4, "by": 1}), ("end", 3)]
    Late.inner = lambda self, number, by=1: 77
    assert heard(Late, 4) == [("start", {"number": 4, "by": 1}), ("end", 77)]


def test_nothing_is_added_to_an_object_that_nobody_listens_to():
    assert "inner" not in vars(Plain())
    host = Plain(Notes())
    host.listeners.attach([])
    assert "inner" not in vars(host)


def test_a_copy_of_the_object_calls_its_own_methods():
    host = Plain(Notes())
    host.offset = 1
    again = copy.deepcopy(host)
    assert again.inner.__self__ is again


def test_a_stop_in_the_parent_ends_the_stage_once():
    class Stopping(Host):
        @stage("inner")
        def inner(self, number, by=1):
            raise Stop("enough")

    class Over(Stopping):
        def inner(self, number, by=1):
            return super().inner(number, by)

    seen = []
    host = Over(("inner_end", lambda moment: seen.append(moment.error.reason)))
    with pytest.raises(Stop):
        host.inner(4)
    assert seen == ["enough"]


# Trainers, as users of ArcticTraining and Lightning write them


class Smoothed(ModelTrainer):
    """Overrides two stages without a mark."""

    def compute_loss(self, output, batch):
        return super().compute_loss(output, batch) + 1

    def train_batch(self, batch):
        super().train_batch(batch)


@serializable
class Scaled(Smoothed):
    """Overrides with a mark and a field of its own."""

    scale: float = 3.0

    @stage("loss")
    def compute_loss(self, *args, **kwargs):
        return self.scale * super().compute_loss(*args, **kwargs)


@serializable
class Losses(AbstractCallback):
    """Notes the losses and how often a loss begins."""

    seen: list[float] = state([])
    begun: int = state(0)

    def on_loss_start(self, moment: Moment) -> None:
        assert set(moment.args) == {"output", "batch"}
        self.begun += 1

    def on_loss_end(self, moment: Moment) -> None:
        self.seen.append(moment.result.item())


@pytest.mark.parametrize(("cls", "factor", "offset"), [(Smoothed, 1, 1), (Scaled, 3, 3)])
def test_a_trainer_that_overrides_stages_is_heard_as_any_other(cls, factor, offset):
    def losses_of(cls):
        trainer = short_trainer(ear := Diary(), losses := Losses(), cls=cls, max_duration="1ba", val_data_loader=None)
        trainer.start_training()
        return ear.heard, losses

    plain, expected = losses_of(ModelTrainer)
    events, losses = losses_of(cls)
    assert events == plain
    assert losses.begun == 1
    assert losses.seen == [pytest.approx(factor * expected.seen[0] + offset)]


def test_every_stage_of_the_trainer_can_be_overridden_without_a_mark(tmp_path):
    def passing(attribute):
        return lambda self, *args, **kwargs: getattr(super(Over, self), attribute)(*args, **kwargs)

    methods = {name for name in dir(ModelTrainer) if hasattr(getattr(ModelTrainer, name, None), "stage")}
    Over = type("Over", (ModelTrainer,), {name: passing(name) for name in methods})
    assert stages_of(Over) == stages_of(ModelTrainer)

    def events_of(cls):
        trainer = short_trainer(ear := Diary(), cls=cls, epochs=1)
        trainer.start_training()
        return ear.heard

    assert events_of(Over) == events_of(ModelTrainer)


def test_two_trainers_at_once_hear_their_own(tmp_path):
    fields = {"cls": Scaled, "epochs": 1, "val_data_loader": None}
    inside = short_trainer(inner_losses := Losses(), model=torch.nn.Linear(4, 1), **fields)
    start = ("pre-training", lambda trainer: inside.start_training())
    outside = short_trainer(start, losses := Losses(), model=copy.deepcopy(inside.model), **fields)
    outside.start_training()
    assert (losses.begun, inner_losses.begun) == (3, 3)
    assert losses.seen == inner_losses.seen


def test_a_listener_that_comes_in_mid_run_hears_overridden_stages():
    losses = Losses()
    late = ("epoch_end", lambda moment: moment.context.add_callback(losses) if moment.context.epoch == 0 else None)
    short_trainer(late, cls=Smoothed, val_data_loader=None).start_training()
    assert losses.begun == 3


def test_a_trainer_with_overrides_is_resumed_bit_for_bit(tmp_path):
    def run(*more, **fields):
        return short_trainer(Losses(), *more, cls=Scaled, train_data_loader=Sums(batches=3), **fields)

    whole, resumed = whole_and_cut(run, tmp_path)
    assert resumed.callbacks[0].seen == whole.callbacks[0].seen
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))
