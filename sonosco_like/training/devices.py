"""The device a process trains on."""

from __future__ import annotations

import torch

from sonosco_like.errors import UsageError


def choose_device(wanted: torch.device | None, local_rank: int = 0, processes: int = 1) -> torch.device:
    """What is wanted, if this machine has it; `cuda` is each process's own GPU, as is the choice if nothing is said."""
    if wanted is None:
        wanted = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted.type == "cuda":
        return _gpu(wanted, local_rank, processes)
    if wanted.type == "mps" and not torch.backends.mps.is_available():
        raise UsageError(_missing(wanted))
    if wanted.type == "mps" and processes > 1:
        raise UsageError("Several processes cannot share one `mps` device: train in one, or with `device: cpu`.")
    if wanted.type not in ("cpu", "mps"):
        _refuse_unknown(wanted)
    return wanted


def _gpu(wanted: torch.device, local_rank: int, processes: int) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if processes > 1 and wanted.index is not None:
        raise UsageError(f"`device: {wanted}` would give all {processes} processes one GPU: `cuda` gives each its own.")
    index = local_rank if wanted.index is None else wanted.index
    if index < count:
        return torch.device("cuda", index)
    if count and processes > 1:
        raise UsageError(f"Process {local_rank} finds no GPU of its own: start at most {count} processes here.")
    raise UsageError(_missing(wanted))


def _refuse_unknown(wanted: torch.device) -> None:
    """Devices of other makers: torch knows best whether they are there."""
    try:
        torch.empty(0, device=wanted)
    except (RuntimeError, NotImplementedError, AssertionError):
        raise UsageError(_missing(wanted)) from None


def _missing(wanted: torch.device) -> str:
    return f"`device` is {wanted}, which this machine does not have; there is {', '.join(devices_here())}."


def devices_here() -> list[str]:
    """The names of the devices of this machine."""
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]
