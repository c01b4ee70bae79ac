"""The configs that are shipped, trained by a benchmark on a corpus of its own."""

from __future__ import annotations

from pathlib import Path

from sonosco_like.training import Experiment, read_experiment

FOLDER = Path(__file__).parents[1] / "configs"


def read_config(name: str, corpus: Path, *overrides: str) -> Experiment:
    """The experiment of `configs/<name>.yaml` with the corpus in this folder, and what else is to be changed."""
    manifests = [
        f"trainer.{part}_data_loader.dataset.manifest={str(corpus / part) + '.jsonl'!r}" for part in ("train", "val")
    ]
    return read_experiment(FOLDER / f"{name}.yaml", [f"corpus.folder={str(corpus)!r}", *manifests, *overrides])
