"""What the formats of graphs share: the graphs of a recogniser, `transcribe.py`, which runs them, and `README.md`."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

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
from sonosco_like.inference import TrainedRecogniser
from sonosco_like.serialization import write_file

_SCRIPT = "transcribe.py"
_BATCH, _TIME, _ROWS, _FRAMES = "batch", "time", "rows", "frames"
Axes = Mapping[str, Mapping[int, str]]


class GraphFormat(ExportFormat):
    """One graph for CTC, `model`; or two for attention, `encoder` and `decoder`; and `transcribe.py` beside them."""

    suffix: str
    engine: str

    def __init__(self, recogniser: TrainedRecogniser, settings: ExportSettings) -> None:
        super().__init__(recogniser, settings)
        transform = make_transform(recogniser.features) if settings.takes == "waveform" else None
        of_encoder = getattr(getattr(recogniser.model, "encoder", None), "least_samples", 1)
        self.least = max(of_encoder, transform.least_samples if transform is not None else 1)
        self.front = Front(transform, make_normalization(recogniser.normalization))
        self.is_ctc = search_settings(recogniser.decoder)["kind"] == CTC_GREEDY
        self.graph: RecogniserGraph | None = None
        self.repeats = 1

    @abstractmethod
    def trace(
        self, graph: nn.Module, examples: Sequence[Tensor], inputs: list[str], outputs: list[str], axes: Axes
    ) -> Any:
        """The graph in this format, with free axes of these inputs and outputs."""

    @abstractmethod
    def inputs_of(self, traced: Any, inputs: list[str]) -> list[str]:
        """Those of the inputs that a traced graph reads."""

    @abstractmethod
    def write_graph(self, traced: Any, path: Path, metadata: Mapping[str, str]) -> None:
        """Write a traced graph to a file."""

    def write(self, folder: Path) -> None:
        metadata = metadata_of(self.recogniser, self.settings.takes, self.least)
        for name, traced in (self._ctc() if self.is_ctc else self._attention()).items():
            self.write_graph(traced, folder / f"{name}{self.suffix}", metadata)
        self.write_beside(folder, metadata)

    def write_beside(self, folder: Path, metadata: Mapping[str, str]) -> None:
        """Write what the graphs need beside them."""
        write_file(folder / _SCRIPT, (Path(__file__).parent / _SCRIPT).read_bytes())
        names = [f"{name}{self.suffix}" for name in (["model"] if self.is_ctc else ["encoder", "decoder"])]
        write_file(folder / "README.md", graphs_readme(metadata, self.settings, names, self.engine).encode())

    def runners(self, folder: Path) -> list[Runner]:
        return [self.runner(folder, int8) for int8 in ([False, True] if self.settings.int8 else [False])]

    def expected_numbers(self, waveform_N: NDArray[np.float32]) -> Numbers:
        """The outputs of the graphs as torch computes them, from the features of the recogniser."""
        batch = self.recogniser.batch([torch.from_numpy(waveform_N)])
        assert self.graph is not None
        with torch.no_grad():
            outputs = self.graph.after_front(batch.features_BTF, batch.feature_lengths_B)
        found = {name: each.numpy()[0] for name, each in zip(self.graph.outputs, outputs, strict=True)}
        return {"features": batch.features_BTF[0].numpy(), **found}

    def runner(self, folder: Path, int8: bool) -> Runner:
        """Runs the graphs by the script of the folder."""
        script = importlib.import_module(f"{__package__}.transcribe")
        recogniser = script.Recogniser(str(folder), int8=int8)

        def texts(waveforms: Any) -> list[str]:
            found: list[str] = recogniser.texts([self.graph_input(each) for each in waveforms])
            return found

        def numbers(waveform_N: NDArray[np.float32]) -> Numbers:
            given = self.graph_input(waveform_N)
            missing = max(0, self.least - len(given))
            padded = np.pad(given, [(0, missing), *[(0, 0)] * (given.ndim - 1)])
            with torch.no_grad():
                features_1TF, lengths_1 = self.front(torch.from_numpy(padded)[None], torch.tensor([len(given)]))
            found = {name: each[0] for name, each in recogniser.run([given]).items()}
            return {"features": features_1TF[0, : int(lengths_1[0])].numpy(), **found}

        def search(found: Numbers) -> str:
            labels = recogniser.labels({name: np.asarray(each)[None] for name, each in found.items()}, 0)
            return " ".join("".join(recogniser.texts_of_labels[label] for label in labels).split())

        suffix = f".int8{self.suffix}" if int8 else self.suffix
        name = f"model{suffix}" if self.is_ctc else f"encoder{suffix} and decoder{suffix}"
        return Runner(f"{name} in {self.engine}", not int8, texts, numbers, search)

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
        states = self.inputs_of(decoder, one.states)
        self.graph = EncoderGraph(self.front, model, states)
        return {"encoder": self._trace_encoder(self.graph, axes), "decoder": decoder}

    @property
    def _examples(self) -> list[tuple[Tensor, Tensor]]:
        return example_inputs(self.recogniser, self.settings.takes, self.least)

    def _trace_encoder(self, graph: RecogniserGraph, states: Axes) -> Any:
        takes = self.settings.takes
        axes: dict[str, Mapping[int, str]] = {
            takes: {0: _BATCH, 1: _TIME},
            "input_lengths": {0: _BATCH},
            "log_probs": {0: _BATCH, 1: _FRAMES},
            "lengths": {0: _BATCH},
            **{name: {axis: _BATCH if axis == 0 else each for axis, each in a.items()} for name, a in states.items()},
        }
        used = {name: each for name, each in axes.items() if name in (takes, "input_lengths", *graph.outputs)}
        return self.trace(graph, self._examples[0], [takes, "input_lengths"], graph.outputs, used)

    def _trace_decoder(self, graph: DecoderGraph, one: DecoderExample, axes: Axes) -> Any:
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
        return self.trace(graph, examples, ["labels", *one.states], outputs, free)


_NEEDED = {"onnxruntime": "numpy onnxruntime", "torch": "numpy torch"}


def graphs_readme(metadata: Mapping[str, str], settings: ExportSettings, names: Sequence[str], engine: str) -> str:
    """For the formats whose graphs `transcribe.py` runs."""
    return "\n".join(
        [
            f"# A speech recogniser for {engine}, written by sonosco_like {metadata['sonosco_like']}",
            "",
            f"It needs Python with `pip install {_NEEDED[engine]}`, and nothing else:",
            "",
            "```",
            f"python transcribe.py {'call.wav' if settings.takes == 'waveform' else 'features.npy'}",
            *(["python transcribe.py --int8 call.wav"] if settings.int8 else []),
            "```",
            "",
            *(f"- `{name}`" for name in names),
            *(f"- `{name.replace('.', '.int8.')}`: with weights of 8 bits" for name in names if settings.int8),
            "- `transcribe.py`: features in, text out; also a class `Recogniser` for your own program",
            "- `verification.json`, if the export was verified: the texts it was compared on, and the error rates",
            "",
            *_inputs(metadata, settings),
            "",
            *_search(names),
            "",
            *_origin(metadata),
        ]
    )


def sherpa_readme(metadata: Mapping[str, str], settings: ExportSettings, notes: Sequence[str]) -> str:
    """For the format `sherpa`."""
    size, rate = metadata["features_per_frame"], metadata["sample_rate"]
    return "\n".join(
        [
            f"# A speech recogniser for sherpa-onnx, written by sonosco_like {metadata['sonosco_like']}",
            "",
            "In Python (`pip install sherpa-onnx`), with `samples` in [-1, 1] of one channel:",
            "",
            "```python",
            "import sherpa_onnx",
            "",
            "recognizer = sherpa_onnx.OfflineRecognizer.from_zipformer_ctc(",
            f'    model="model.onnx", tokens="tokens.txt", feature_dim={size}, sample_rate={rate}',
            ")",
            "stream = recognizer.create_stream()",
            f"stream.accept_waveform({rate}, samples)",
            "recognizer.decode_stream(stream)",
            "print(stream.result.text)",
            "```",
            "",
            "On the command line, with the programs of sherpa-onnx:",
            "",
            "```",
            f"sherpa-onnx-offline --zipformer-ctc-model=model.onnx --tokens=tokens.txt --feat-dim={size} "
            f"--sample-rate={rate} call.wav",
            "```",
            "",
            "- `model.onnx`: normalization, encoder and CTC output",
            *(["- `model.int8.onnx`: the same with weights of 8 bits"] if settings.int8 else []),
            "- `tokens.txt`: the symbol of each label",
            "- `verification.json`, if the export was verified: the texts it was compared on, and the error rates",
            "",
            *notes,
            *([""] if notes else []),
            *_origin(metadata),
        ]
    )


def _inputs(metadata: Mapping[str, str], settings: ExportSettings) -> list[str]:
    if settings.takes == "waveform":
        what = (
            f"`waveform` (batch, time): float32 samples in [-1, 1], {metadata['sample_rate']} per second, one channel"
        )
    else:
        what = (
            f"`features` (batch, time, {metadata['features_per_frame']}): float32, before normalization, "
            f"as described in the metadata `features`"
        )
    return [
        f"Inputs: {what}; `input_lengths` (batch): int64. Shorter inputs of a batch are padded with zeros. "
        f"The time axis must have at least {metadata['least_samples']} entries."
    ]


def _search(names: Sequence[str]) -> list[str]:
    if len(names) == 1:
        return [
            "Outputs: `log_probs` (batch, frames, labels) and `lengths` (batch). Take the best label of each frame, "
            "merge runs of one label, and drop label 0, the blank. The metadata `texts` has the text of each label."
        ]
    return [
        f"`{names[0]}` gives `lengths`, `log_probs` if there is a CTC output, and the states at the start. "
        f"`{names[1]}` takes the last `labels` (label 1 at first) and the states of each hypothesis, and gives "
        "`log_probs` of the next label, `attention`, and the states that it changed, with `new_` in front of their "
        "names. Label 2 ends a text. `transcribe.py` has the whole search; the metadata `search` has its settings."
    ]


def _origin(metadata: Mapping[str, str]) -> list[str]:
    known = {name: metadata[name] for name in ("run", "step", "weights", "weights_sha256") if name in metadata}
    return ["From: " + ", ".join(f"{name} {value}" for name, value in known.items()) + ".", ""]
