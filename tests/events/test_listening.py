"""Listeners are found once, checked when attached, called in order, and named when they fail."""

from __future__ import annotations

import logging

import pytest
from staged_host import Host

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, CallbackError, Event, known_events
from sonosco_like.serialization import dumps, loads, serializable, state


@serializable
class Marker(AbstractCallback):
    """Writes its name into the arguments of the outer stage."""

    name: str

    def on_outer_start(self, moment):
        moment.args.setdefault("marks", []).append(self.name)


def order_of(*listeners, rank=0):
    """The names of the markers that are called, in their order."""
    marks: list[str] = []
    host = Host(*listeners, ("outer_start", lambda moment: marks.extend(moment.args.pop("marks", []))), rank=rank)
    host.outer(1)
    return marks


def test_callbacks_are_called_by_their_order_and_then_as_listed():
    listed = [Marker(name="a"), Marker(name="b", order=-1), Marker(name="c", order=-5), Marker(name="d")]
    assert order_of(*listed) == ["c", "b", "a", "d"]


def test_callbacks_listen_in_their_ranks_only():
    listed = [Marker(name="all"), Marker(name="first", ranks=[0]), Marker(name="others", ranks=[1, 2])]
    assert order_of(*listed, rank=0) == ["all", "first"]
    assert order_of(*listed, rank=2) == ["all", "others"]


def test_events_nobody_hears_are_not_in_the_table():
    host = Host(Marker(name="a"))
    assert set(host.listeners.hooks) == {"outer_start"}


def test_a_misspelt_hook_is_refused_with_the_near_name():
    class Misspelt(AbstractCallback):
        def on_outer_strat(self, moment):
            pass

    with pytest.raises(UsageError, match=r"Misspelt\.on_outer_strat would never be called.*did you mean 'outer_start'"):
        Host(Misspelt())


@pytest.mark.parametrize("hook", [lambda self: None, lambda self, moment, more: None])
def test_a_hook_with_a_wrong_signature_is_refused(hook):
    wrong = type("Wrong", (AbstractCallback,), {"on_outer_end": hook})
    with pytest.raises(UsageError, match="must take the moment and nothing else: `def on_outer_end"):
        Host(wrong())


def test_a_call_with_a_wrong_signature_is_refused():
    class Wrong(AbstractCallback):
        def __call__(self, epoch, step):
            pass

    def short(epoch):
        pass

    for listener, name in ((Wrong(), "Wrong"), (short, "short")):
        with pytest.raises(UsageError, match=f"{name} must take epoch, step, performance_measures and context"):
            Host(listener)


def test_one_method_for_all_events_with_a_wrong_signature_is_refused():
    class Wrong(AbstractCallback):
        def on_event(self):
            pass

    with pytest.raises(UsageError, match="must take the moment and nothing else: `def on_event"):
        Host(Wrong())


def test_further_arguments_with_defaults_are_fine():
    class Fine(AbstractCallback):
        def on_outer_end(self, moment, indent=2):
            moment.result += indent

    assert Host(Fine()).outer(4) == 43


def test_a_misspelt_hook_of_the_host_is_refused_too():
    class Wrong(Host):
        def on_iner_start(self, moment):
            pass

    with pytest.raises(UsageError, match=r"on_iner_start would never be called.*did you mean 'inner_start'"):
        Wrong()


def test_what_is_no_callback_is_refused():
    with pytest.raises(UsageError, match="A callback is an AbstractCallback"):
        Host(3)


# Policies


@serializable
class Broken(AbstractCallback):
    """Fails at the start of the inner stage, and counts what it hears."""

    heard: list[str] = state([])

    def on_inner_start(self, moment):
        self.heard.append(moment.event)
        raise RuntimeError("no disk")

    def on_outer_end(self, moment):
        self.heard.append(moment.event)


def test_an_exception_names_the_callback_and_the_event():
    with pytest.raises(CallbackError, match=r"^Broken failed at inner_start: RuntimeError: no disk$") as raised:
        Host(Broken()).outer(4)
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_a_callback_can_be_told_to_warn(caplog):
    broken = Broken(on_failure="warn")
    host = Host(broken)
    assert host.outer(4) == host.outer(4) == 41
    assert broken.heard == ["inner_start", "outer_end"] * 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "Broken failed at inner_start: RuntimeError: no disk" in caplog.text


def test_a_callback_can_be_told_to_leave(caplog):
    broken, other = Broken(on_failure="disable"), Broken(on_failure="warn")
    host = Host(broken, other)
    assert host.outer(4) == host.outer(4) == 41
    assert broken.heard == ["inner_start"]
    assert other.heard == ["inner_start", "outer_end"] * 2
    assert caplog.text.count("it is not called any more") == 1


def test_the_policy_is_part_of_the_config():
    assert loads(dumps(Broken(on_failure="warn", order=3, ranks=[0]))).on_failure == "warn"


# One method for all events; callables; time


def test_on_event_hears_every_event():
    class Ear(AbstractCallback):
        def on_event(self, moment):
            heard.append(moment.event)

    heard = []
    host = Host(Ear())
    host.outer(4)
    host.verify()
    assert heard == ["outer_start", "inner_start", "inner_end", "outer_end", "verified"]


def test_on_event_and_a_method_of_its_own_are_both_called():
    class Both(AbstractCallback):
        def on_event(self, moment):
            heard.append(moment.event)

        def on_outer_end(self, moment):
            heard.append("own")

    heard = []
    Host(Both()).outer(4)
    assert sorted(heard) == ["inner_end", "inner_start", "outer_end", "outer_start", "own"]


def test_time_in_each_callback_is_measured():
    host = Host(Marker(name="a"), Broken(on_failure="warn"))
    host.inner(1)
    assert set(host.listeners.seconds) == {"Broken"}
    assert host.listeners.seconds["Broken"] > 0


def test_known_events_are_the_declared_the_stages_and_the_hosts_own():
    assert known_events(Host) == {event.value for event in Event} | {
        "outer_start", "outer_end", "inner_start", "inner_end", "verified",
    }  # fmt: skip


# Hooks of the host itself: base classes first, the list of a class before its methods, each once


def test_hooks_are_inherited_in_the_order_that_text_003_prints(capsys):
    class TrainerA(Host):
        def on_outer_end(self, moment):
            print("Trainer A post epoch callback")

    class TrainerB(TrainerA):
        class_callbacks = [("post-outer", lambda self: print("Trainer B post epoch callback 1"))]  # noqa: RUF012

        def on_outer_end(self, moment):
            print("Trainer B post epoch callback 2")

    TrainerB(("post-outer", lambda self: print("a listener"))).outer(4)
    assert capsys.readouterr().out.splitlines() == [
        "Trainer A post epoch callback",
        "Trainer B post epoch callback 1",
        "Trainer B post epoch callback 2",
        "a listener",
    ]


def test_a_class_that_adds_nothing_calls_what_it_inherits_once(capsys):
    class Base(Host):
        class_callbacks = [("pre-outer", lambda self: print("list of the base"))]  # noqa: RUF012

        def on_outer_start(self, moment):
            print("method of the base")

    class Derived(Base):
        pass

    Derived().outer(4)
    assert capsys.readouterr().out.splitlines() == ["list of the base", "method of the base"]
