"""Reads every bomb in a process of its own, with little memory and little time; prints what became of each."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from attack_targets import warm_up

from sonosco_like.errors import SonoscoError
from sonosco_like.serialization import diff, loads

BUILT, REFUSED, OTHER_ERROR = 0, 2, 3
SECONDS, MEMORY = 20, 2 * 2**30
MILLION = 1_000_000
NAME = "attack_targets.Target"
TARGET = f"class: {NAME}\n"


def _layers(key: str = "- ", levels: int = 40, first: str = "x", opening: str = "[", closing: str = "]") -> str:
    """Each layer refers to the one before it nine times."""
    lines = [f"{key}&a0 {opening}{first}{closing}"]
    for level in range(1, levels):
        names = [f"k{index}: *a{level - 1}" if opening == "{" else f"*a{level - 1}" for index in range(9)]
        lines.append(f"{key}&a{level} {opening}{', '.join(names)}{closing}")
    return "\n".join(lines) + "\n"


def _renewed(level: int) -> str:
    """An object of an old version that holds the one before it nine times."""
    inside = ", ".join([f"*a{level - 1}"] * 9) if level else "x"
    return f"- &a{level} {{class: attack_targets.Renewed@1, content: [{inside}]}}\n"


def _growing(line: str, count: int) -> str:
    return "".join(" " * index + line for index in range(count))


# Alias bombs are harmless: an alias is one object however often it is used. The others are refused.
BOMBS: dict[str, Callable[[], str | bytes]] = {
    "aliases of lists": lambda: _layers(),
    "aliases of mappings": lambda: _layers(first="a: 1", opening="{", closing="}"),
    "aliases in a field": lambda: TARGET + "anything:\n" + _layers(),
    "aliases in a typed list": lambda: TARGET + "listed:\n" + _layers(),
    "aliases in state": lambda: TARGET + "state:\n  tensor:\n" + _layers("  - "),
    "aliases in tuples": lambda: TARGET + "anything:\n" + _layers(opening="!tuple [", closing="]"),
    "aliases of objects": lambda: TARGET + "listed:\n" + _layers(first="class: " + NAME, opening="{", closing="}"),
    "aliases through an upgrade": lambda: "class: attack_targets.Renewed@1\ncontent:\n" + _layers(),
    "aliases in nested upgrades": lambda: TARGET + "listed:\n" + "".join(_renewed(level) for level in range(40)),
    "aliases in a union": lambda: TARGET + "choice:\n  k:\n" + _layers("  - "),
    "aliases as keys": lambda: _layers(opening="{? [", closing="] : x}"),
    "unknown aliases": lambda: "[" + "*a, " * 100_000 + "]",
    "flow lists": lambda: "[" * MILLION,
    "flow lists, closed": lambda: "[" * MILLION + "]" * MILLION,
    "flow mappings": lambda: "{a: " * MILLION,
    "flow mappings without keys": lambda: "{" * MILLION,
    "flow with brackets in quotes": lambda: '["]", ' * MILLION,
    "flow with braces in quotes": lambda: "{'}': " * MILLION,
    "flow with brackets in comments": lambda: "[ # ]\n" * MILLION,
    "flow with anchors": lambda: "".join(f"&a{index} [" for index in range(300_000)),
    "flow in a field": lambda: TARGET + "anything: " + "[" * MILLION,
    "flow explicit keys": lambda: "{? " * MILLION,
    "flow pairs": lambda: "[a: " * MILLION,
    "block lists": lambda: "- " * MILLION,
    "block lists with tabs": lambda: "-\t" * MILLION,
    "block lists after a mark": lambda: "\ufeff" + "- " * MILLION,
    "block lists after a return": lambda: "# c\r" + "- " * MILLION,
    "block lists after another break": lambda: "# c\x85" + "- " * MILLION,
    "block lists after a document mark": lambda: "--- " + "- " * MILLION,
    "block keys": lambda: "? " * MILLION,
    "block lists and keys": lambda: "- ? " * MILLION,
    "block indentation": lambda: _growing("a:\n", 7_000),
    "block list indentation": lambda: _growing("-\n", 7_000),
    "block list indentation with anchors": lambda: _growing("- &a\n", 7_000),
    "values": lambda: ": " * MILLION,
    "tags": lambda: "!a " * MILLION,
    "anchors": lambda: "&a " * MILLION,
    "a huge text": lambda: "x" * (70 * 2**20),
    "a huge scalar for a number": lambda: TARGET + "number: " + "a" * (20 * 2**20),
    "a huge whole number": lambda: TARGET + "number: " + "9" * (20 * 2**20),
    "a huge negative number": lambda: TARGET + "number: -" + "9" * (20 * 2**20),
    "a huge fraction": lambda: TARGET + "number: 0." + "9" * (20 * 2**20),
    "a huge tagged number": lambda: TARGET + "number: !!float " + "a" * (20 * 2**20),
    "a huge exponent": lambda: TARGET + "number: 1e" + "9" * (20 * 2**20),
    "a huge class name": lambda: "class: " + "a" * (20 * 2**20),
    "a huge field name": lambda: TARGET + "? " + "a" * (20 * 2**20) + "\n: 1\n",
    "a huge key in quotes": lambda: TARGET + '? "' + "\\x41" * (5 * 2**20) + '"\n: 1\n',
    "a huge tag": lambda: TARGET + "number: !" + "a" * (20 * 2**20) + " 1",
    "a huge anchor": lambda: TARGET + "number: *" + "a" * (20 * 2**20),
    "a huge device": lambda: TARGET + "device: " + "a" * (20 * 2**20),
    "a huge type": lambda: TARGET + "dtype: " + "a" * (20 * 2**20),
    "a huge path as a number": lambda: TARGET + "place: " + "9" * (20 * 2**20),
    "a huge version": lambda: "class: attack_targets.Target@" + "9" * (20 * 2**20),
    "a huge comment": lambda: "#" * (30 * 2**20),
    "many spaces": lambda: " " * (30 * 2**20),
    "many line breaks": lambda: "\n" * (30 * 2**20),
    "many unknown keys": lambda: TARGET + "".join(f"key{index}: 1\n" for index in range(10_000)),
    "many keys twice": lambda: TARGET + "number: 1\n" * 20_000,
    "many keys twice in a dictionary": lambda: TARGET + "mapping:\n" + "  a: 1\n" * 20_000,
    "many keys that are lists": lambda: TARGET + "[a]: 1\n" * 10_000,
    "many unknown classes": lambda: "".join(f"- {{class: unknown.Name{index}}}\n" for index in range(10_000)),
    "many wrong values": lambda: TARGET + "listed:\n" + "- {class: attack_targets.Part, size: x}\n" * 10_000,
    "many wrong tags": lambda: "- !x y\n" * 20_000,
    "many wrong functions": lambda: "- {function: nothing}\n" * 10_000,
    "many values in a flow list": lambda: "[" + "a," * (20 * MILLION) + "]",
    "many colons": lambda: "[" + ":," * (20 * MILLION) + "]",
    "many documents": lambda: "--- a\n" * MILLION,
    "many directives": lambda: "%TAG !a! tag:x\n" * 100_000 + "--- a\n",
    "many escapes": lambda: TARGET + 'number: "' + "\\U0001f600" * (2 * MILLION) + '"',
}  # fmt: skip
HARMLESS = {name for name in BOMBS if name.startswith("aliases")} - {"aliases as keys", "aliases through an upgrade"}


def _read(name: str) -> tuple[int, str]:
    text = BOMBS[name]()
    try:
        loads(text)
    except SonoscoError as error:
        return REFUSED, str(error)
    except Exception as error:
        return OTHER_ERROR, f"{type(error).__name__}: {error}"
    return BUILT, ""


def _compare(name: str) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bomb.yaml"
        text = BOMBS[name]()
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        try:
            diff(path, path)
        except SonoscoError as error:
            return REFUSED, str(error)
        except Exception as error:
            return OTHER_ERROR, f"{type(error).__name__}: {error}"
        return BUILT, ""


def _apart(job: Callable[[str], tuple[int, str]], name: str) -> dict[str, object]:
    """Do a job in a forked process with limits; its status is negative if a signal ended it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, -1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        status, message = job(name)
        os.write(writer, json.dumps({"length": len(message), "message": message[:1000]}).encode())
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"status": status, **(json.loads(content) if content else {"length": 0, "message": ""})}


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main() -> None:
    """Print one JSON object: for every bomb what reading and what comparing it came to."""
    warm_up()
    compared = [name for name in BOMBS if name.startswith(("aliases", "flow lists", "block lists"))]
    results = {name: _apart(_read, name) for name in BOMBS}
    comparisons = {name: _apart(_compare, name) for name in compared}
    json.dump({"read": results, "compared": comparisons}, sys.stdout)


if __name__ == "__main__":
    main()
