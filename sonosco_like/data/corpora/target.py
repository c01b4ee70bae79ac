"""The folder a corpus is made in: claimed before, and whole only when its manifests are there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from sonosco_like.data.manifest import write_manifest
from sonosco_like.errors import UsageError
from sonosco_like.records import Utterance

SPLITS = ("train", "val", "test")


def claim_target(target: Path, force: bool, kept: Collection[str] = ()) -> None:
    """Make the folder, or refuse one that holds anything beside the names in `kept`, unless forced.

    Manifests of a former run are removed at once: from here on the folder is not whole until new ones are written.
    """
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file; a folder is needed to write the corpus into.")
    present = sorted(path.name for path in target.iterdir() if path.name not in kept) if target.exists() else []
    if present and not force:
        raise UsageError(
            f"The folder {target} is not empty (it holds {present[0]!r}). "
            "Choose another one, or write over it with --force."
        )
    target.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        manifest_path(target, split).unlink(missing_ok=True)


def write_manifests(target: Path, splits: Mapping[str, Iterable[Utterance]]) -> dict[str, Path]:
    """Write one manifest per split, `test` last: where all are, the corpus is whole."""
    return {split: write_manifest(manifest_path(target, split), splits[split]) for split in SPLITS if split in splits}


def manifest_path(target: Path, split: str) -> Path:
    """Where the manifest of a split is."""
    return target / f"{split}.jsonl"
