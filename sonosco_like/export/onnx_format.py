"""The format `onnx`: one graph for CTC, or encoder and decoder step for attention, and `transcribe.py` beside them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.export.description import CTC_GREEDY, metadata_of, search_settings
from sonosco_like.export.formats import ExportFormat, ExportSettings, Numbers, Runner, example_inputs
from sonosco_like.export.front import Front, make_normalization, make_transform
from sonosco_like.export.graphs import (
    NEW,
    CTCGraph,
    DecoderExample,
    DecoderGraph,
    EncoderGraph,
    RecogniserGraph,
    free_axes,
)
from sonosco_like.export.onnx_files import check_opset, trace, write_int8, write_model
from sonosco_like.export.readme import onnx_readme
from sonosco_like.inference import TrainedRecogniser
from sonosco_like.serialization import write_file

_SCRIPT = "transcribe.py"
_BATCH, _TIME, _ROWS, _FRAMES = "batch", "time", "rows", "frames"


class OnnxFormat(ExportFormat):
    """`model.onnx`, or `encoder.onnx` and `decoder.onnx`; with `int8` also `*.int8.onnx`."""

    packages = ("onnx", "onnxruntime")

    def __init__(self, recogniser: TrainedRecogniser, settings: ExportSettings) -> None:
        super().__init__(recogniser, settings)
        check_opset(settings.opset)
        takes_waveform = settings.takes == "waveform"
        transform = make_transform(recogniser.features) if takes_waveform else None
        self.least = transform.least_samples if transform is not None else 1
        self.front = Front(transform, make_normalization(recogniser.normalization))
        self.is_ctc = search_settings(recogniser.decoder)["kind"] == CTC_GREEDY
        self.graph: RecogniserGraph | None = None
        self.repeats = 1

    def write(self, folder: Path) -> None:
        metadata = metadata_of(self.recogniser, self.settings.takes, self.least)
        for name, model in (self._ctc() if self.is_ctc else self._attention()).items():
            path = folder / f"{name}.onnx"
            write_model(model, path, metadata)
            if self.settings.int8:
                write_int8(path)
        self.write_beside(folder, metadata)

    def write_beside(self, folder: Path, metadata: Mapping[str, str]) -> None:
        """Write what the graphs need beside them."""
        write_file(folder / _SCRIPT, (Path(__file__).parent / _SCRIPT).read_bytes())
        write_file(folder / "README.md", onnx_readme(metadata, self.settings, self.is_ctc, self.recogniser).encode())

    def runners(self, folder: Path) -> list[Runner]:
        names = ["model.onnx"] if self.is_ctc else ["encoder.onnx", "decoder.onnx"]
        found = [self._runner(folder, " and ".join(names), int8=False)]
        if self.settings.int8:
            found.append(self._runner(folder, " and ".join(names).replace(".onnx", ".int8.onnx"), int8=True))
        return found

    def expected_numbers(self, waveform_N: NDArray[np.float32]) -> Numbers:
        """The outputs of the graphs as torch computes them, from the features of the recogniser."""
        batch = self.recogniser.batch([torch.from_numpy(waveform_N)])
        assert self.graph is not None
        with torch.no_grad():
            outputs = self.graph.after_front(batch.features_BTF, batch.feature_lengths_B)
        found = {name: each.numpy()[0] for name, each in zip(self.graph.outputs, outputs, strict=True)}
        return {"features": batch.features_BTF[0].numpy(), **found}

    def _runner(self, folder: Path, name: str, int8: bool) -> Runner:
        script = importlib.import_module(f"{__package__}.transcribe")
        recogniser = script.Recogniser(str(folder), int8=int8)

        def texts(waveforms: Any) -> list[str]:
            found: list[str] = recogniser.texts([self.graph_input(each) for each in waveforms])
            return found

        def numbers(waveform_N: NDArray[np.float32]) -> Numbers:
            given = self.graph_input(waveform_N)
            with torch.no_grad():
                features_1TF, _ = self.front(torch.from_numpy(given)[None], torch.tensor([len(given)]))
            found = {name: each[0] for name, each in recogniser.run([given]).items()}
            return {"features": features_1TF[0].numpy(), **found}

        def search(found: Numbers) -> str:
            labels = recogniser.labels({name: np.asarray(each)[None] for name, each in found.items()}, 0)
            return " ".join("".join(recogniser.texts_of_labels[label] for label in labels).split())

        return Runner(f"{name} in onnxruntime", not int8, texts, numbers, search)

    def _ctc(self) -> dict[str, Any]:
        self.graph = CTCGraph(self.front, self.recogniser.model, self.repeats)
        return {"model": self._trace_encoder(self.graph, {})}

    def _attention(self) -> dict[str, Any]:
        """Encoder and decoder; the encoder gives of the state what the decoder reads."""
        model = self.recogniser.model
        with torch.no_grad():
            encode = [model.encode(*self.front(*each)) for each in self._examples]
        one, other = (DecoderExample.of(model, *each) for each in encode)
        axes = {name: free_axes(one.tensors[name], other.tensors[name], (_ROWS, _FRAMES)) for name in one.states}
        decoder = self._trace_decoder(DecoderGraph(model, one), one, axes)
        states = [each.name for each in decoder.graph.input if each.name in axes]
        self.graph = EncoderGraph(self.front, model, states)
        return {"encoder": self._trace_encoder(self.graph, axes), "decoder": decoder}

    @property
    def _examples(self) -> list[tuple[Tensor, Tensor]]:
        return example_inputs(self.recogniser, self.settings.takes)

    def _trace_encoder(self, graph: RecogniserGraph, states: Mapping[str, Mapping[int, str]]) -> Any:
        takes = self.settings.takes
        axes: dict[str, Mapping[int, str]] = {
            takes: {0: _BATCH, 1: _TIME},
            "input_lengths": {0: _BATCH},
            "log_probs": {0: _BATCH, 1: _FRAMES},
            "lengths": {0: _BATCH},
            **{name: {axis: _BATCH if axis == 0 else each for axis, each in a.items()} for name, a in states.items()},
        }
        used = {name: each for name, each in axes.items() if name in (takes, "input_lengths", *graph.outputs)}
        return trace(graph, self._examples[0], [takes, "input_lengths"], graph.outputs, used, self.settings.opset)

    def _trace_decoder(self, graph: DecoderGraph, one: DecoderExample, axes: Mapping[str, Mapping[int, str]]) -> Any:
        labels_N = torch.ones(len(next(iter(one.tensors.values()))), dtype=torch.int64)
        outputs = ["log_probs", "attention", *(NEW + name for name in one.changed)]
        free = {
            **axes,
            **{NEW + name: axes[name] for name in one.changed},
            "labels": {0: _ROWS},
            "log_probs": {0: _ROWS},
            "attention": {0: _ROWS, 2: _FRAMES},
        }
        examples = (labels_N, *one.tensors.values())
        return trace(graph, examples, ["labels", *one.states], outputs, free, self.settings.opset)
