"""(event, function) pairs: any subset of the arguments, the result, or the moment."""

from __future__ import annotations

import pytest
from staged_host import Host

from sonosco_like.errors import UsageError
from sonosco_like.events import CallbackError


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (lambda self: None, 40),
        (lambda self, number: number + 1, 50),
        (lambda self, by: by * 2, 80),
        (lambda self, number, by: (number + 1, by * 2), 100),
        (lambda self, by, number: (by * 2, number + 1), 100),
        (lambda moment: moment.args.update(number=0), 0),
    ],
)
def test_a_pre_function_takes_any_of_the_arguments_and_replaces_them(function, result):
    assert Host(("pre-inner", function)).inner(4, by=10) == result


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (lambda self: None, 40),
        (lambda self, return_value: return_value + 2, 42),
        (lambda moment: setattr(moment, "result", 7), 7),
    ],
)
def test_a_post_function_replaces_the_result(function, result):
    assert Host(("post-inner", function)).inner(4, by=10) == result


def test_the_first_argument_is_the_host():
    seen = []
    host = Host(("pre-outer", lambda self: seen.append(self)), ("post-outer", lambda trainer: seen.append(trainer)))
    host.outer(1)
    assert seen == [host, host]


@pytest.mark.parametrize("name", ["pre-inner", "inner_start"])
def test_both_ways_to_name_an_event(name):
    assert Host((name, lambda self, number: 9)).inner(4) == 9


@pytest.mark.parametrize(
    ("name", "near"), [("pre-iner", "inner_start"), ("post-outr", "outer_end"), ("inner_stop", "inner_")]
)
def test_an_unknown_event_is_refused_with_a_near_name(name, near):
    with pytest.raises(UsageError, match=f"There is no event '{name}'.*did you mean '{near}"):
        Host((name, lambda self: None))


@pytest.mark.parametrize("name", ["pre-outer", "outer_start"])
def test_an_argument_the_stage_does_not_have_is_refused_when_the_function_is_attached(name):
    with pytest.raises(UsageError, match=f"The function at '{name}' takes 'batch', but the stage 'outer' has number"):
        Host((name, lambda self, batch: batch))


def test_an_argument_left_at_its_default_can_be_taken_too():
    assert Host(("pre-inner", lambda self, by: by + 2)).inner(4) == 12


def test_a_post_function_that_takes_what_there_is_not_is_refused_when_attached():
    with pytest.raises(UsageError, match="takes 'loss'"):
        Host(("post-inner", lambda self, loss: loss))


def test_an_argument_an_event_does_not_have_is_named_when_it_is_heard():
    host = Host(("verified", lambda self, weight: None))
    with pytest.raises(CallbackError, match="verified has no argument 'weight'; it has size"):
        host.verify(size=3)


def test_a_function_that_returns_nothing_only_looks():
    seen = []
    host = Host(("pre-inner", lambda self, number: seen.append(number)), ("pre-inner", lambda self, number, by: None))
    assert host.inner(4, by=10) == 40
    assert seen == [4]


@pytest.mark.parametrize("name", ["the function at pre-inner", "failing"])
def test_a_function_that_fails_is_named(name):
    def failing(self):
        raise RuntimeError("no disk")

    function = failing if name == "failing" else lambda self: failing(self)
    host = Host(("pre-inner", function))
    with pytest.raises(CallbackError, match=f"^{name} failed at inner_start: RuntimeError: no disk"):
        host.inner(4)
    assert host.listeners.seconds[name] > 0


def test_functions_are_chained_in_their_order():
    pairs = [("pre-inner", lambda self, number: number + 1), ("pre-inner", lambda self, number: number * 2)]
    assert Host(*pairs).inner(4) == 10
