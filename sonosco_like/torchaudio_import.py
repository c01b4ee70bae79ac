"""`import torchaudio`, also if its compiled part does not fit the installed torch.

The published torchaudio is built for one CUDA version, and its import fails beside a torch for the CPU or for another
CUDA. The parts that we need (spectrograms, filter banks, masking, pretrained encoders) are Python. Other packages, such
as transformers, import a torchaudio that they find, and then fail too. So `import sonosco_like` puts a finder before
Python's own: every import of torchaudio gets the real extension if it loads, otherwise a stand-in for it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import logging
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from sonosco_like.errors import MissingPackageError

_EXTENSION = "torchaudio._extension"
logger = logging.getLogger(__name__)


def import_torchaudio() -> ModuleType:
    """The torchaudio package, with its compiled part if that loads."""
    install_stand_in()
    try:
        return importlib.import_module("torchaudio")
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"torchaudio is not installed ({error}). Install it with: pip install torchaudio"
        ) from None


def install_stand_in() -> None:
    """Make every later import of torchaudio work; this imports nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torchaudio's extension in the usual place, and nothing else."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _EXTENSION:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads the real extension, or fills its module with the stand-in."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._real.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        try:
            self._real.exec_module(module)
        except (ImportError, OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            logger.info("torchaudio runs without its compiled extension (%s); its Python parts suffice.", reason)
            _stand_in(module)


def _stand_in(module: Any) -> None:
    module.__doc__ = "Stands in for torchaudio's compiled part, which does not fit this torch."
    module._IS_TORCHAUDIO_EXT_AVAILABLE = False
    module._IS_ALIGN_AVAILABLE = False
    module._load_lib = lambda name: False
    module._check_cuda_version = lambda: None
    module.fail_if_no_align = _unavailable


def _unavailable(function: Any) -> Any:
    @functools.wraps(function)
    def fail(*args: Any, **kwargs: Any) -> None:
        raise MissingPackageError(
            f"{function.__name__} needs torchaudio's compiled part, which does not fit this torch."
        )

    return fail
