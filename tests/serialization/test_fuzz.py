"""Whatever a file says, reading it gives an object or an error of ours; more than 10,000 mutated files show it."""

from __future__ import annotations

import hashlib
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

import numpy
import pytest
import torch
from generated_graphs import Colour, Everything, Holder, Leaf, Node, OtherLeaf, Size, scale
from mutations import mutate_bytes, mutate_structure

from sonosco_like.errors import ConfigError, SonoscoError
from sonosco_like.serialization import diff, dumps, load, loads, save, serializable, state

TEXT_MUTATIONS = 7000
STRUCTURE_MUTATIONS = 3500
FOLDER_MUTATIONS = 900
OVERRIDES = 1000


@serializable(version=3, also=("test_fuzz.Older",))
class Grown:
    """A class with a history, so that upgrades meet nonsense too."""

    items: list[int] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    mode: Literal["a", "b", 1] = "a"
    seen: dict[str, int] = state({})

    @staticmethod
    def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
        if version == 1:
            fields["items"] = [number + 1 for number in fields.pop("numbers", [])]
        return fields

    @staticmethod
    def upgrade_state(version: int, state: dict[str, Any]) -> dict[str, Any]:
        return {"seen": {**state.get("seen", {}), "upgraded": version}}


@serializable
class Picky:
    """A class that objects in its own way, and one whose parts object."""

    size: int = 1
    part: Leaf | Grown | list[Leaf] | dict[str, Any] | None = None
    function: Callable[..., float] | str = "x"
    keyed: dict[int | str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"size must not be negative, got {self.size}")
        self.derived = 10 / self.size


def _seeds() -> list[str]:
    leaf = Leaf(weight=0.5, label="shared")
    leaf.visits = 3
    everything = Everything(
        flag=True, count=3, ratio=0.5, name="a name", nothing=None, place=Path("a/b"), colour=Colour.RED,
        size=Size.LARGE,
        mode="fast", maybe=None, either=2, text_or_path=Path("x"), listed=["a", "no"], pair=(1, "b"), ratios=(0.5, 1.0),
        words={"a", "b"}, numbers={1, 2}, table={"x": 1.0}, groups={1: [Path("y"), None]},
        by_colour={Colour.NO: (True,)}, function=scale, device=torch.device("cpu"), dtype=torch.float32,
        part=leaf,
        anything=[1, "x", (2.5, None), {"k": {1, 2}}, Path("p"), leaf],
    )  # fmt: skip
    tree = Node(
        name="top", children=[Node(name="one", either=leaf), Node(name="two", either=leaf)], by_name={"x": Node()}
    )
    tree.children.append(tree.children[0])
    tree.seen, tree.friend, tree.memory = 4, leaf, [leaf, OtherLeaf()]
    former = "class: test_fuzz.Older@1\nnumbers: [1, 2]\nnames: {a: &x [1], b: *x}\nmode: b\nstate: {seen: {u: 1}}\n"
    picky = (
        "class: test_fuzz.Picky\nsize: 2\npart: {class: test_fuzz.Grown@2, items: [1]}\n"
        "function: {function: generated_graphs.scale, factor: 2}\nkeyed: {1: [1, 2.5], a: []}\n"
    )
    return [dumps(everything), dumps(tree), former, picky, dumps([leaf, {"a": everything.part}, (1, {"b"})])]


SEEDS = _seeds()


class TooLong(BaseException):
    """One text took a minute of processor time: it hangs."""


@pytest.fixture(autouse=True)
def _no_text_hangs() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooLong

    former = signal.signal(signal.SIGPROF, stop)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, former)


def _read(reading: Callable[[], Any], source: Any) -> bool:
    """Whether reading gives an object; anything but an object and an error of ours fails the test."""
    signal.setitimer(signal.ITIMER_PROF, 60)
    try:
        reading()
    except SonoscoError as error:
        if not str(error).strip():
            raise AssertionError(f"an error that says nothing came out of reading {source!r}") from error
        return False
    except (Exception, TooLong) as error:
        raise AssertionError(f"{type(error).__name__}: {str(error)[:300]} came out of reading {source!r}") from error
    return True


