"""The format `onnx`: graphs with features and normalization inside, for onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sonosco_like.export.formats import ExportSettings
from sonosco_like.export.graph_format import Axes, GraphFormat
from sonosco_like.export.onnx_files import check_opset, trace, write_int8, write_model
from sonosco_like.inference import TrainedRecogniser


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
