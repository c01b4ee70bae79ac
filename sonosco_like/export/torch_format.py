"""The format `torch-export`: programs that `torch.export.load` reads without this package."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.export.formats import ExportSettings
from sonosco_like.export.graph_format import Axes, GraphFormat
from sonosco_like.export.graphs import DecoderGraph
from sonosco_like.export.onnx_format import quiet, tracing_error
from sonosco_like.inference import TrainedRecogniser
from sonosco_like.serialization import write_file

_METADATA = "metadata.json"  # inside the file
_RECURRENT = (torch.ops.aten.lstm.input, torch.ops.aten.gru.input, torch.ops.aten.rnn_relu.input)
_KEYS = (
    torch._C.DispatchKey.CompositeImplicitAutograd,
    torch._C.DispatchKey.Autograd,
    torch._C.DispatchKey.Meta,
)


class TorchFormat(GraphFormat):
    """`model.pt2`, or `encoder.pt2` and `decoder.pt2`."""

    suffix = ".pt2"
    engine = "torch"

    def __init__(self, recogniser: TrainedRecogniser, settings: ExportSettings) -> None:
        super().__init__(recogniser, settings)
        if settings.int8:
            raise UsageError("Weights of 8 bits are written by --format onnx and sherpa only: leave out --int8.")

    def trace(
        self, graph: nn.Module, examples: Sequence[Tensor], inputs: list[str], outputs: list[str], axes: Axes
    ) -> Any:
        return trace_program(graph, examples, inputs, axes), inputs, outputs

    def inputs_of(self, traced: Any, inputs: list[str]) -> list[str]:
        return inputs

    def write_graph(self, traced: Any, path: Path, metadata: Mapping[str, str]) -> None:
        program, inputs, outputs = traced
        content = io.BytesIO()
        described = {**metadata, "inputs": json.dumps(inputs), "outputs": json.dumps(outputs)}
        torch.export.save(program, content, extra_files={_METADATA: json.dumps(described)})
        write_file(path, content.getvalue())


def trace_program(graph: nn.Module, examples: Sequence[Tensor], inputs: Sequence[str], axes: Axes) -> Any:
    """The program of a graph, with free `axes` of its inputs."""
    free: list[Any] = [dict.fromkeys(axes.get(name, ()), torch.export.Dim.AUTO) for name in inputs]
    shapes = (free[0], tuple(free[1:])) if isinstance(graph, DecoderGraph) else tuple(free)
    try:
        with quiet(), torch.no_grad(), _whole_recurrent_layers():
            return torch.export.export(graph, tuple(examples), dynamic_shapes=shapes)
    except Exception as error:  # whatever an operation of the user's own model raises
        raise tracing_error(graph, "a program of torch.export", error) from error


@contextmanager
def _whole_recurrent_layers() -> Iterator[None]:
    """Keep recurrent layers as one operation with a free time axis.

    torch.export keeps the operation, but finds the shape of its output by a loop over the frames of the example, and so
    fixes their number. Here the shape is given instead.
    """
    kept = [dict(operation.py_kernels) for operation in _RECURRENT]
    for operation in _RECURRENT:
        operation.py_kernels.update(dict.fromkeys(_KEYS, _recurrent_shapes))
        operation._dispatch_cache.clear()
    try:
        yield
    finally:
        for operation, kernels in zip(_RECURRENT, kept, strict=True):
            operation.py_kernels.clear()
            operation.py_kernels.update(kernels)
            operation._dispatch_cache.clear()


def _recurrent_shapes(frames_BTD: Tensor, start: Any, *settings: Any) -> tuple[Tensor, ...]:
    """Empty outputs of a layer in one direction, batch first, as the models here call it."""
    states = start if isinstance(start, (list, tuple)) else [start]
    outputs_BTK = frames_BTD.new_empty(*frames_BTD.shape[:2], states[0].shape[2])
    return (outputs_BTK, *map(torch.empty_like, states))
