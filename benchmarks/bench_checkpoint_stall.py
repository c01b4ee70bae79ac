"""How long training stands still for a checkpoint of 30 million parameters with AdamW's moments.

In the background it should cost the copy of the tensors, whatever the disk costs.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_save import Net, Trainer
from benchmarks.results import report_ratio
from benchmarks.timing import print_ratios, take_turns
from sonosco_like.training.saver import CheckpointSaver


def main() -> None:
    """Print the stall of each way to save, beside the bare copy."""
    trainer = Trainer(model=Net())
    for parameter in trainer.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    trainer.optimizer.step()
    moments = trainer.optimizer.state_dict()["state"].values()
    tensors = [*trainer.model.state_dict().values(), *(value for entry in moments for value in entry.values())]
    buffers = [torch.empty_like(tensor).copy_(tensor) for tensor in tensors]
    folder = Path(tempfile.mkdtemp())
    waiting, writing = CheckpointSaver(background=False), CheckpointSaver()

    def copy() -> None:
        for buffer, tensor in zip(buffers, tensors, strict=True):
            buffer.copy_(tensor)

    def fresh_copy() -> list[Any]:
        return [tensor.clone() for tensor in tensors]

    def in_background() -> None:
        writing.save(trainer, folder / "background")

    def disk() -> None:
        writing.wait()

    try:
        seconds = take_turns(
            {
                "copy into memory in use": copy,
                "copy into new memory": fresh_copy,
                "saved in the background": in_background,
                "(its disk, beside training)": disk,
                "saved while training waits": lambda: waiting.save(trainer, folder / "waiting"),
            },
            repeats=9,
        )
        size = sum(tensor.nbytes for tensor in tensors)
        print(f"{size / 1e6:.0f} MB in {len(tensors)} tensors; in the background at most 1.5 x the bare copy wanted")
        print_ratios(seconds, "copy into memory in use")
        what = f"stall for a checkpoint of {size / 1e6:.0f} MB"
        report_ratio(what, seconds, "saved in the background", "copy into memory in use", goal=1.5)
        report_ratio(what, seconds, "saved while training waits", "copy into memory in use")
    finally:
        writing.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
