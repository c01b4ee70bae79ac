"""The names a file may use, and when the modules behind them are imported."""

from __future__ import annotations

import threading

from sonosco_like.serialization.registry import Registration, Registry


def test_names_are_fetched_when_one_is_first_missed_and_only_once():
    registry = Registry()
    asked = []

    def provider():
        asked.append("once")
        registry.add(Registration("Late", dict))

    registry.provide(provider)
    assert registry.registration_of(dict) is None
    assert registry.find("Late").target is dict
    assert registry.find("Nobody") is None
    assert [entry.name for entry in registry.registrations()] == ["Late"]
    assert asked == ["once"]


def test_a_provider_may_look_for_names_itself():
    registry = Registry()
    registry.provide(lambda: registry.add(Registration("Late", dict)) if registry.find("Other") is None else None)
    assert registry.find("Late").target is dict


def test_a_thread_that_misses_a_name_waits_for_the_one_that_fetches_it():
    registry = Registry()
    fetching, other_looks = threading.Event(), threading.Event()
    found = {}

    def provider():
        fetching.set()
        other_looks.wait()
        registry.add(Registration("Late", dict))

    def look(name):
        found[name] = registry.find("Late")

    def look_later():
        fetching.wait()
        other_looks.set()
        look("second")

    registry.provide(provider)
    threads = [threading.Thread(target=look, args=("first",)), threading.Thread(target=look_later)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["first"] is found["second"] is not None
