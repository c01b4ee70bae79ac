"""The format `onnx`: graphs for onnxruntime with features and normalization inside, also with small weights."""

from __future__ import annotations

import importlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.errors import MissingPackageError, UsageError, as_sentence
from sonosco_like.export.formats import ExportSettings
from sonosco_like.export.graph_format import Axes, GraphFormat
from sonosco_like.inference import TrainedRecogniser
from sonosco_like.serialization import write_file

OPSETS = range(14, 21)  # below 14 some operations of our models are missing, above 20 torch's tracing exporter ends
_FRONT = "/front/"  # the scope of features and normalization, whose constants are no weights
_SMALL_KINDS = ["MatMul", "Gemm", "LSTM"]


def require_packages(*names: str) -> None:
    """Refuse an export without the packages it needs."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            package = name.replace("_", "-")
            raise MissingPackageError(
                f"The export needs the package {package}. Install it with: pip install 'sonosco_like[export]'"
            ) from None


def check_opset(opset: int) -> None:
    """Refuse a version of ONNX's operators that cannot be written."""
    if opset not in OPSETS:
        raise UsageError(f"`opset` must be from {OPSETS[0]} to {OPSETS[-1]}, got {opset}.")


def trace(
    graph: nn.Module,
    examples: Sequence[Tensor],
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    opset: int,
) -> Any:
    """The ONNX model of a graph, with free `axes` of its inputs and outputs.

    Tracing keeps a recurrent layer as one operation with a free time axis; torch's other exporter does not.
    """
    content = io.BytesIO()
    export: Any = torch.onnx.export  # its annotations do not know that tracing also writes to a stream
    with quiet():
        try:
            export(
                graph, tuple(examples), content, dynamo=False, opset_version=opset,
                input_names=list(inputs), output_names=list(outputs), dynamic_axes=dict(axes),
            )  # fmt: skip
        except Exception as error:  # whatever an operation of the user's own model raises
            raise tracing_error(graph, "ONNX", error) from error
    return importlib.import_module("onnx").load_model_from_string(content.getvalue())


def tracing_error(graph: nn.Module, form: str, error: Exception) -> UsageError:
    """The error for a model that cannot be traced."""
    model = type(getattr(graph, "model", getattr(graph, "decoder", graph))).__name__
    reason = (str(error).strip().splitlines() or [""])[0][:300]
    return UsageError(
        f"{model} cannot be written as {form}: {type(error).__name__}: {as_sentence(reason)} Its `encode`, "
        f"`ctc_logits` and decoder must be made of operations on tensors that torch can trace."
    )


def write_model(model: Any, path: Path, metadata: Mapping[str, str]) -> None:
    """Write an ONNX model with its metadata."""
    importlib.import_module("onnx").helper.set_model_props(model, dict(metadata))
    model.producer_name = "sonosco_like"
    write_file(path, model.SerializeToString())


def write_int8(path: Path) -> Path:
    """Write the same model with weights of 8 bits, which are about a quarter as large; features stay exact."""
    onnx, quantization = importlib.import_module("onnx"), importlib.import_module("onnxruntime.quantization")
    model = onnx.load(path)
    left_out = [node.name for node in model.graph.node if node.name.startswith(_FRONT)]
    small = path.with_suffix(".int8.onnx")
    with quiet():
        quantization.quantize_dynamic(model, small, op_types_to_quantize=_SMALL_KINDS, nodes_to_exclude=left_out)
    return small


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the warnings of the tools, which are about how they work and not about what the user does."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


class OnnxFormat(GraphFormat):
    """`model.onnx`, or `encoder.onnx` and `decoder.onnx`; with `int8` also `*.int8.onnx`."""

    packages: tuple[str, ...] = ("onnx", "onnxruntime")
    suffix = ".onnx"
    engine = "onnxruntime"

    def __init__(self, recogniser: TrainedRecogniser, settings: ExportSettings) -> None:
        super().__init__(recogniser, settings)
        check_opset(settings.opset)

    def trace(
        self, graph: nn.Module, examples: Sequence[Tensor], inputs: list[str], outputs: list[str], axes: Axes
    ) -> Any:
        return trace(graph, examples, inputs, outputs, axes, self.settings.opset)

    def inputs_of(self, traced: Any, inputs: list[str]) -> list[str]:
        return [each.name for each in traced.graph.input if each.name in inputs]

    def write_graph(self, traced: Any, path: Path, metadata: Mapping[str, str]) -> None:
        write_model(traced, path, metadata)
        if self.settings.int8:
            write_int8(path)
