"""`import torchaudio`, also where its compiled part does not fit the installed torch.

The published torchaudio is built for one CUDA version and refuses to import beside a CPU build of torch, or one for
another CUDA. All we need of it (filter banks, resampling, masking, Kaldi features) is Python. So the real extension is
tried first, and only if it fails, a stand-in says "not compiled" in its place.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from types import ModuleType
from typing import Any

from sonosco_like.errors import MissingPackageError

_EXTENSION = "torchaudio._extension"
logger = logging.getLogger(__name__)


@functools.cache
def import_torchaudio() -> ModuleType:
    """The torchaudio package, with its compiled part if that loads."""
    try:
        return importlib.import_module("torchaudio")
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"torchaudio is not installed ({error}). Install it with: pip install torchaudio"
        ) from None
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    logger.info("torchaudio runs without its compiled extension (%s); its Python parts are all we need.", reason)
    for name in [name for name in sys.modules if name == "torchaudio" or name.startswith("torchaudio.")]:
        del sys.modules[name]
    sys.modules[_EXTENSION] = _stand_in()
    return importlib.import_module("torchaudio")


def _stand_in() -> ModuleType:
    module: Any = ModuleType(_EXTENSION, "Stands in for torchaudio's compiled part, which does not fit this torch.")
    module._IS_TORCHAUDIO_EXT_AVAILABLE = False
    module._IS_ALIGN_AVAILABLE = False
    module._load_lib = lambda name: False
    module._check_cuda_version = lambda: None
    module.fail_if_no_align = _unavailable
    return module  # type: ignore[no-any-return]


def _unavailable(function: Any) -> Any:
    @functools.wraps(function)
    def fail(*args: Any, **kwargs: Any) -> None:
        raise MissingPackageError(
            f"{function.__name__} needs torchaudio's compiled part, which does not fit this torch."
        )

    return fail
