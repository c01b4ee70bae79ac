"""An exported folder as a transcriber: the searches of this package over what the graphs of the folder give.

The folder's own `transcribe.py` is never executed. Shape suffixes as in `records`; here also N rows of a search.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sonosco_like.data.features import FeatureExtractor
from sonosco_like.errors import UsageError, as_sentence
from sonosco_like.export.description import WORD_MARK, decoder_of_search
from sonosco_like.export.onnx_format import require_packages
from sonosco_like.export.sherpa_format import TOKENS, repeats_of
from sonosco_like.export.transcribe import OnnxGraph, Recogniser, TorchGraph
from sonosco_like.inference import DecoderSettings
from sonosco_like.inference.transcriber import WaveformTranscriber
from sonosco_like.records import Hypothesis, Output
from sonosco_like.serialization import loads

_GRAPHS = ("model.onnx", "encoder.onnx", "model.pt2", "encoder.pt2", "model.int8.onnx", "encoder.int8.onnx")


def open_export(path: Path, settings: DecoderSettings, longest: float | None) -> ExportTranscriber | None:
    """The transcriber of an exported folder, or of the graph in it with this path; None for any other path.

    Of a folder with graphs of both kinds, those of 8 bits are taken only if the path names one.
    """
    graph = next((each for each in (path, *(path / name for name in _GRAPHS)) if each.is_file()), path)
    if graph.name not in _GRAPHS:
        return None
    folder = graph.parent
    if graph.suffix == ".onnx":
        require_packages("onnxruntime")
    try:
        graphs = Recogniser(folder, int8=".int8." in graph.name, threads=torch.get_num_threads())
        transcriber = ExportTranscriber(graphs, _kind_of(graph), longest)
    except KeyError as error:
        raise UsageError(
            f"{graph} has no `{error.args[0]}` in its metadata, as a file of `sonosco export` would. "
            f"Export the run again: sonosco export RUN --output {folder} --force"
        ) from None
    except Exception as error:  # whatever onnxruntime or torch raise for a file that is broken or of other origin
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        raise UsageError(
            f"{graph} cannot be used: {type(error).__name__}: {as_sentence(reason)} "
            f"Export the run again: sonosco export RUN --output {folder} --force"
        ) from None
    transcriber.decoder = settings.apply(transcriber.decoder, transcriber.model)
    return transcriber


def _kind_of(graph: Path) -> str:
    if (graph.parent / TOKENS).is_file():
        return "sherpa"
    return "onnx" if graph.suffix == ".onnx" else "torch-export"


class ExportTranscriber(WaveformTranscriber):
    """Calls the graphs of an exported folder for recordings; they run on the processor."""

    def __init__(self, graphs: Recogniser, kind: str, longest: float | None) -> None:
        metadata = graphs.metadata
        super().__init__(graphs.sample_rate, float(metadata["longest"]) if longest is None else longest, None)
        self._graphs, self._features = graphs, None
        if metadata["input"] == "features":
            self._features = loads(metadata["features"], FeatureExtractor)
        self._frame_seconds = float(metadata["frame_seconds"])
        self._repeats = 1
        if kind == "sherpa" and self._features is not None:
            self._repeats = repeats_of(round(self._frame_seconds / self._features.frame_shift))
        self._vocabulary = _Vocabulary(tuple(json.loads(metadata["symbols"])), graphs.texts_of_labels)
        self.decoder = decoder_of_search(graphs.search)
        self.model = _Outputs(graphs, {})
        self.about = {
            "kind": kind,
            "architecture": metadata["architecture"],
            "parameters": int(metadata["parameters"]),
            "weights": metadata["weights"],
        }

    def hypotheses(self, waveforms: list[Tensor]) -> list[list[Hypothesis]]:
        """The hypotheses of each waveform, found by the decoder in the outputs of the graphs."""
        given = waveforms if self._features is None else self._features(waveforms)
        found = {
            name: torch.from_numpy(each) for name, each in self._graphs.run([each.numpy() for each in given]).items()
        }
        lengths_B, log_probs_BSV = found["lengths"] // self._repeats, found.get("log_probs")
        if log_probs_BSV is not None:
            log_probs_BSV = log_probs_BSV[:, :: self._repeats]
        nothing_BSD = torch.zeros(len(lengths_B), 1, 1)  # what the attention decoder reads of the audio is in its state
        output = Output(nothing_BSD, lengths_B, log_probs_BSV)
        model: Any = _Outputs(self._graphs, found)
        return self.decoder.decode(output, self._vocabulary, model=model, frame_seconds=self._frame_seconds)


@dataclass(frozen=True)
class _Vocabulary:
    """The symbols of the labels, and the texts that they add."""

    symbols: tuple[str, ...]
    texts: list[str]

    def decode(self, labels: Any) -> str:
        """The text of these labels; word pieces come with the blanks between words, characters have their own."""
        text = "".join(self.texts[label] for label in labels)
        return " ".join(text.split()) if any(symbol.startswith(WORD_MARK) for symbol in self.symbols) else text


@dataclass(frozen=True)
class _Outputs:
    """What a search asks a model for: which outputs it has, and its attention decoder for the batch with these."""

    graphs: Recogniser
    found: dict[str, Tensor]

    @property
    def has_ctc(self) -> bool:
        """Whether there are log probabilities of labels."""
        return "log_probs" in self.graphs.encoder.outputs

    @property
    def attention_decoder(self) -> _AttentionDecoder | None:
        """The graph of the decoder; None for a folder with one graph only."""
        decoder = self.graphs.decoder
        return None if decoder is None else _AttentionDecoder(decoder, self.found)


@dataclass(frozen=True)
class _State:
    """The tensors that the graph of a decoder reads, by name; each has one row for each row of the search."""

    tensors: dict[str, Tensor]

    def select(self, index_N: Tensor) -> _State:
        """The rows of `index_N`, in that order."""
        return _State({name: each[index_N] for name, each in self.tensors.items()})


@dataclass(frozen=True)
class _AttentionDecoder:
    """The graph of one step, with what the encoder gave for a batch."""

    graph: OnnxGraph | TorchGraph
    encoded: dict[str, Tensor]

    def start(self, encoded_BSD: Tensor, encoded_lengths_B: Tensor) -> _State:
        """The state before the first step: one row per utterance."""
        return _State({name: each for name, each in self.encoded.items() if name in self.graph.inputs})

    def step(self, labels_N: Tensor, state: _State) -> tuple[Tensor, Tensor, _State]:
        """(log_probs_NV, attention_NHS, state) after the last label of each row."""
        given = {"labels": labels_N.numpy(), **{name: each.numpy() for name, each in state.tensors.items()}}
        found = {name: torch.from_numpy(each) for name, each in self.graph(given).items()}
        changed = {name: found[f"new_{name}"] for name in state.tensors if f"new_{name}" in found}
        return found["log_probs"], found["attention"], _State({**state.tensors, **changed})
