"""Types whose values are one scalar: numbers, text, paths, dates, enumerations, torch's devices and dtypes, tensors."""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path, PurePath
from typing import Any

from yaml.nodes import Node, ScalarNode

from sonosco_like.errors import StorageError, did_you_mean
from sonosco_like.serialization.context import brief
from sonosco_like.serialization.converter import EXACT, NO, POSSIBLE, Converter, Reader, Schema, Writer, not_of_type
from sonosco_like.serialization.scalars import (
    BOOL,
    FLOAT,
    INT,
    NULL,
    STR,
    kind_of,
    plain_kind,
    read_float,
    read_int,
    write_float,
)  # fmt: skip


class Atom(Converter):
    """A type given by how its scalars are read and written."""

    def __init__(
        self,
        types: type | tuple[type, ...],
        expected: str,
        kinds: tuple[str, ...],
        read: Callable[[str], Any],
        write: Callable[[Any], str],
        schema: Schema,
        tag: str | None = None,
    ) -> None:
        self.types = types if isinstance(types, tuple) else (types,)
        self.expected = expected
        self.kinds = kinds
        self.read = read
        self.write = write
        self.tag = tag
        self._schema = schema

    def decode(self, node: Node, reader: Reader) -> Any:
        if not isinstance(node, ScalarNode):
            return reader.expected(node, self.expected)
        kind = kind_of(node)
        if kind not in self.kinds and kind != self.tag:
            quotable = STR in self.kinds and kind in (INT, FLOAT, BOOL, NULL)
            return reader.expected(node, self.expected, "; put it in quotes if it is meant as text" if quotable else "")
        try:
            return self.read(node.value)
        except (ValueError, OverflowError) as error:
            return reader.expected(node, self.expected, f" ({str(error)[:100]})")

    def encode(self, value: Any, writer: Writer) -> Node:
        if not self.holds(value):
            return not_of_type(value, self, writer)
        try:
            text = self.write(value)
        except (ValueError, OverflowError) as error:
            return writer.problem(f"{type(value).__qualname__} cannot be written: {error}")
        if self.kinds[0] == STR:
            return _text_node(text, writer)
        return ScalarNode(self.kinds[0], text)

    def reads(self, node: Node) -> int:
        if not isinstance(node, ScalarNode):
            return NO
        kind = kind_of(node)
        if kind == self.tag or (kind == self.kinds[0] and self.tag is None):
            return EXACT
        return POSSIBLE if kind in self.kinds else NO

    def holds(self, value: Any) -> int:
        if type(value) in self.types:
            return EXACT
        return POSSIBLE if isinstance(value, self.types) and not isinstance(value, (bool, enum.Enum)) else NO

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return dict(self._schema)


class _Number(Atom):
    """Numbers also take numpy's, which compare and compute like Python's but are not instances of them."""

    def holds(self, value: Any) -> int:
        numpy = sys.modules.get("numpy")
        if numpy and isinstance(value, numpy.generic):
            value = value.item()
        if type(value) is self.types[0]:
            return EXACT
        whole_for_float = self.types[0] is float and type(value) is int
        return POSSIBLE if whole_for_float or super().holds(value) else NO


class Text(Atom):
    """Text; a value of the command line is taken as it was given, whatever YAML makes of it."""

    def decode(self, node: Node, reader: Reader) -> Any:
        raw = getattr(node, "raw", None)
        return super().decode(node, reader) if raw is None else self.read(raw)


class PathText(Text):
    """A path; neither a list nor a mapping is meant as one, nor are blanks around it part of its name."""

    def decode(self, node: Node, reader: Reader) -> Any:
        raw = getattr(node, "raw", None) if isinstance(node, ScalarNode) else None
        return Atom.decode(self, node, reader) if raw is None else self.read(raw.strip())


