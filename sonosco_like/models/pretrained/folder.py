"""A folder of foreign weights as the Hugging Face hub has it: `config.json`, and tensors as safetensors.

The folder is not trusted. Nothing in it can run: JSON and safetensors hold numbers and texts only. Files that would
have to be unpickled are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sonosco_like.errors import DataError, UsageError, as_sentence, list_some
from sonosco_like.untrusted_files import check_regular_file, read_limited

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_PREPROCESSOR, _PROCESSOR = "preprocessor_config.json", "processor_config.json"
_VOCABULARY, _TOKENIZER = "vocab.json", "tokenizer_config.json"
_MOST_CONFIG, _MOST_INDEX, _MOST_README = 16 << 20, 64 << 20, 1 << 20
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".nemo", ".tar", ".h5", ".msgpack")
_LFS = b"version https://git-lfs"
_OF_A_RUN = ("checkpoints", "config.yaml", "trainer.yaml", "state.yaml")
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_MOST_LISTED = 8


class WeightFolder:
    """The config and the tensors of a folder; a tensor is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        _check_folder(folder)
        self._files = self._open_files()
        self.config = read_json(folder / CONFIG, _MOST_CONFIG)

    @property
    def names(self) -> list[str]:
        """The names of all tensors, as the files have them."""
        return list(self._files)

    @property
    def preprocessor(self) -> dict[str, Any]:
        """What the folder says about its features; empty if it says nothing."""
        nested = self._optional(_PROCESSOR).get("feature_extractor")  # where newer versions write it
        return self._optional(_PREPROCESSOR) or (nested if isinstance(nested, dict) else {})

    @property
    def vocabulary(self) -> dict[str, int]:
        """The label of each text of the output layer; empty if the folder has none, or one for each language."""
        found = self._optional(_VOCABULARY)
        return found if all(type(label) is int for label in found.values()) else {}

    @property
    def word_delimiter(self) -> str:
        """The text that stands for a space in the vocabulary."""
        return str(self._optional(_TOKENIZER).get("word_delimiter_token") or "|")

    @property
    def licence(self) -> str:
        """The licence as the config or the first lines of the README name it; empty if neither does."""
        path = self.path / "README.md"
        named = self.config.get("license")
        if not isinstance(named, str) and path.exists():
            front = re.match(r"---\s*\n(.*?)\n---", read_limited(path, _MOST_README).decode("utf-8", "replace"), re.S)
            found = re.search(r"^license:[ \t]*(.+)$", front[1], re.M) if front else None
            named = found[1] if found else ""
        return "".join(each for each in str(named or "") if each.isprintable()).strip(" '\"")[:100]

    @property
    def files(self) -> list[Path]:
        """The files of the tensors."""
        return [self.path / WEIGHTS] if (self.path / WEIGHTS).exists() else sorted(self.path.glob("*.safetensors"))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, which is not read for it."""
        return tuple(self._files[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """The type of the numbers of a tensor, such as F32 or BF16."""
        return str(self._files[name].get_slice(name).get_dtype())

    def _optional(self, name: str) -> dict[str, Any]:
        path = self.path / name
        return read_json(path, _MOST_CONFIG) if path.exists() else {}

    def read(self, name: str) -> Tensor:
        """A tensor as float32."""
        try:
            tensor: Tensor = self._files[name].get_tensor(name)
        except (SafetensorError, OSError, TypeError, ValueError, RuntimeError) as error:
            raise UsageError(f"The tensor {name!r} in {self.path} cannot be read: {error}") from error
        if tensor.dtype not in _FLOATS:
            raise UsageError(
                f"The tensor {name!r} in {self.path} holds {str(tensor.dtype).removeprefix('torch.')}; floats of 16, "
                "32 or 64 bits are expected. Weights of 8 bits and fewer cannot be trained: take the folder that they "
                "were made from."
            )
        return tensor.to(torch.float32, copy=True)  # of its own: the file may change or vanish

    def _open_files(self) -> dict[str, Any]:
        """The open file of each tensor, by name."""
        if (self.path / WEIGHTS).exists():
            return _open_file(self.path / WEIGHTS)
        if (self.path / INDEX).exists():
            return self._open_shards(_shards(self.path / INDEX))
        raise UsageError(_no_weights(self.path))

    def _open_shards(self, shards: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for file in dict.fromkeys(shards.values()):
            opened = _open_file(self.path / file)
            promised = {name for name, its_file in shards.items() if its_file == file}
            if wrong := promised.symmetric_difference(opened):
                raise UsageError(
                    f"{self.path / INDEX} and {file} do not agree about {len(wrong)} tensors: "
                    f"{list_some(sorted(wrong), _MOST_LISTED)}. The folder is not whole: fetch it again."
                )
            found |= opened
        return found


def is_foreign(path: Path) -> bool:
    """Whether a path looks like weights of another project, readable or not, and not like a run folder."""
    if not path.is_dir():
        return path.suffix in (*_PICKLES, ".safetensors")
    names = [each.name for each in path.iterdir()]
    if any(name in _OF_A_RUN for name in names):
        return False
    return any(name in (CONFIG, WEIGHTS, INDEX) or name.endswith(_PICKLES) for name in names)


def read_json(path: Path, most: int = _MOST_CONFIG) -> dict[str, Any]:
    """The object in a JSON file; anything else is a UsageError."""
    try:
        content = json.loads(read_limited(path, most))
    except FileNotFoundError:
        raise UsageError(f"{path} is missing: a folder of weights has a {path.name}. Fetch it.") from None
    except (DataError, OSError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {as_sentence(str(error).splitlines()[0])} Fetch it again.") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} must hold an object, {{...}}, got a {type(content).__name__}.")
    return content


def _check_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    if folder.suffix in _PICKLES:
        raise UsageError(_pickle_refusal(folder, [folder.name]))
    what = "is a file" if folder.exists() else "does not exist"
    raise UsageError(f"{folder} {what}; give the folder that holds {CONFIG} and {WEIGHTS}.")


def _open_file(path: Path) -> dict[str, Any]:
    """The open file of each of its tensors, by name."""
    try:
        check_regular_file(path)
        file: Any = safe_open(path, framework="pt")
        return dict.fromkeys(file.keys(), file)
    except FileNotFoundError:
        raise UsageError(f"{path} is missing, and {path.parent / INDEX} needs it. Fetch the folder again.") from None
    except (DataError, SafetensorError, OSError, RuntimeError, ValueError) as error:
        if _is_pointer(path):
            raise UsageError(
                f"{path} is a pointer of Git LFS, and the weights were not fetched: run `git lfs pull` in the folder."
            ) from error
        raise UsageError(f"{path} is not a whole safetensors file: {as_sentence(error)} Fetch it again.") from error


def _is_pointer(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_LFS)) == _LFS


def _shards(index: Path) -> dict[str, str]:
    """The file of each tensor, by the index."""
    content = read_json(index, _MOST_INDEX)
    shards = content.get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise UsageError(f"{index} has no `weight_map` with the file of each tensor.")
    for file in shards.values():
        if not isinstance(file, str) or not re.fullmatch(r"[\w.-]+\.safetensors", file):
            raise UsageError(
                f"{index} names the file {str(file)[:200]!r}. Only safetensors files of the folder itself are read."
            )
    return shards


def _no_weights(folder: Path) -> str:
    if pickles := [each.name for each in sorted(folder.iterdir()) if each.suffix in _PICKLES]:
        return _pickle_refusal(folder, pickles)
    others = [each.name for each in sorted(folder.glob("*.safetensors"))]
    seen = f" There is {list_some(others, 3)}, whose name is another." if others else ""
    return f"{folder} holds no weights: {WEIGHTS}, or {INDEX} with its files, is expected.{seen}"


def _pickle_refusal(path: Path, names: Iterable[str]) -> str:
    listed = list_some(list(names), 3)
    remedy = (
        "Open the model in NVIDIA's NeMo, in an environment made for it, and save its `state_dict()` by "
        "safetensors.torch.save_file"
        if ".nemo" in listed
        else 'Where you trust the file, install transformers and run: python -c "from transformers import AutoModel; '
        "AutoModel.from_pretrained('FOLDER').save_pretrained('NEW_FOLDER')\"; AutoModelForCTC keeps an output layer "
        "over characters. Then copy the other JSON files, such as vocab.json, into the new folder"
    )
    return (
        f"{path} has its weights in a form that can run a program when it is opened ({listed}), so it is not read; "
        f"{WEIGHTS} holds nothing but numbers. Many models have that file too: fetch it. {remedy}."
    )
