"""The format `sherpa`: a model and its tokens for sherpa-onnx, which runs on phones, in browsers and in many languages.

sherpa-onnx computes Kaldi's log-mel features itself, with fixed settings, and calls the graph with a batch of them and
their lengths. So the graph holds normalization, encoder and CTC output. sherpa-onnx has no type for an attention
decoder like ours: such a model is exported with its CTC output.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonosco_like.data.features import LogMel
from sonosco_like.errors import UsageError
from sonosco_like.export.description import WORD_MARK, texts_of_labels
from sonosco_like.export.formats import ExportSettings, Numbers, Runner
from sonosco_like.export.graph_format import sherpa_readme
from sonosco_like.export.onnx_format import OnnxFormat
from sonosco_like.inference import TrainedRecogniser
from sonosco_like.records import BLANK
from sonosco_like.serialization import write_file

TOKENS = "tokens.txt"
_ASSUMED_REDUCTION = 4  # frames of 10 ms for one output: what sherpa-onnx computes times from
_HIGH_FREQUENCY = -400.0  # counted from half the sample rate
_FEATURES = {
    "window_seconds": 0.025,
    "step_seconds": 0.01,
    "window": "povey",
    "low_frequency": 20.0,
    "preemphasis": 0.97,
    "remove_offset": True,
    "snip_edges": False,
    "scale": 1.0,
}


class SherpaFormat(OnnxFormat):
    """`model.onnx` and `tokens.txt`, and with `int8` also `model.int8.onnx`, for `from_zipformer_ctc`."""

    packages = ("onnx", "onnxruntime", "sherpa_onnx")
    output = "ctc"

    @classmethod
    def check(cls, recogniser: TrainedRecogniser) -> None:
        """Refuse what sherpa-onnx could not run."""
        if not recogniser.model.has_ctc:
            raise UsageError(
                f"sherpa-onnx runs CTC models, and this {type(recogniser.model).__name__} has no CTC output. Train it "
                f"with `ctc: true` and a JointLoss, or export it with --format onnx."
            )
        _check_features(recogniser)

    def __init__(self, recogniser: TrainedRecogniser, settings: ExportSettings) -> None:
        super().__init__(recogniser, ExportSettings("features", settings.int8, settings.opset))
        reduction = recogniser.model.frame_reduction
        self.repeats = repeats_of(reduction)
        if recogniser.model.decoder is not None:
            self.notes.append(
                "sherpa-onnx has no type for this attention decoder: the model leaves by its CTC output, and is "
                "compared with our own greedy CTC search."
            )
        if reduction % _ASSUMED_REDUCTION:
            self.notes.append(
                f"Texts are right, but times are not: sherpa-onnx takes {_ASSUMED_REDUCTION} frames for one output, "
                f"and this model has {reduction}. Multiply times by {reduction / _ASSUMED_REDUCTION:g}."
            )

    def write_beside(self, folder: Path, metadata: Mapping[str, str]) -> None:
        write_file(folder / TOKENS, tokens_text(tuple(self.recogniser.tokenizer.symbols)).encode())
        write_file(folder / "README.md", sherpa_readme(metadata, self.settings, self.notes).encode())

    def runners(self, folder: Path) -> list[Runner]:
        return [self._with_sherpa(each, folder) for each in super().runners(folder)]

    def _with_sherpa(self, graph: Runner, folder: Path) -> Runner:
        """The same file in sherpa-onnx; the numbers are those that onnxruntime finds for our own features."""
        package = importlib.import_module("sherpa_onnx")
        name = "model.onnx" if graph.exact else "model.int8.onnx"
        features = self.recogniser.features
        transcriber = package.OfflineRecognizer.from_zipformer_ctc(
            model=str(folder / name),
            tokens=str(folder / TOKENS),
            sample_rate=features.sample_rate,
            feature_dim=features.size,
        )

        def texts(waveforms: Any) -> list[str]:
            streams = []
            for waveform_N in waveforms:
                streams.append(transcriber.create_stream())
                streams[-1].accept_waveform(features.sample_rate, waveform_N)
            transcriber.decode_streams(streams)
            return [str(stream.result.text) for stream in streams]

        def numbers(waveform_N: NDArray[np.float32]) -> Numbers:
            return graph.numbers(waveform_N)

        return Runner(
            f"{name} in sherpa-onnx",
            graph.exact,
            texts,
            numbers,
            graph.search,
            "the features and the search of sherpa-onnx",
        )


def repeats_of(reduction: int) -> int:
    """How often each output of a model is in the graph, so that sherpa-onnx finds the right times."""
    return reduction // _ASSUMED_REDUCTION if reduction % _ASSUMED_REDUCTION == 0 else 1


def tokens_text(symbols: tuple[str, ...]) -> str:
    """tokens.txt: one `symbol id` in a line; `▁` begins a word, a line without one is a space, <blk> is the blank."""
    texts = texts_of_labels(symbols)
    lines = []
    for label, symbol in enumerate(symbols):
        written = texts[label].strip() or ("" if texts[label] else symbol)
        if label == BLANK:
            written = "<blk>"
        elif written and texts[label].startswith(" "):
            written = WORD_MARK + written
        lines.append(f"{written} {label}\n".lstrip(" "))
    return "".join(lines)


def _check_features(recogniser: TrainedRecogniser) -> None:
    features = recogniser.features
    if type(features) is not LogMel:
        raise UsageError(
            f"sherpa-onnx computes log-mel features, and this run was trained with {type(features).__name__}. Train it "
            f"with features {{class: LogMel, high_frequency: -400}}, or export it with --format onnx."
        )
    other = [
        f"`{name}` is {getattr(features, name)} and must be {value}"
        for name, value in _FEATURES.items()
        if getattr(features, name) != value
    ]
    nyquist, high = features.sample_rate / 2, features.high_frequency
    if (high if high > 0 else nyquist + high) != nyquist + _HIGH_FREQUENCY:
        other.append(f"`high_frequency` is {high:g} and must be {_HIGH_FREQUENCY:g}")
    if other:
        raise UsageError(
            f"sherpa-onnx computes the features itself, with settings that this run was not trained with: "
            f"{'; '.join(other)}. Train it with such features, or export it with --format onnx."
        )