class Choice(Converter):
    """One of a few values, each with its text: `Enum` and `Literal`."""

    def __init__(self, options: list[tuple[str, Any]], of: str = "one of") -> None:
        self.options = options
        self.texts = {(type(value), value): text for text, value in options}
        self.expected = f"{of} ({', '.join(text for text, _ in options)})"

    def decode(self, node: Node, reader: Reader) -> Any:
        found = self._find(node)
        if found is None:
            hint = did_you_mean(node.value, [text for text, _ in self.options]) if isinstance(node, ScalarNode) else ""
            return reader.expected(node, self.expected, hint)
        return found[1]

    def encode(self, value: Any, writer: Writer) -> Node:
        if not self.holds(value):
            return not_of_type(value, self, writer)
        text = self.texts[type(value), value]
        return ScalarNode(STR if _is_text(value) else plain_kind(text), text)

    def reads(self, node: Node) -> int:
        return EXACT if self._find(node) else NO

    def holds(self, value: Any) -> int:
        try:
            return EXACT if (type(value), value) in self.texts else NO
        except TypeError:
            return NO

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {"enum": [text if _is_text(value) else value for text, value in self.options]}

    def _find(self, node: Node) -> tuple[str, Any] | None:
        """The option a scalar stands for; `16` without quotes may also mean the text "16" if no number does."""
        if not isinstance(node, ScalarNode):
            return None
        kind = kind_of(node)
        named = [option for option in self.options if option[0] == node.value]
        exact = [option for option in named if kind == (STR if _is_text(option[1]) else plain_kind(option[0]))]
        return next(iter([*exact, *(option for option in named if _is_text(option[1]))]), None)


