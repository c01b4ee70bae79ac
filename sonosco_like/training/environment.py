"""Where and with what a run was made, for `environment.yaml`."""

from __future__ import annotations

import functools
import logging
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from sonosco_like.passwords import masked_command
from sonosco_like.version import __version__

_PACKAGES = (
    "torch", "torchaudio", "numpy", "librosa", "soundfile", "safetensors", "pyyaml", "pyarrow", "tensorboardX", "click",
)  # fmt: skip

_REMEDIES = {
    "torch": ("The version of torch differs", "install the former one with: pip install 'torch=={was}'"),
    "threads": ("The number of torch's threads differs", "resume with: OMP_NUM_THREADS={was} {command}"),
    "processor": ("The processor differs", "resume on a machine with this one: {was}"),
}

logger = logging.getLogger(__name__)


def describe_environment(command: list[str], seed: int) -> dict[str, Any]:
    """Versions, machine, commit and command line as plain data."""
    return {
        "command": masked_command(command),
        "folder": Path.cwd().as_posix(),
        "seed": seed,
        "sonosco_like": __version__,
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "machine": {
            "system": platform.platform(),
            "host": platform.node(),
            "processor": platform.machine(),
            "cores": os.cpu_count() or 0,
            "threads": torch.get_num_threads(),
            "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        },
        "git": _git(Path.cwd()),
        "hash_seed": os.environ.get("PYTHONHASHSEED", "random"),
        "executable": Path(sys.executable).name,
    }


def computed_with(device: torch.device) -> dict[str, str]:
    """What the bits of a result depend on beside the config: as said by each checkpoint."""
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {"torch": str(torch.__version__), "threads": str(torch.get_num_threads()), "processor": processor}


def warn_of_other_bits(before: Mapping[str, str], device: torch.device, command: str) -> None:
    """Say what is not as it was when a checkpoint was taken, and how `command`, which resumes, gets the same bits."""
    now = computed_with(device)
    for name, (kind, remedy) in _REMEDIES.items():
        was = before.get(name, now[name])
        if was != now[name]:
            logger.warning(
                "%s: %s until now, %s from here on. The results are not bit for bit those of a run that was never "
                "stopped; to get the same, %s.",
                kind, was, now[name], remedy.format(was=was, command=command),
            )  # fmt: skip


@functools.lru_cache(maxsize=1)
def _processor() -> str:
    """The name of the processor, with the instructions that torch uses of it."""
    name = platform.processor() or platform.machine()
    try:
        told = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    except OSError:  # not on Linux
        told = None
    return f"{told.group(1).strip() if told else name} ({torch.backends.cpu.get_cpu_capability()})"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path) -> dict[str, Any] | None:
    """Commit and cleanness of the checkout we run in, if it is one."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()  # noqa: S603

    try:
        return {"commit": git("rev-parse", "HEAD"), "clean": not git("status", "--porcelain")}
    except (OSError, subprocess.SubprocessError):
        return None
