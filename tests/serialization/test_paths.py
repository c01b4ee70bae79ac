"""A field that is a path takes text as well, wherever Python code makes an object."""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from sonosco_like.callbacks import CsvFile, HistoryPlots, MetricsFile
from sonosco_like.data import Alphabet, AudioDataset, Manifest
from sonosco_like.serialization import dumps, loads, serializable, state


@serializable
class Places:
    """A field of each kind that may hold a path."""

    one: Path = field(kw_only=False)
    maybe: Path | None = field(default=None, kw_only=False)
    many: list[Path] = field(default_factory=list)
    one_or_many: Path | list[Path] | None = None
    named: dict[str, Path] = field(default_factory=dict)
    pair: tuple[Path, ...] = ()
    text_or_path: str | Path = ""
    auto: Literal["auto"] | Path = "auto"
    anything: Any = None
    name: str = ""
    seen: list[str] = state([])

    def __post_init__(self) -> None:
        self.parent = self.one.parent  # a path already


@serializable
class Further(Places):
    """Inherits the fields, and adds one."""

    further: Path = Path()


@serializable
class Layer(torch.nn.Module):
    """A module with a path."""

    weights: Path


@pytest.mark.parametrize("cls", [Places, Further])
def test_text_becomes_a_path_where_the_type_wants_one(cls):
    made = cls("a/b", "c", many=["d", Path("e")], named={"f": "g"}, pair=("h", "i"))
    assert (made.one, made.maybe, made.parent) == (Path("a/b"), Path("c"), Path("a"))
    assert (made.many, made.named, made.pair) == ([Path("d"), Path("e")], {"f": Path("g")}, (Path("h"), Path("i")))


def test_unions_of_paths():
    assert Places("a", one_or_many="b").one_or_many == Path("b")
    assert Places("a", one_or_many=["b", "c"]).one_or_many == [Path("b"), Path("c")]
    assert Places("a", one_or_many=None).one_or_many is None


def test_text_stays_text_where_the_type_takes_text():
    made = Places("a", text_or_path="b", anything="c", name="d")
    assert (made.text_or_path, made.auto, made.anything, made.name) == ("b", "auto", "c", "d")
    assert Places("a", auto="runs").auto == Path("runs")


def test_what_is_a_path_already_is_left_as_it_is():
    given = [Path("a")]
    assert Places(Path("x"), many=given).many is given


def test_modules_subclasses_and_copies():
    class Plain(Places):
        pass

    assert Layer(weights="w.safetensors").weights == Path("w.safetensors")
    assert Further("a", further="z").further == Path("z")
    assert Plain("a").one == Path("a")
    assert replace(Places("a"), one="b").one == Path("b")


def test_wrong_arguments_are_refused_as_before():
    with pytest.raises(TypeError, match="positional argument"):
        Places("a", "b", "c")
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        Places("a", wrong="b")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'one'"):
        Places()


def test_it_is_written_and_read_as_a_path():
    assert loads(dumps(Places("a/b", many=["c"]))).many == [Path("c")]
    assert dumps(Places("a/b")) == dumps(Places(Path("a/b")))


def test_our_own_classes_take_text(tmp_path):
    for cls in (MetricsFile, CsvFile, HistoryPlots):
        assert cls(folder=str(tmp_path)).folder == tmp_path
    (tmp_path / "all.jsonl").write_text('{"audio_filepath": "a.wav", "duration": 1.0, "text": "a"}\n')
    dataset = AudioDataset(manifest=str(tmp_path / "all.jsonl"), tokenizer=Alphabet(characters="a"))
    assert isinstance(dataset.utterances, Manifest)
    assert dataset.manifest == tmp_path / "all.jsonl"
