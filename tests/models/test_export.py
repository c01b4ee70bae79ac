"""Encoder and CTC output leave for other runtimes, with a free time axis."""

from __future__ import annotations

import io

import pytest
import torch

from sonosco_like.models import ExportableEncoder


def exportable(model) -> ExportableEncoder:
    """The model as if trained: ONNX export merges equal weights, which only an untrained model has."""
    torch.manual_seed(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return ExportableEncoder(model)


def arguments(batch) -> tuple[torch.Tensor, torch.Tensor]:
    return batch.features_BTF, batch.feature_lengths_B


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning", "ignore::UserWarning")
def test_onnx_runs_at_lengths_it_was_not_exported_with(model, make_batch):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    encoder, file = exportable(model), io.BytesIO()
    axes = {"features": {0: "B", 1: "T"}, "lengths": {0: "B"}, "output": {0: "B", 1: "S"}, "output_lengths": {0: "B"}}
    torch.onnx.export(
        encoder, arguments(make_batch([40, 33], [3, 3])), file, dynamo=False, dynamic_axes=axes,
        input_names=["features", "lengths"], output_names=["output", "output_lengths"],
    )  # fmt: skip
    features_BTF, lengths_B = arguments(make_batch([77, 50, 61], [3, 3, 3]))
    session = runtime.InferenceSession(file.getvalue())
    output, output_lengths = session.run(None, {"features": features_BTF.numpy(), "lengths": lengths_B.numpy()})
    expected, expected_lengths = encoder(features_BTF, lengths_B)
    torch.testing.assert_close(torch.from_numpy(output), expected.detach(), atol=1e-4, rtol=1e-4)
    assert output_lengths.tolist() == expected_lengths.tolist()


@pytest.mark.parametrize("name", ["tds-ctc", "conformer-ctc"])
def test_torch_export_keeps_the_time_axis_free(name, make_model, make_batch):
    """Recurrent models are left to ONNX: torch.export unrolls them to the length of its example."""
    encoder = exportable(make_model(name))
    shapes = ({1: torch.export.Dim.AUTO}, {})
    program = torch.export.export(encoder, arguments(make_batch([40, 33], [3, 3])), dynamic_shapes=shapes)
    longer = arguments(make_batch([77, 50], [3, 3]))
    output, _ = program.module()(*longer)
    torch.testing.assert_close(output, encoder(*longer)[0], atol=1e-5, rtol=1e-5)
