"""An attacker can recompute every hash: what then still does not fit is refused, each with its place in the file."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from attack_targets import Model, Target, seal

from sonosco_like.serialization import load, save


def _edited(folder: Path, name: str, old: str, new: str) -> Path:
    text = (folder / name).read_text()
    changed = re.sub(old, lambda _: new, text, count=1, flags=re.DOTALL)
    assert changed != text, "the edit changes something"
    (folder / name).write_text(changed)
    seal(folder)
    return folder


def test_sealing_is_what_makes_an_edit_readable(folder):
    assert load(_edited(folder, "trainer.yaml", "number: 1", "number: 5")).number == 5
    assert load(_edited(folder, "state.yaml", "seen: 1", "seen: 7")).seen == 7


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class: attack_targets.Target", "class: os.system"),
        ("class: attack_targets.Target", "class: attack_targets.Part"), ("class: attack_targets.Target\n", ""),
        ("class: attack_targets.Target", "class: [attack_targets.Target]"),
        ("class: attack_targets.Part", "class: attack_targets.Target"),
        ("class: attack_targets.Target", "class: attack_targets.Target@7"),
        ("seen: 1", "seen: one"), ("seen: 1", "seen: 1\n    seen: 2"), ("    seen: 1\n", ""), ("seen: 1", "sen: 1"),
        ("seen: 1", "seen: !!python/object/apply:os.system [x]"), ("seen: 1", "seen: 1\n    __class__: x"),
        ("seen: 1", "seen: 1\n    number: 3"), ("seen: 1", "seen: &a [*a]"), ("!tensor tensor", "!tensor missing"),
        ("!tensor tensor", "!tensor ../../outside/canary"), ("!tensor tensor", "!tensor /etc/passwd"),
        ("!tensor tensor", "!tensor ''"), ("!tensor tensor", "!tensor [tensor]"),
        ("!tensor tensor", "!pickle tensor"), ("!object part", "!object nowhere"), ("!object part", "!object ''"),
        ("!object part", "!object 'listed[1]'"),
        ("!object part", "!object [part]"), ("!object part", "!object '__class__'"), ("  part:\n", "  parts:\n"),
        ("  part:\n", "  part.size:\n"), ("  part:\n", "  '[0]':\n"), ("  part:\n", "  ? [part]\n  :\n"),
        (r"  part:\n    class: attack_targets.Part\n    visits: 0\n", ""), ("  part:\n", "  part: {}\n  other:\n"),
        ("objects:.*", "objects: {}\n"), ("objects:.*", "objects: []\n"), ("objects:.*", "objects: null\n"),
        ("objects:.*", ""),
        ("objects:.*", "objects: {'': 3}\n"), ("format: 1", "format: 2"), ("format: 1", "format: [1]"),
        ("format: 1", "format: one"), ("format: 1\n", ""), ("format: 1", "format: 1\nformat: 1"),
        ("format: 1", "format: 1\nextra: 1"),
        ("format: 1", "format: 1\n? [a]\n: b"), ("files:\n", "files:\n  ? [a]\n  : b\n"),
        ("files:\n", "files:\n  ? {a: b}\n  : [c]\n"), (r"files:\n.*?objects:", "files: {}\nobjects:"),
        (r"files:\n.*?objects:", "files: []\nobjects:"),
        (r"files:\n.*?objects:", "files: x\nobjects:"), (r"files:\n.*?objects:", "objects:"),
        (r"  trainer.yaml: \w+\n", ""), (r"  tensors.safetensors: \w+\n", ""),
        (r"  trainer.yaml: \w+\n", "  ../trainer.yaml: x\n"),
        (r"  trainer.yaml: \w+", "  trainer.yaml:"), ("^.*$", "abc\n"), ("^.*$", "[]\n"), ("^.*$", "\n"),
        ("^.*$", "--- {}\n--- {}\n"), ("^.*$", "[" * 5000 + "\n"),
        (r"    state_dict:.*?(?=\n  \S|$)", ""), (r"    state_dict:.*?(?=\n  \S|$)", "    state_dict: {}"),
        (r"    state_dict:.*?(?=\n  \S|$)", "    state_dict: []"),
        (r"    state_dict:.*?(?=\n  \S|$)", "    state_dict: null"),
        ("linear.weight: ", "linear.wait: "), ("linear.weight: !tensor", "linear.weight: !array"),
        ("linear.weight: !tensor", "linear.weight: !path"), ("linear.weight: ", "linear.weight: 3 # "),
        (r"linear.weight: !tensor \S+", "linear.weight: !tensor tensor"),
        (r"linear.weight: !tensor \S+", "linear.weight: [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]"),
    ],
)  # fmt: skip
def test_a_state_that_does_not_fit_is_refused(folder, refused, old, new):
    refused(_edited(folder, "state.yaml", old, new), names="state.yaml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class: attack_targets.Target", "class: os.system"),
        ("class: attack_targets.Target", "class: logging.os.system"),
        ("class: attack_targets.Target", "_target_: os.system"),
        ("number: 1", "number: !!python/object/apply:os.system [touch canary]"),
        ("number: 1", "number: !tensor missing"), ("number: 1", "number: !tensor tensor"),
        ("number: 1", "number: 1\nseen: 3"), ("number: 1", "number: 1\nnumber: 1"),
        ("class: attack_targets.Part", "class: attack_targets.Target"), ("part:\n", "parts:\n"),
        ("class: attack_targets.Target", "class: attack_targets.Model"), ("^.*$", "[]\n"), ("^.*$", "null\n"),
        ("^.*$", "!dict {}\n"), ("^.*$", "\n"),
    ],
)  # fmt: skip
def test_a_graph_that_does_not_fit_is_refused(folder, refused, old, new):
    refused(_edited(folder, "trainer.yaml", old, new))


def _with_tensors(folder: Path, content: bytes) -> Path:
    (folder / "tensors.safetensors").write_bytes(content)
    seal(folder)
    return folder


def _file(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def _entry(dtype: str = "F32", shape: object = (4,), start: int = 0, end: int = 16) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x00" * 7, b"\x00" * 8, b"\xff" * 8, _file(b"{}", length=2**63), _file(b"{}", length=10**8),
        _file(b"{}", length=2**64 - 1), _file(b"[]"), _file(b"null"), _file(b"x"), _file(b"\xff\xfe"),
        _file(b"{}", b"rest"),
        _file(b"{" + b'"a":[' * 100_000), _file(b"[" * 1_000_000), _file({"tensor": _entry()}, b"short"),
        _file({"tensor": _entry()}, b"\x00" * 17), _file({"tensor": _entry(end=2**62)}, b"\x00" * 16),
        _file({"tensor": _entry(start=8, end=0)}, b"\x00" * 16), _file({"tensor": _entry(start=-16)}, b"\x00" * 16),
        _file({"tensor": _entry(shape=[-4])}, b"\x00" * 16), _file({"tensor": _entry(shape=[2**62])}, b"\x00" * 16),
        _file({"tensor": _entry(shape=[2**33, 2**33])}, b"\x00" * 16),
        _file({"tensor": _entry(shape="4")}, b"\x00" * 16), _file({"tensor": _entry("PICKLE")}, b"\x00" * 16),
        _file({"tensor": _entry(), "other": _entry()}, b"\x00" * 16),
        _file({"tensor": {}}), _file({"tensor": None}), _file({"__metadata__": {"a": 1}}),
        _file({"__metadata__": "x"}), _file({"other": _entry()}, b"\x00" * 16), _file(b'{"tensor":1,"tensor":2}'),
        b"PK\x03\x04" + b"\x00" * 100, b"\x80\x04\x95" + b"\x00" * 100, b"\x93NUMPY\x01\x00" + b"\x00" * 100,
    ],
    ids=lambda content: ascii(content[:60]),
)  # fmt: skip
def test_a_tensor_file_that_is_none_is_refused_although_its_hash_fits(folder, refused, content):
    refused(_with_tensors(folder, content))


@pytest.mark.parametrize(
    ("tag", "header", "data"),
    [
        ("!tensor tensor", {"tensor": _entry("F6_E2M3", [8], 0, 6)}, b"\x00" * 6),
        ("!tensor tensor", {"tensor": _entry("F32", [2**63, 0], 0, 0)}, b""),
        ("!tensor tensor", {"tensor": _entry("F32", [2**40, 2**40, 0], 0, 0)}, b""),
        ("!array tensor", {"tensor": _entry("BF16", [8])}, b"\x00" * 16),
        ("!array tensor", {"tensor": _entry("F8_E4M3", [16])}, b"\x00" * 16),
        ("!tensor __metadata__", {"__metadata__": {"a": "b"}, "tensor": _entry()}, b"\x00" * 16),
    ],
)  # fmt: skip
def test_a_tensor_that_cannot_be_what_it_says_is_refused(tmp_path, refused, tag, header, data):
    target = Target()
    save(target, tmp_path / "plain")
    folder = _edited(tmp_path / "plain", "state.yaml", "tensor: null", f"tensor: {tag}")
    refused(_with_tensors(folder, _file(header, data)))


def test_weights_that_are_missing_are_not_made_up(tmp_path, refused):
    """A model without its weights would look like a loaded one."""
    save(Model(), tmp_path / "model")
    _edited(tmp_path / "model", "state.yaml", r"    state_dict:.*$", "")
    refused(tmp_path / "model", names="state.yaml")


def test_weights_of_a_larger_model_do_not_fit_a_smaller_one(tmp_path, refused):
    save(Model(size=3), tmp_path / "small")
    save(Model(size=4), tmp_path / "large")
    for name in ("state.yaml", "tensors.safetensors"):
        shutil.copy(tmp_path / "large" / name, tmp_path / "small" / name)
    seal(tmp_path / "small")
    assert "linear.weight" in refused(tmp_path / "small", names="state.yaml")
