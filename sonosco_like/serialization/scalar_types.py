"""Types whose values are one scalar: numbers, text, paths, enumerations, torch's devices and dtypes, tensors."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from yaml.nodes import Node, ScalarNode

from sonosco_like.errors import StorageError, did_you_mean
from sonosco_like.serialization.converter import Converter, Fit, Reader, Schema, Writer, not_of_type
from sonosco_like.serialization.nodes import brief
from sonosco_like.serialization.yaml_text import STR, Kind, kind_of, plain_kind, read_float, read_int, write_float


class Atom(Converter):
    """A type given by how its scalars are read and written."""

    def __init__(
        self,
        types: type | tuple[type, ...],
        expected: str,
        kinds: tuple[Kind, ...],
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
        self._written_tag = kinds[0].value

    def decode(self, node: Node, reader: Reader) -> Any:
        if not isinstance(node, ScalarNode):
            return reader.expected(node, self.expected)
        kind = kind_of(node)
        if kind not in self.kinds and node.tag != self.tag:
            quotable = Kind.TEXT in self.kinds and kind is not Kind.OTHER
            return reader.expected(node, self.expected, "; put it in quotes if it is meant as text" if quotable else "")
        try:
            return self.read(node.value)
        except (ValueError, OverflowError) as error:
            return reader.expected(node, self.expected, f" ({str(error)[:100]})")

    def encode(self, value: Any, writer: Writer) -> Node:
        if not self.fit_of_value(value):
            return not_of_type(value, self, writer)
        try:
            text = self.write(value)
        except (ValueError, OverflowError) as error:
            return writer.problem(f"{type(value).__qualname__} cannot be written: {error}")
        return _text_node(text, writer) if self.kinds[0] is Kind.TEXT else ScalarNode(self._written_tag, text)

    def fit_of_node(self, node: Node) -> Fit:
        if not isinstance(node, ScalarNode):
            return Fit.NO
        kind = kind_of(node)
        if node.tag == self.tag or (kind is self.kinds[0] and self.tag is None):
            return Fit.EXACT
        return Fit.POSSIBLE if kind in self.kinds else Fit.NO

    def fit_of_value(self, value: Any) -> Fit:
        if type(value) in self.types:
            return Fit.EXACT
        return Fit.POSSIBLE if isinstance(value, self.types) and not isinstance(value, (bool, enum.Enum)) else Fit.NO

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return dict(self._schema)


class _Number(Atom):
    """Numbers also take numpy's, which compare and compute like Python's but are not instances of them."""

    def fit_of_value(self, value: Any) -> Fit:
        numpy = sys.modules.get("numpy")
        if numpy and isinstance(value, numpy.generic):
            value = value.item()
        if type(value) is self.types[0]:
            return Fit.EXACT
        whole_for_float = self.types[0] is float and type(value) is int
        return Fit.POSSIBLE if whole_for_float or super().fit_of_value(value) else Fit.NO


class Text(Atom):
    """Text; a value of the command line is taken as it was given, not as YAML reads it."""

    def decode(self, node: Node, reader: Reader) -> Any:
        raw = getattr(node, "raw", None)
        return super().decode(node, reader) if raw is None else self.read(raw)


class PathText(Text):
    """A path, without the blanks around it; a list or a mapping of the command line is not taken for a path."""

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
        if not self.fit_of_value(value):
            return not_of_type(value, self, writer)
        text = self.texts[type(value), value]
        return ScalarNode(_kind_of_option(text, value).value, text)

    def fit_of_node(self, node: Node) -> Fit:
        return Fit.EXACT if self._find(node) else Fit.NO

    def fit_of_value(self, value: Any) -> Fit:
        try:
            return Fit.EXACT if (type(value), value) in self.texts else Fit.NO
        except TypeError:
            return Fit.NO

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {"enum": [text if _is_text(value) else value for text, value in self.options]}

    def _find(self, node: Node) -> tuple[str, Any] | None:
        """The option that a scalar stands for; `16` without quotes may mean the text "16" if no number fits."""
        if not isinstance(node, ScalarNode):
            return None
        kind = kind_of(node)
        named = [option for option in self.options if option[0] == node.value]
        exact = [option for option in named if kind is _kind_of_option(*option)]
        return next(iter([*exact, *(option for option in named if _is_text(option[1]))]), None)


class Stored(Converter):
    """A tensor or an array: never text, always a reference into the tensor file."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.tag = f"!{kind}"
        self.expected = f"{'a tensor' if kind == 'tensor' else 'an array'} kept in the tensor file (`{self.tag} name`)"

    def decode(self, node: Node, reader: Reader) -> Any:
        if not self.fit_of_node(node):
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
        if not self.fit_of_value(value):
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

    def fit_of_node(self, node: Node) -> Fit:
        return Fit.EXACT if isinstance(node, ScalarNode) and node.tag == self.tag else Fit.NO

    def fit_of_value(self, value: Any) -> Fit:
        library, name = ("torch", "Tensor") if self.kind == "tensor" else ("numpy", "ndarray")
        module = sys.modules.get(library)
        return Fit.EXACT if module and isinstance(value, getattr(module, name)) else Fit.NO

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


def _kind_of_option(text: str, value: Any) -> Kind:
    return Kind.TEXT if _is_text(value) else plain_kind(text)


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, enum.Enum))


def _text_node(text: str, writer: Writer) -> Node:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return writer.problem(f"text with a lone surrogate cannot be written: {text[:60]!r}")
    return ScalarNode(STR, text, style="|" if "\n" in text and len(text) > 40 else None)


def _write_number(value: Any) -> str:
    number = float(value)
    if number != value and number == number:
        raise ValueError("no float equals it")
    return write_float(number)


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
    (Kind.BOOL,),
    lambda text: text.lower() == "true",
    lambda v: str(bool(v)).lower(),
    {"type": "boolean"},
)
INTEGER = _Number(int, "a whole number", (Kind.INT,), read_int, lambda v: str(int(v)), {"type": "integer"})
NUMBER = _Number(float, "a number", (Kind.FLOAT, Kind.INT), read_float, _write_number, {"type": "number"})
TEXT = Text(str, "text", (Kind.TEXT,), str, str, {"type": "string"})
NOTHING = Atom(type(None), "nothing (null)", (Kind.NULL,), lambda text: None, lambda v: "null", {"type": "null"})
PATH = PathText(
    (PurePath, Path, type(Path())), "a path", (Kind.TEXT,), Path, lambda v: v.as_posix(), {"type": "string"}, "!path"
)
TENSOR = Stored("tensor")
ARRAY = Stored("array")


def device_converter() -> Atom:
    """The converter of `torch.device`, made when torch is imported."""
    import torch

    return Atom(
        torch.device, "a device such as cpu or cuda:0", (Kind.TEXT,), _read_device, str, {"type": "string"}, "!device"
    )


def dtype_converter() -> Atom:
    """The converter of `torch.dtype`, made when torch is imported."""
    import torch

    write = lambda value: str(value).removeprefix("torch.")  # noqa: E731
    return Atom(
        torch.dtype, "a tensor type such as float32", (Kind.TEXT,), _read_dtype, write, {"type": "string"}, "!dtype"
    )
