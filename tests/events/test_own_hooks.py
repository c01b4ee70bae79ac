"""Hooks that a class has for itself: in its list, as `on_<event>` and as `pre_<stage>_callback`."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from staged_host import Host
from tiny import Diary, short_trainer

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback
from sonosco_like.serialization import serializable
from sonosco_like.training import ModelTrainer


def test_methods_of_both_forms_take_and_replace_arguments_and_results():
    class Own(Host):
        def pre_inner_callback(self, number):
            return number + 1

        def post_inner_callback(self, return_value):
            return return_value * 2

        def on_inner_end(self, moment):
            moment.result += 1

    assert Own().inner(4, by=10) == 101


def test_mixins_have_hooks_too(capsys):
    class Mixin:
        def post_outer_callback(self):
            print("mixin")

    class Mixed(Mixin, Host):
        def post_outer_callback(self):
            print("class")

    Mixed().outer(4)
    assert capsys.readouterr().out == "mixin\nclass\n"


@pytest.mark.parametrize("name", ["pre_iner_callback", "post_nothing_callback"])
def test_a_method_for_a_stage_that_is_not_there_is_refused(name):
    with pytest.raises(UsageError, match="There is no event"):
        type("Wrong", (Host,), {name: lambda self: None})()


@pytest.mark.parametrize("listed", [[Diary()], ["post-epoch"], [("post-epoch", 3)], [lambda *args: None]])
def test_what_is_no_pair_is_refused_in_the_list_of_a_class(listed):
    wrong = type("Wrong", (ModelTrainer,), {"callbacks": listed})
    with pytest.raises(UsageError, match=r"list `callbacks` of the class Wrong holds \(event, function\) pairs"):
        short_trainer(cls=wrong)


def test_lists_of_several_classes_and_both_names_add_up():
    heard = []

    class First(ModelTrainer):
        callbacks = [("post-train", lambda self: heard.append("first"))]  # noqa: RUF012

    class Second(First):
        class_callbacks: ClassVar[list[Any]] = [("training_end", lambda self: heard.append("second"))]
        callbacks = (("training_end", lambda self: heard.append("third")),)

    short_trainer(cls=Second, epochs=1).start_training()
    short_trainer(cls=First, epochs=1).start_training()
    assert heard == ["first", "second", "third", "first"]


def test_a_default_for_the_callbacks_of_an_instance_is_still_possible():
    from dataclasses import field

    @serializable
    class WithDefault(ModelTrainer):
        callbacks: list[Any] = field(default_factory=lambda: [Diary()], kw_only=False)

    fields = {name: getattr(short_trainer(), name) for name in ("model", "loss", "epochs", "train_data_loader")}
    assert [type(each) for each in WithDefault(**fields).callbacks] == [Diary]
    assert WithDefault(**fields, callbacks=[]).callbacks == []


# Forms that would be heard twice, or never


class Parent(Host):
    """Has a hook of each form."""

    def on_outer_end(self, moment):
        pass

    def post_outer_callback(self):
        pass


def calls_super():
    class Child(Parent):
        def on_outer_end(self, moment):
            super().on_outer_end(moment)

    return Child


def calls_super_with_arguments():
    class Child(Parent):
        def on_outer_end(self, moment):
            if moment.result:
                super(Child, self).on_outer_end(moment)  # noqa: UP008

    return Child


def calls_the_class():
    class Child(Parent):
        def on_outer_end(self, moment):
            Parent.on_outer_end(self, moment)

    return Child


def calls_super_in_a_callback_method():
    class Child(Parent):
        def post_outer_callback(self):
            super().post_outer_callback()

    return Child


def calls_super_by_a_name():
    class Child(Parent):
        def on_outer_end(self, moment):
            parent = super()
            moment.result += 1
            parent.on_outer_end(moment)

    return Child


@pytest.mark.parametrize(
    "make",
    [
        calls_super,
        calls_super_with_arguments,
        calls_super_by_a_name,
        calls_the_class,
        calls_super_in_a_callback_method,
    ],
)
def test_a_hook_that_calls_that_of_its_parent_is_refused_before_it_is_heard_twice(make):
    with pytest.raises(
        UsageError, match=r"Child\.\w+ calls \w+ of a base class, which would then be called twice.*Leave"
    ):
        make()()


def test_super_in_a_trainers_hook_is_refused_when_it_is_made():
    class Base(ModelTrainer):
        def on_epoch_end(self, moment):
            pass

    class Derived(Base):
        def on_epoch_end(self, moment):
            super().on_epoch_end(moment)

    with pytest.raises(UsageError, match=r"Derived\.on_epoch_end calls on_epoch_end of a base class"):
        short_trainer(cls=Derived)


def test_other_calls_of_that_name_and_other_uses_of_super_are_fine():
    class Part:
        def on_outer_end(self, moment):
            moment.result += 1

    class Child(Parent):
        def on_outer_end(self, moment):
            assert super().__class__
            Part().on_outer_end(moment)

    assert Child().outer(4) == 42


def test_a_callback_may_call_its_parent_since_only_the_outermost_hook_of_a_callback_is_heard():
    heard = []

    class Base(AbstractCallback):
        def on_outer_end(self, moment):
            heard.append("base")

    class Derived(Base):
        def on_outer_end(self, moment):
            super().on_outer_end(moment)
            heard.append("derived")

    Host(Derived()).outer(4)
    assert heard == ["base", "derived"]


@pytest.mark.parametrize("event", ["init_start", "init_end"])
def test_a_callback_of_what_is_over_is_refused(event):
    late = type("Late", (AbstractCallback,), {f"on_{event}": lambda self, moment: None})
    for listener, owner in ((late(), "Late.on_"), ((event, lambda moment: None), "The function at")):
        with pytest.raises(UsageError, match=f"{owner}.* would never be called: '{event}' is over .*'attach'"):
            short_trainer(listener).start_training()


def test_a_hook_that_was_assigned_to_the_object_is_refused():
    trainer = short_trainer()
    trainer.on_epoch_end = lambda moment: None
    with pytest.raises(UsageError, match=r"`on_epoch_end` was assigned .* add_callback\(\('epoch_end', function\)\)"):
        trainer.start_training()


def test_a_hook_that_was_assigned_to_a_callback_is_refused():
    class Late(AbstractCallback):
        def __init__(self):
            self.on_batch_end = lambda moment: None

    with pytest.raises(UsageError, match="`on_batch_end` was assigned to a Late, where it is never called"):
        short_trainer(Late()).start_training()


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
@pytest.mark.parametrize("name", ["on_batch_end", "post_epoch_callback"])
def test_a_hook_of_a_trainer_that_is_no_plain_method_is_refused(kind, name):
    wrong = type("Wrong", (ModelTrainer,), {name: kind(lambda *taken: None)})
    with pytest.raises(UsageError, match=rf"Wrong\.{name} would never be called: a hook is a plain method"):
        short_trainer(cls=wrong)


@pytest.mark.parametrize("name", ["on_batch_end", "on_event"])
def test_a_hook_of_a_callback_that_is_no_plain_method_is_refused(name):
    wrong = type("Wrong", (AbstractCallback,), {name: classmethod(lambda cls, moment: None)})
    with pytest.raises(UsageError, match=rf"Wrong\.{name} would never be called: .* not a classmethod"):
        short_trainer(wrong()).start_training()


@pytest.mark.parametrize(
    ("name", "method", "remedy"),
    [
        ("epoch_start", lambda self, state, logger: None, "on_epoch_start(self, moment)"),
        ("fit_end", lambda self, state, logger: None, "on_training_end(self, moment)"),
        ("eval_batch_end", lambda self, state, logger: None, "on_validation_batch_end(self, moment)"),
        ("epoch_end", lambda self: None, "on_epoch_end(self, moment)"),
        ("run_event", lambda self, event, state, logger: None, "on_event(self, moment)"),
        ("pre_step_callback", lambda self, batch: batch, "on_batch_start(self, moment)"),
        ("post_epoch_callback", lambda self: None, "on_epoch_end(self, moment)"),
    ],
)
def test_methods_that_only_other_systems_call_are_refused_in_a_callback(name, method, remedy):
    foreign = type("Foreign", (AbstractCallback,), {name: method})
    with pytest.raises(UsageError) as raised:
        short_trainer(foreign()).start_training()
    assert f"Foreign.{name} would never be called: write `{remedy}`" in str(raised.value)


def test_helpers_of_a_callback_may_have_any_name_that_is_no_event():
    class Helped(AbstractCallback):
        def after_batch(self, context):
            pass

        def log(self, values):
            pass

    short_trainer(Helped(), epochs=1).start_training()


# What takes the place of a result


@pytest.mark.parametrize("name", ["post-loss", "loss_end", "post-forward", "post-build_model", "post-build_data"])
def test_a_function_that_returns_nothing_in_place_of_a_result_is_named_with_its_event(name):
    def forgetful(trainer, return_value):
        pass

    with pytest.raises(Exception, match=r"^forgetful failed at \w+_end: UsageError: it put nothing in the place of"):
        short_trainer((name, forgetful)).start_training()


def test_a_hook_that_puts_none_in_place_of_a_result_is_named_too():
    class Forgetful(AbstractCallback):
        def on_loss_end(self, moment):
            moment.result = None

    with pytest.raises(Exception, match=r"^Forgetful failed at loss_end: UsageError: it put nothing"):
        short_trainer(Forgetful()).start_training()


def test_one_that_only_warns_leaves_the_result_as_it_was(caplog):
    class Forgetful(AbstractCallback):
        def on_loss_end(self, moment):
            moment.result = None

    short_trainer(Forgetful(on_failure="warn"), epochs=1).start_training()
    assert caplog.text.count("Forgetful failed at loss_end") == 3


def test_a_result_that_is_nothing_anyway_may_be_looked_at():
    seen = []
    short_trainer(("post-epoch", lambda trainer, return_value: seen.append(return_value))).start_training()
    assert seen == [None, None]


@pytest.mark.parametrize("returned", [4, (4,), (4, 5, 6)])
def test_a_function_that_returns_other_than_it_took_is_named(returned):
    with pytest.raises(Exception, match=r"failed at inner_start: UsageError: it takes number, by, so it must return"):
        Host(("pre-inner", lambda self, number, by: returned)).inner(4)
