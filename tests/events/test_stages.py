"""A stage is a method; its start and its end are events."""

from __future__ import annotations

import pytest
from staged_host import Host

from sonosco_like.events import AbstractCallback, Stop, stages_of
from sonosco_like.serialization import serializable, state


def test_without_listeners_a_stage_is_its_method():
    host = Host()
    assert host.outer(4) == 41
    assert host.listeners.hooks == {}


def test_start_hooks_edit_arguments():
    def edit(moment):
        seen.append(dict(moment.args))
        moment.args["number"] = 7

    seen = []
    host = Host(("inner_start", edit))
    assert host.outer(4) == 71
    assert seen == [{"number": 4, "by": 10}]


def test_end_hooks_replace_the_result_in_their_order():
    def double(moment):
        moment.result *= 2

    def add_one(moment):
        moment.result += 1

    assert Host(("inner_end", double), ("inner_end", add_one)).outer(4) == 82
    assert Host(("inner_end", add_one), ("inner_end", double)).outer(4) == 83


def test_the_end_sees_the_arguments_that_were_used():
    seen = []
    host = Host(
        ("inner_start", lambda moment: moment.args.update(by=3)), ("inner_end", lambda moment: seen.append(moment.args))
    )
    host.outer(4)
    assert seen == [{"number": 4, "by": 3}]


def test_the_context_is_the_host():
    seen = []
    host = Host(("outer_end", lambda moment: seen.append(moment.context)))
    host.outer(1)
    assert seen == [host]


@serializable
class Stopper(AbstractCallback):
    """Raises a Stop at the end of the inner stage, or only counts."""

    reason: str | None = None
    heard: int = state(0)

    def on_inner_end(self, moment):
        self.heard += 1
        if self.reason is not None:
            raise Stop(self.reason)


def test_every_listener_hears_the_event_before_a_stop_takes_effect():
    listeners = [Stopper(), Stopper(reason="first"), Stopper(reason="second"), Stopper()]
    with pytest.raises(Stop, match="first"):
        Host(*listeners).outer(4)
    assert [listener.heard for listener in listeners] == [1, 1, 1, 1]


def test_stages_under_way_end_with_the_stop_as_their_error():
    seen = []
    host = Host(
        Stopper(reason="enough"), ("outer_end", lambda moment: seen.append((moment.result, moment.error.reason)))
    )
    with pytest.raises(Stop):
        host.outer(4)
    assert seen == [(None, "enough")]


def test_a_stop_at_the_start_skips_the_stage():
    def stop(moment):
        raise Stop("not today")

    seen = []
    host = Host(("inner_start", stop), ("inner_end", lambda moment: seen.append("end")))
    with pytest.raises(Stop):
        host.outer(4)
    assert seen == []


def test_an_error_ends_a_stage_without_its_end_event():
    seen = []
    host = Host(("inner_end", lambda moment: seen.append("end")))
    with pytest.raises(ValueError, match="negative"):
        host.outer(-1)
    assert seen == []


def test_a_stop_is_of_the_whole_training_unless_it_says_otherwise():
    assert (Stop().scope, Stop("x", scope="epoch").scope, str(Stop("why"))) == ("training", "epoch", "why")


def test_stages_are_found_and_inherited():
    class Derived(Host):
        pass

    assert stages_of(Derived) == {"inner": ["number", "by"], "outer": ["number"]}


def test_an_event_of_the_hosts_own_is_heard():
    seen = []
    Host(("verified", lambda moment: seen.append(moment.args))).verify(size=3)
    assert seen == [{"size": 3}]
