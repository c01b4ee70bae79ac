"""Every kind of model leaves for other runtimes, with free axes: at sizes that it was not traced with."""

from __future__ import annotations

import pytest
import torch

from sonosco_like.export.front import Front
from sonosco_like.export.graphs import CTCGraph, EncoderGraph
from sonosco_like.export.onnx_format import trace
from sonosco_like.export.torch_format import trace_program

INPUTS = ["features", "input_lengths"]
AXES = {"features": {0: "batch", 1: "time"}, "input_lengths": {0: "batch"}}


def graph_of(model):
    """The model as if trained, with all weights different, as a graph."""
    torch.manual_seed(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    front = Front(None, None)
    return CTCGraph(front, model) if model.has_ctc else EncoderGraph(front, model, ["memory_keys_NHSA"])


def arguments(batch) -> tuple[torch.Tensor, torch.Tensor]:
    return batch.features_BTF, batch.feature_lengths_B


def test_onnx_runs_at_lengths_it_was_not_exported_with(model, make_batch):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    graph = graph_of(model)
    traced = trace(graph, arguments(make_batch([40, 33], [3, 3])), INPUTS, graph.outputs, AXES, opset=17)
    features_BTF, lengths_B = arguments(make_batch([77, 50, 61], [3, 3, 3]))
    session = runtime.InferenceSession(traced.SerializeToString())
    found = session.run(None, {"features": features_BTF.numpy(), "input_lengths": lengths_B.numpy()})
    for name, output, expected in zip(graph.outputs, found, graph(features_BTF, lengths_B), strict=True):
        torch.testing.assert_close(torch.from_numpy(output), expected.detach(), atol=1e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize("name", ["deepspeech2", "deepspeech2-rnn-streaming", "las-frames-per-label", "conformer-ctc"])
def test_torch_export_keeps_the_axes_free(name, make_model, make_batch):
    graph = graph_of(make_model(name))
    program = trace_program(graph, arguments(make_batch([40, 33], [3, 3])), INPUTS, AXES)
    for frames in ([77, 50, 61], [25]):
        batch = arguments(make_batch(frames, [3] * len(frames)))
        for output, expected in zip(program.module()(*batch), graph(*batch), strict=True):
            torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
