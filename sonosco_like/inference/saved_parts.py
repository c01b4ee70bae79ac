"""Where a saved trainer keeps the parts of a recogniser, and which weights it is used with.

The trainer writes both as plain data into its state, so that nothing here depends on how a trainer is built. The data,
the optimizer's moments and the callbacks are not read: a run can be used on a machine that never had its corpus.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.serialization import Saved

RECOGNISER = "recogniser"
"""The entry in the `state_dict` of a trainer: `parts` are paths by name, `averaged_weights` an address or nothing."""
AVERAGED, LAST = "averaged", "last"
_LOADERS = ("train_data_loader", "val_data_loader", "test_data_loader")
_OF_DATASET = ("features", "normalization", "tokenizer", "cleaner", "max_duration")


class SavedParts:
    """The parts of a recogniser in a saved trainer, or in a folder that an older `ExportForInference` wrote."""

    def __init__(self, saved: Saved) -> None:
        self.folder: Path = saved.folder
        self._saved = saved
        written = saved.state("", "state_dict", RECOGNISER) or _layout_of_older_version(saved)
        self._paths: dict[str, str] = written["parts"]
        self._averaged: list[str] | None = written.get("averaged_weights")

    def read(self, kinds: dict[str, Any]) -> dict[str, Any]:
        """The parts of the folder by name, each read as its type in `kinds`; raises UsageError without a model."""
        present = {name: path for name, path in self._paths.items() if name in kinds and self._saved.has(path)}
        if "model" not in present:
            raise UsageError(f"{self.folder} cannot be used to transcribe: it must hold a trainer with a `model`.")
        found = self._saved.read_all({path: kinds[name] for name, path in present.items()})
        return dict(zip(present, found, strict=True))

    def averaged_weights(self) -> dict[str, Tensor]:
        """The moving average of the weights if the trainer is used with it; else nothing."""
        return dict(self._saved.state(*self._averaged) or {}) if self._averaged else {}

    @property
    def label(self) -> str:
        """The label that an older export gives its weights; the weights of a trainer are the `last` ones."""
        written = self._saved.get("weights")
        return written if isinstance(written, str) else LAST


def _layout_of_older_version(saved: Saved) -> dict[str, Any]:
    """The layout of a folder that does not record it, from the names of the fields of older trainers."""
    loader = next((name for name in _LOADERS if saved.has(f"{name}.dataset.tokenizer")), None)
    of_data = {name: f"{loader}.dataset.{name}" for name in _OF_DATASET if loader is not None}
    used = saved.state("", "state_dict", "used_weights") or {}
    averaged = None if _is_used_plain(used, saved) else ["averaging", "state_dict", "weights"]
    return {"parts": {"model": "model", "decoder": "decoder", **of_data}, "averaged_weights": averaged}


def _is_used_plain(used: dict[str, Any], saved: Saved) -> bool:
    """Whether a measure of the weights themselves, and not of their average, chose these weights or this step."""
    if used.get("origin"):
        return used.get("kind") == "plain"
    step = saved.state("", "position", "global_step") or saved.state("", "global_step")  # where version 1 had it
    return used.get("judged") == "plain" and used.get("judged_at") == step
