"""`base: common.yaml` at the top of a file: the file is merged over another one, which may have a base of its own.

A base is in the folder of the file that names it, or below: no absolute path, no `..`, no link. Mappings are merged,
everything else is replaced. A mapping of another `class` is replaced too, because its fields are others. `null` takes
away what the base has: the field is then null, or has its default where null is none of its values.

A mapping to which the base refers with an alias is one object, also after the merge: a change reaches all its places.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NoReturn

from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.errors import ConfigError, Problem, StorageError
from sonosco_like.serialization.files import read_file
from sonosco_like.serialization.nodes import brief, is_mapping, node_at, node_text, walk_nodes
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.yaml_text import NULL, Kind, kind_of, line_of, parse

BASE = "base"
_MOST_FILES = 8
_KINDS = ("class", "function")  # what decides which other keys a mapping has


def parse_with_base(path: Path, source: str) -> Node:
    """The root node of a file merged over its base, without `base`. Each node knows its file, for messages."""
    files = [(path, source, parse(read_file(path), source))]
    while (entry := _base_of(files[-1][2])) is not None:
        place, name, _ = files[-1]
        if len(files) == _MOST_FILES:
            _refuse(f"is the base of a base too often; at most {_MOST_FILES} files are merged", entry, name)
        base = _find(place, name, entry)
        if base in [each for each, _, _ in files]:
            _refuse(
                f"{brief(entry.value)} refers back to itself: {' -> '.join(each for _, each, _ in files)}", entry, name
            )
        named = str(Path(name).parent / entry.value)
        files.append((base, named, _parse_base(base, named, entry, name)))
    root = files[-1][2]
    if len(files) > 1:
        for _, name, each in files:
            _mark(each, name)
        for _, name, over in reversed(files[:-1]):
            merge(root, over, name)
    return root


def merge(base: Node, over: Node, source: str) -> None:
    """Change a tree to what another one says on top of it. `source` names the file of the other in messages."""
    seen: dict[int, Node] = {}
    done: set[int] = set()
    stack = [(base, over)]
    while stack:
        below, above = stack.pop()
        before = seen.setdefault(id(below), above)
        if before is not above:
            _refuse(
                f"this and what is at line {line_of(before)} are one object of the base, by an alias: change it in "
                "one place only", above, source, "",
            )  # fmt: skip
        elif id(below) not in done:
            done.add(id(below))
            _refuse_double_keys(above, source)
            stack += _merge_entries(below, above)
            below.source = source  # type: ignore[attr-defined]


def _merge_entries(below: Node, above: Node) -> list[tuple[Node, Node]]:
    """Take over the entries of a mapping; returns the pairs of mappings that are still to be merged."""
    pairs: list[tuple[Node, Node]] = []
    if _is_another_kind(below, above):
        below.value = list(above.value)
    else:
        places = {_name(key): place for place, (key, _) in enumerate(below.value)}
        for key, value in above.value:
            place = places.get(_name(key))
            if place is None:
                below.value.append((key, value))
                continue
            old = below.value[place][1]
            if is_mapping(old) and is_mapping(value):
                pairs.append((old, value))
            else:
                below.value[place] = (key, _removing(value) if _is_null(value) else value)
    below.start_mark, below.end_mark = above.start_mark, above.end_mark
    return pairs


def _refuse_double_keys(node: Node, source: str) -> None:
    names = [_name(key) for key, _ in node.value]
    for place, (key, _) in enumerate(node.value):
        if _name(key) in names[:place]:
            _refuse(f"has the key {brief(key.value)} twice", key, source, "")


def _name(key: Node) -> str | int:
    return key.value if isinstance(key, ScalarNode) else id(key)


def _is_another_kind(below: Node, above: Node) -> bool:
    """Whether a mapping has another class, or function, than the one it is merged over."""
    for kind in _KINDS:
        old, new = (_text_at(node, kind).partition("@")[0] for node in (below, above))
        if new and new != old and (old or any(_text_at(below, each) for each in _KINDS)):
            return True
    return False


def _text_at(node: Node, name: str) -> str:
    found = node_at(node, (name,))
    return str(found.value) if isinstance(found, ScalarNode) else ""


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and kind_of(node) is Kind.NULL


def _removing(node: Node) -> ScalarNode:
    """A null that takes away what the base has."""
    made = ScalarNode(NULL, "null", node.start_mark, node.end_mark)
    made.source, made.removes = getattr(node, "source", None), True  # type: ignore[attr-defined]
    return made


def _base_of(root: Node) -> ScalarNode | None:
    """The `base` of a file, taken out of it; None if it has none, or if its class has a field of that name."""
    if not is_mapping(root) or (found := node_at(root, (BASE,))) is None:
        return None
    entry = REGISTRY.find(_text_at(root, "class").partition("@")[0])
    if entry is not None and BASE in getattr(entry.target, "__dataclass_fields__", ()):
        return None
    root.value = [(key, value) for key, value in root.value if _name(key) != BASE]
    if isinstance(found, ScalarNode):
        return found
    return ScalarNode(NULL, "", found.start_mark, found.end_mark)


def _find(path: Path, source: str, entry: ScalarNode) -> Path:
    """The file of a base. Refuses a path that leaves the folder of the file that names it."""
    text = entry.value
    wanted = "a base is the relative path of a file in the same folder, or in one below"
    if kind_of(entry) is not Kind.TEXT or not text or not text.isprintable():
        _refuse(f"{wanted}, got {node_text(entry)}", entry, source)
    parts = PurePosixPath(text).parts
    if PurePosixPath(text).is_absolute() or PureWindowsPath(text).drive or "\\" in text or ".." in parts:
        _refuse(f"{wanted}, got {brief(text)}", entry, source)
    found = path.parent
    for part in parts:
        found = found / part
        if found.is_symlink():
            _refuse(f"{brief(text)} leads over a link, which is refused", entry, source)
    if not found.exists():
        _refuse(f"there is no file {brief(text)} in the folder of {source}", entry, source)
    return found


def _parse_base(path: Path, name: str, entry: ScalarNode, source: str) -> Node:
    try:
        root = parse(read_file(path), name)
    except StorageError as error:
        _refuse(f"cannot be read: {error}", entry, source)
    if not is_mapping(root):
        _refuse(f"{brief(entry.value)} holds {node_text(root)}, where a mapping is needed", entry, source)
    return root


def _mark(root: Node, source: str) -> None:
    """Have messages about every value of a file name that file."""
    for _, node in walk_nodes(root):
        node.source = source  # type: ignore[attr-defined]
        if isinstance(node, MappingNode):
            for key, _ in node.value:
                key.source = source


def _refuse(message: str, node: Node, source: str, path: str = BASE) -> NoReturn:
    raise ConfigError([Problem(message, path, source, line_of(node))])
