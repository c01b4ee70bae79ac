"""Export of a trained recogniser for use without this package: ONNX, sherpa-onnx and torch.export, each verified.

`sonosco_like.export(run, ...)` is the function of that name, whether this package was imported before or not.
"""

import sys
from types import ModuleType
from typing import Any

from sonosco_like.export.exporter import FORMATS, Exported, FormatExporter, export
from sonosco_like.export.reader import open_export
from sonosco_like.inference.exporters import EXPORTERS, OPENERS

__all__ = ["FORMATS", "Exported", "export"]


class _CallablePackage(ModuleType):
    """The package has the name of its function: an import of the package must not hide the function."""

    def __call__(self, *arguments: Any, **options: Any) -> Exported:
        return export(*arguments, **options)


EXPORTERS.update({name: FormatExporter(name) for name in FORMATS})
OPENERS.append(open_export)
sys.modules[__name__].__class__ = _CallablePackage
