"""Where and with what a run was made, for `environment.yaml`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from sonosco_like.version import __version__

_PACKAGES = (
    "torch", "torchaudio", "numpy", "librosa", "soundfile", "safetensors", "pyyaml", "pyarrow", "tensorboardX", "click",
)  # fmt: skip


def describe_environment(command: list[str], seed: int) -> dict[str, Any]:
    """Versions, machine, commit and command line as plain data."""
    return {
        "command": command,
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