def test_mutated_bytes_give_an_object_or_an_error_of_ours():
    chance = random.Random(1)
    read = sum(_read(lambda t=text: loads(t), text) for text in _texts(chance))
    assert 100 < read < TEXT_MUTATIONS - 1000, "some mutations do no harm, most do"


def _texts(chance: random.Random) -> Iterator[bytes | str]:
    for index in range(TEXT_MUTATIONS):
        changed = mutate_bytes(SEEDS[index % len(SEEDS)].encode(), chance)
        yield changed if index % 3 else changed.decode("utf-8", "surrogateescape")


def test_mutated_structures_give_an_object_or_an_error_of_ours():
    chance = random.Random(2)
    texts = [mutate_structure(SEEDS[index % len(SEEDS)], chance) for index in range(STRUCTURE_MUTATIONS)]
    read = sum(_read(lambda t=text: loads(t), text) for text in texts)
    assert len(set(texts)) > STRUCTURE_MUTATIONS * 0.8
    assert 100 < read < STRUCTURE_MUTATIONS - 1000


def test_what_survives_a_mutation_can_be_written_and_read_again():
    chance = random.Random(3)
    survivors = 0
    for index in range(600):
        text = mutate_structure(SEEDS[index % len(SEEDS)], chance)
        try:
            again = dumps(loads(text))
        except ConfigError:
            continue
        survivors += 1
        assert dumps(loads(again)) == again
    assert survivors > 20


def test_mutated_overrides_give_an_object_or_an_error_of_ours():
    chance = random.Random(4)
    seeds = [
        b"children[0].name=x",
        b"by_name.x.seen=1",
        b"either={class: generated_graphs.Leaf}",
        b"name=",
        b"children[3]=[]",
        b"anything=[1, 2]",
    ]
    for index in range(OVERRIDES):
        override = mutate_bytes(seeds[index % len(seeds)], chance).decode("utf-8", "surrogateescape")
        _read(lambda o=override: loads(SEEDS[1], overrides=[o]), override)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A saved graph with state, references and tensors of several types."""
    tree = Node(name="top", children=[Node(name="one"), Node(name="two")], anything=Leaf())
    holder = Holder()
    holder.content = {
        "t": torch.arange(6.0),
        "c": torch.tensor([1j], dtype=torch.complex64),
        "a": numpy.arange(3),
        "b": torch.ones(2, dtype=torch.bfloat16),
    }
    tree.friend, tree.memory = tree.children[1], [tree, (1, {"x"})]
    place = tmp_path_factory.mktemp("fuzz") / "saved"
    save([tree, holder, Grown()], place)
    return place


def _seal(folder: Path) -> None:
    """Make hashes fit what is in the folder, as an attacker would."""
    body = (folder / "state.yaml").read_bytes().rpartition(b"sha256: ")[0]
    lines = body.split(b"\n")
    for index, line in enumerate(lines):
        name = line.strip().partition(b":")[0].decode(errors="replace")
        if name in ("trainer.yaml", "tensors.safetensors"):
            digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            lines[index] = f"  {name}: {digest}".encode()
    body = b"\n".join(lines)
    (folder / "state.yaml").write_bytes(body + b"sha256: " + hashlib.sha256(body).hexdigest().encode() + b"\n")


@pytest.mark.parametrize("name", ["trainer.yaml", "state.yaml", "tensors.safetensors"])
def test_mutated_folders_with_fitting_hashes_give_an_object_or_an_error_of_ours(folder, tmp_path, name):
    chance = random.Random(5)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    content = (folder / name).read_bytes()
    kept = len(content) if name != "tensors.safetensors" else 8 + int.from_bytes(content[:8], "little")
    texts = 0
    for _ in range(FOLDER_MUTATIONS // 3):
        for each in folder.iterdir():
            (copy / each.name).write_bytes(each.read_bytes())
        changed = mutate_bytes(content[:kept], chance) + content[kept:]
        (copy / name).write_bytes(changed)
        _seal(copy)
        texts += _read(lambda: load(copy), changed)
        _read(lambda: diff(copy, folder), changed)
    assert texts > 0