class Stored(Converter):
    """A tensor or an array: never text, always a reference into the tensor file beside."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.tag = f"!{kind}"
        self.expected = f"{'a tensor' if kind == 'tensor' else 'an array'} kept in the tensor file (`{self.tag} name`)"

    def decode(self, node: Node, reader: Reader) -> Any:
        if not self.reads(node):
            return reader.expected(node, self.expected)
        if reader.tensors is None:
            return reader.problem(node, "refers to a tensor file, and this text has none beside it; load the folder")
        try:
            return (reader.tensors.read if self.kind == "tensor" else reader.tensors.read_array)(node.value)
        except KeyError:
            return reader.problem(node, f"the tensor file has no {brief(node.value)}")
        except (StorageError, TypeError) as error:
            return reader.problem(node, f"the tensor {brief(node.value)} cannot be read: {str(error)[:200]}")

    def encode(self, value: Any, writer: Writer) -> Node:
        if not self.holds(value):
            return not_of_type(value, self, writer)
        if writer.tensors is None:
            return writer.problem(
                f"a {self.kind} is never written as text; save to a folder, or write without state to keep only "
                f"what the object is made from"
            )
        try:
            name = writer.tensors.add(writer.parts, value)
        except TypeError as error:
            return writer.problem(f"cannot be kept in a tensor file: {error}")
        return ScalarNode(f"!{self.kind}", name)

    def reads(self, node: Node) -> int:
        return EXACT if isinstance(node, ScalarNode) and node.tag == self.tag else NO

    def holds(self, value: Any) -> int:
        library, name = ("torch", "Tensor") if self.kind == "tensor" else ("numpy", "ndarray")
        module = sys.modules.get(library)
        return EXACT if module and isinstance(value, getattr(module, name)) else NO

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {"type": "string", "description": f"reference to a {self.kind} in the tensor file"}


def enum_converter(cls: type[enum.Enum]) -> Choice:
    """Members by value if the values are text, else by name."""
    by_value = all(isinstance(member.value, str) for member in cls)
    return Choice([(member.value if by_value else member.name, member) for member in cls], of=f"a {cls.__name__}")


def literal_converter(values: tuple[Any, ...]) -> Choice:
    """The values of a `Literal`."""
    return Choice([(_literal_text(value), value) for value in values])


def _literal_text(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, str) else value.name
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, enum.Enum))


def _text_node(text: str, writer: Writer) -> Node:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return writer.problem(f"text with a lone surrogate cannot be written: {text[:60]!r}")
    return ScalarNode(STR, text, style="|" if "\n" in text and len(text) > 40 else None)


_DURATION = re.compile(
    r"(?P<sign>-?)P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,6})?)S)?)?"
)


def _read_timedelta(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None or text.rstrip("T").endswith("P"):
        raise ValueError("a duration looks like P1DT2H30M5.5S")
    parts = match.groupdict(default="0")
    whole, _, fraction = parts["seconds"].partition(".")
    value = timedelta(
        days=int(parts["days"]), hours=int(parts["hours"]), minutes=int(parts["minutes"]),
        seconds=int(whole), microseconds=int(fraction.ljust(6, "0") or 0),
    )  # fmt: skip
    return -value if parts["sign"] == "-" else value


def _write_timedelta(value: timedelta) -> str:
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    seconds = (
        f"{value.seconds}.{value.microseconds:06d}".rstrip("0").rstrip(".")
        if value.microseconds
        else str(value.seconds)
    )
    return f"{sign}P{value.days}DT{seconds}S"


def _read_datetime(text: str) -> datetime:
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


def _write_number(value: Any) -> str:
    number = float(value)
    if number != value and number == number:
        raise ValueError("no float equals it")
    return write_float(number)


def _write_datetime(value: datetime) -> str:
    offset = value.utcoffset()
    if offset is not None and offset.microseconds:  # Python writes such offsets, and does not read them back
        raise ValueError("its offset from UTC is not a whole number of seconds")
    return value.isoformat()


def _read_device(text: str) -> Any:
    import torch

    try:
        return torch.device(text)
    except RuntimeError as error:
        raise ValueError(str(error).split("\n")[0]) from None


def _read_dtype(text: str) -> Any:
    import torch

    known = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
    if text not in known:  # never getattr: torch imports modules whose names it is asked for
        raise ValueError(f"there is no such type{did_you_mean(text, known)}")
    return known[text]


BOOLEAN = _Number(
    bool,
    "true or false",
    (BOOL,),
    lambda text: text.lower() == "true",
    lambda v: str(bool(v)).lower(),
    {"type": "boolean"},
)
INTEGER = _Number(int, "a whole number", (INT,), read_int, lambda v: str(int(v)), {"type": "integer"})
NUMBER = _Number(float, "a number", (FLOAT, INT), read_float, _write_number, {"type": "number"})
TEXT = Text(str, "text", (STR,), str, str, {"type": "string"})
NOTHING = Atom(type(None), "nothing (null)", (NULL,), lambda text: None, lambda v: "null", {"type": "null"})
PATH = PathText(
    (PurePath, Path, type(Path())), "a path", (STR,), Path, lambda v: v.as_posix(), {"type": "string"}, "!path"
)
DATETIME = Atom(
    datetime, "a date and time such as 2026-01-31T12:00:00", (STR,), _read_datetime, _write_datetime,
    {"type": "string", "format": "date-time"}, "!datetime",
)  # fmt: skip
TIMEDELTA = Atom(
    timedelta, "a duration such as P1DT2H30M", (STR,), _read_timedelta, _write_timedelta,
    {"type": "string", "format": "duration"}, "!timedelta",
)  # fmt: skip
TENSOR = Stored("tensor")
ARRAY = Stored("array")


def device_converter() -> Atom:
    """`torch.device`, made when torch is there."""
    import torch

    return Atom(
        torch.device, "a device such as cpu or cuda:0", (STR,), _read_device, str, {"type": "string"}, "!device"
    )


def dtype_converter() -> Atom:
    """`torch.dtype`, made when torch is there."""
    import torch

    write = lambda value: str(value).removeprefix("torch.")  # noqa: E731
    return Atom(torch.dtype, "a tensor type such as float32", (STR,), _read_dtype, write, {"type": "string"}, "!dtype")
