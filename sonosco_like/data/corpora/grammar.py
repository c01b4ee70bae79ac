"""The texts of synthetic speakers: three small grammars. Lower-case words and single spaces only.

A grammar maps a symbol to its alternatives; `{symbol}` in an alternative is replaced by one alternative of that symbol.
All begin with `start`.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args

from numpy.random import Generator

from sonosco_like.errors import UsageError, did_you_mean

Kind: TypeAlias = Literal["digits", "commands", "sentences"]
Grammar: TypeAlias = dict[str, tuple[str, ...]]
KINDS: tuple[str, ...] = get_args(Kind)
_SYMBOL = re.compile(r"\{(\w+)\}")


def draw_text(kind: str, random: Generator) -> str:
    """A drawn text; all alternatives of a symbol are equally likely."""
    return _expand("{start}", grammar(kind), random)


def vocabulary(kind: str) -> frozenset[str]:
    """All words that a grammar can produce."""
    alternatives = (text for texts in grammar(kind).values() for text in texts)
    return frozenset(word for text in alternatives for word in _SYMBOL.sub(" ", text).split())


def grammar(kind: str) -> Grammar:
    """The grammar of that name."""
    if kind not in _GRAMMARS:
        raise UsageError(f"`kind` must be one of {', '.join(KINDS)}, got {kind!r}{did_you_mean(kind, KINDS)}")
    return _GRAMMARS[kind]


def _expand(text: str, rules: Grammar, random: Generator) -> str:
    def replace(match: re.Match[str]) -> str:
        alternatives = rules[match[1]]
        return _expand(alternatives[int(random.integers(len(alternatives)))], rules, random)

    return _SYMBOL.sub(replace, text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(","))


_DIGITS: Grammar = {
    "start": tuple(" ".join(["{digit}"] * length) for length in range(3, 8)),
    "digit": _words("zero one two three four five six seven eight nine"),
}

_NUMBERS: Grammar = {
    "unit": _words("two three four five six seven eight nine"),
    "number": _phrases("{unit}, {teen}, {ten}, {ten} {unit}"),
    "teen": _words("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"),
    "ten": _words("twenty thirty forty fifty sixty seventy eighty ninety"),
}

_COMMANDS: Grammar = {
    **_NUMBERS,
    "start": ("{command}", "{command}", "{command}", "please {command}", "{command} please", "{command} {when}"),
    "command": (
        "turn {switch} the {device}",
        "turn {switch} the {device} in the {room}",
        "turn the {room} {device} {switch}",
        "set the {room} temperature to {number} degrees",
        "set the {room} light to {number} percent",
        "set {alarm} for {number} minutes",
        "cancel the {clock}",
        "{move} the {room} {opening}",
        "{player} the {media}",
        "play {media} by artist number {number}",
        "turn the volume {direction}",
        "turn the volume {direction} by {number}",
        "call {person}",
        "call {person} on the {phone}",
        "send {person} the {document}",
        "{read} the {document} from {person}",
        "what is the {topic} {day}",
        "add {number} {goods} to the shopping list",
        "remove the {goods} from the shopping list",
        "remind me to call {person} {day}",
    ),
    "when": _phrases("now, again, at once, in {number} minutes, {day}, at {number}"),
    "switch": _words("on off"),
    "device": _words("light lights lamp fan heater radio television camera printer oven"),
    "room": _words("kitchen bedroom bathroom garage office hall garden cellar"),
    "alarm": _phrases("an alarm, a timer, a reminder"),
    "clock": _words("alarm timer reminder meeting"),
    "move": _words("open close lock unlock"),
    "opening": _words("door window curtain gate"),
    "player": _words("play pause stop repeat skip"),
    "media": _words("music song album film news"),
    "direction": _words("up down"),
    "person": _phrases("anna, peter, maria, thomas, julia, david, my mother, my father, the doctor"),
    "phone": _words("mobile office home"),
    "document": _words("message letter report picture invoice"),
    "read": _words("read show print delete forward"),
    "topic": _words("weather time traffic forecast schedule"),
    "day": _words("today tomorrow tonight monday tuesday wednesday thursday friday saturday sunday"),
    "goods": _words("apples bananas eggs potatoes onions bottles loaves candles"),
}

_SENTENCES: Grammar = {
    **_NUMBERS,
    "start": (
        "{subject} {did} {object}",
        "{subject} {did} {object} {place}",
        "{subject} {did} {object} {time}",
        "{time} {subject} {did} {object}",
        "{subject} {went} {place}",
        "{subject} {went} {place} {time}",
        "{subject} {adverb} {did} {object}",
        "{subject} {went} {place} because {subject} {did} {object}",
        "{subject} said that {subject} {did} {object}",
        "when {subject} {went} {place} {subject} {did} {object}",
        "there were {number} {things} {place}",
        "{object} was {adjective} and {adjective}",
        "nobody {did} {object} before {subject} {went} {place}",
    ),
    "subject": ("{owner} {person}", "{owner} {adjective} {person}", "{name}", "{name} and {name}", "{pronoun}"),
    "object": ("{owner} {thing}", "{owner} {adjective} {thing}", "{number} {things}", "{owner} {thing} of {name}"),
    "owner": _words("the the the this that my your his her our their every"),
    "pronoun": _words("he she we they you i"),
    "name": _words("anna peter maria thomas julia david helen martin laura simon clara oscar"),
    "person": _words(
        "farmer teacher doctor driver sailor painter baker soldier student neighbour brother sister uncle daughter "
        "king queen judge nurse writer singer child woman stranger fisherman"
    ),
    "thing": _words(
        "house horse basket letter window bridge garden ship table picture lamp coat river mountain door engine "
        "clock mirror story question answer village church candle bottle island forest machine guitar blanket"
    ),
    "things": _words(
        "apples books horses chairs stones birds boats flowers letters coins trees cups keys sheep children soldiers "
        "clouds fishes pages ladders hammers buttons"
    ),
    "adjective": _words(
        "old young heavy quiet bright dark narrow gentle broken golden empty clever strange yellow green purple famous "
        "hungry cheap frozen simple modern curious sharp"
    ),
    "did": _words(
        "carried painted found forgot remembered opened bought sold watched followed described repaired visited "
        "borrowed stole admired measured covered lifted promised ignored touched washed noticed"
    ),
    "went": _words("walked travelled waited slept worked danced laughed arrived stayed returned shouted vanished"),
    "adverb": _words("slowly quickly always never often almost finally proudly secretly together suddenly carefully"),
    "place": (
        "{where} the {spot}",
        "{where} the {adjective} {spot}",
        "{where} {name}",
    ),
    "where": _words("behind beside near under above beyond opposite towards"),
    "spot": _words(
        "harbour station market castle school kitchen valley library hospital theatre airport meadow office"
    ),
    "time": _phrases(
        "yesterday, this morning, last night, on {day}, in {month}, at noon, before dawn, after breakfast, "
        "in the evening, {number} years ago, during the storm"
    ),
    "day": _words("monday tuesday wednesday thursday friday saturday sunday"),
    "month": _words("january february march april may june july august september october november december"),
}

_GRAMMARS: dict[str, Grammar] = {"digits": _DIGITS, "commands": _COMMANDS, "sentences": _SENTENCES}
