"""The provenance of a run: its environment, the machine of each checkpoint, and a copy of the user's code."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import sonosco_like.version
from sonosco_like.redaction import mask_arguments, mask_secrets_in_urls
from sonosco_like.runs.run_folder import CODE
from sonosco_like.serialization import Origin, replace_file
from sonosco_like.version import __version__

logger = logging.getLogger(__name__)

_PACKAGES = (
    "torch", "torchaudio", "numpy", "librosa", "soundfile", "safetensors", "pyyaml", "pyarrow", "tensorboardX", "click",
)  # fmt: skip

_LOADERS = ("train_data_loader", "val_data_loader", "test_data_loader")
_OF_DATASET = ("features", "normalization", "tokenizer", "cleaner", "max_duration")

VERSION = "sonosco_like.txt"  # in `code/`
_PACKAGE = Path(sonosco_like.version.__file__).parent
_INSTALLED = ("site-packages", "dist-packages")
_LARGEST_SOURCE = 2**20  # bytes

_REMEDIES = {
    "torch": ("The version of torch differs", "install the former one with: pip install 'torch=={was}'"),
    "threads": ("The number of torch's threads differs", "resume with: OMP_NUM_THREADS={was} {command}"),
    "processor": ("The processor differs", "resume on a machine with this one: {was}"),
}


def describe_environment(command: list[str], seed: int) -> dict[str, Any]:
    """Versions, machine, git commit and command line as plain data, for `environment.yaml`."""
    return {
        "command": mask_arguments(command),
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
    """The versions and hardware on which the bits of a result depend; each checkpoint holds them."""
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {"torch": str(torch.__version__), "threads": str(torch.get_num_threads()), "processor": processor}


def origin_of(trainer: Any) -> Origin | None:
    """The run, step, machine and ranking to write into a checkpoint; None if the trainer does not train in a run."""
    run = getattr(trainer.experiment, "id", "")
    if not run:
        return None
    ranked = tuple(trainer.experiment.checkpoints.best_steps)
    return Origin(run, trainer.global_step, computed_with(trainer.parts.device), ranked)


def recogniser_layout(trainer: Any) -> dict[str, Any]:
    """The paths of a recogniser's parts in a saved trainer, and of the averaged weights if it is used with them.

    This plain data is saved in the state of the trainer, so that a reader of a checkpoint need not know its classes.
    """
    datasets = {name: getattr(getattr(trainer, name, None), "dataset", None) for name in _LOADERS}
    loader = next((name for name, each in datasets.items() if getattr(each, "tokenizer", None) is not None), None)
    of_data = {name: f"{loader}.dataset.{name}" for name in _OF_DATASET if loader is not None}
    used = trainer.used_weights.state_dict()
    chosen_by = used.get("kind") if used.get("origin") else used.get("judged")
    is_plain = chosen_by == "plain" and (bool(used.get("origin")) or used.get("judged_at") == trainer.global_step)
    averaged = ["averaging", "state_dict", "weights"] if trainer.averaging is not None and not is_plain else None
    return {"parts": {"model": "model", "decoder": "decoder", **of_data}, "averaged_weights": averaged}


def warn_of_other_bits(before: Mapping[str, str], device: torch.device, command: str) -> None:
    """Warn of each difference to the machine of a checkpoint, and how to resume with `command` to the same bits."""
    now = computed_with(device)
    for name, (kind, remedy) in _REMEDIES.items():
        was = before.get(name, now[name])
        if was != now[name]:
            logger.warning(
                "%s: %s until now, %s from here on. The results will not be bit for bit those of an unbroken run; to "
                "get the same bits, %s.",
                kind, was, now[name], remedy.format(was=was, command=command),
            )  # fmt: skip


@functools.lru_cache(maxsize=1)
def _processor() -> str:
    """The name of the processor and the instruction set that torch uses."""
    name = platform.processor() or platform.machine()
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    except OSError:  # not on Linux
        found = None
    return f"{found.group(1).strip() if found else name} ({torch.backends.cpu.get_cpu_capability()})"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path) -> dict[str, Any] | None:
    """The commit of a git checkout, and whether it has no changes; None if the folder is not in a checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()  # noqa: S603

    try:
        return {"commit": git("rev-parse", "HEAD"), "clean": not git("status", "--porcelain")}
    except (OSError, subprocess.SubprocessError):
        return None


def copy_code(folder: Path, step: int = 0) -> list[Path]:
    """Copy the user's loaded modules into `code/`; returns the copies.

    The user's modules are those that are neither installed nor part of Python or of this package. At a later start,
    modules that differ from the first copy are copied to `code/from-step-N/`, and a warning names them.
    """
    target = folder / CODE
    is_later_start = (target / VERSION).exists()
    sources = {path: _without_passwords(file) for path, file in user_modules().items()}
    sources[Path(VERSION)] = _our_version()
    changed = {path: content for path, content in sources.items() if not _holds(target / path, content)}
    if is_later_start and changed:
        names = ", ".join(path.as_posix() for path in changed)
        target = target / f"from-step-{step:08d}"
        logger.warning("The code has changed since the start of the run: %s. The new code is in %s.", names, target)
    for path, content in changed.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        replace_file(target / path, content)
    return [target / path for path in changed]


def _without_passwords(file: Path) -> bytes:
    text = file.read_bytes().decode(errors="surrogateescape")
    return mask_secrets_in_urls(text).encode(errors="surrogateescape")


def user_modules() -> dict[Path, Path]:
    """The files of the user's loaded modules, by the path that an import looks for: `package/module.py`."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        file = _source_of(module) if name.partition(".")[0] != _PACKAGE.name else None
        if file is None or (_is_installed(os.path.dirname(file)) and not os.path.islink(file)):  # noqa: PTH114, PTH120
            continue
        source = Path(file).resolve()
        if source.is_file() and not _is_installed(str(source.parent)) and source.stat().st_size <= _LARGEST_SOURCE:
            found[_place(name, source)] = source
    return found


def _source_of(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and file.endswith(".py") else None


@functools.cache  # thousands of modules are in a few hundred folders
def _is_installed(folder: str) -> bool:
    place = Path(folder).resolve()
    if any(part in _INSTALLED for part in place.parts):
        return True
    return any(place.is_relative_to(home) for home in _homes())


@functools.cache
def _homes() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple(Path(each).resolve() for each in (_PACKAGE, paths["stdlib"], paths["platstdlib"]))


def _place(name: str, file: Path) -> Path:
    """The path of a module's copy in `code/`. A script, whose module is `__main__`, keeps its file name."""
    if name == "__main__":
        return Path(file.name)
    parts = name.split(".")
    return Path(*parts, "__init__.py") if file.name == "__init__.py" else Path(*parts).with_suffix(".py")


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


@functools.cache
def _our_version() -> bytes:
    """The version of this package and a hash of its sources, which shows whether they were edited."""
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        digest.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return f"sonosco_like {__version__}\nsources {digest.hexdigest()[:16]}\n".encode()
