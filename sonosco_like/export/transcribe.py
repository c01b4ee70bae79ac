"""Transcribe recordings with the exported recogniser in this folder. Needs numpy, and onnxruntime or torch.

    python transcribe.py call.wav another.wav     PCM WAV files; others if the package soundfile is there
    python transcribe.py --int8 call.wav

    from transcribe import Recogniser
    recogniser = Recogniser("the folder of this file")
    print(recogniser(samples, 16000))            # an array of samples in [-1, 1]
    print(recogniser.texts([samples, others]))   # several at once, of any lengths

The graphs are files .onnx, which need onnxruntime, or .pt2, which need torch. What they take and give, the alphabet and
the search are described in their metadata. Labels 0, 1 and 2 are the blank of CTC, and the start and the end of a text
for the attention decoder.

Shape suffixes: B utterances, N samples, T frames, S encoded frames, V labels, C candidates for the next label, K
hypotheses of a beam search.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BLANK, START, END = 0, 1, 2
IMPOSSIBLE = -1e10
SILENT = 1e-4  # a recording without a sample above this has no text
Arrays = dict[str, np.ndarray]


class Recogniser:
    """The recogniser in a folder; `int8` takes the small graphs, `threads` is what one recording may use."""

    def __init__(self, folder: str | Path = ".", int8: bool = False, threads: int = 1) -> None:
        place = Path(folder)
        whole, encoder, decoder = (_find(place, name, int8) for name in ("model", "encoder", "decoder"))
        if whole is None and (encoder is None or decoder is None):
            raise FileNotFoundError(f"There is no {'int8 ' if int8 else ''}recogniser in {place}.")
        self.encoder = _load(whole or encoder, threads)
        self.decoder = _load(decoder, threads) if whole is None else None
        self.metadata = self.encoder.metadata
        self.sample_rate = int(self.metadata["sample_rate"])
        self.texts_of_labels: list[str] = json.loads(self.metadata["texts"])
        self.search: dict[str, Any] = json.loads(self.metadata["search"])

    def __call__(self, samples: Any, sample_rate: int) -> str:
        """The text of a recording; a long one is cut where it is quietest."""
        if sample_rate != self.sample_rate:
            raise ValueError(
                f"The recogniser takes {self.sample_rate} samples per second, and got {sample_rate}. Convert the "
                f"recording, for example with: ffmpeg -i OLD -ar {self.sample_rate} -ac 1 NEW.wav"
            )
        pieces = cut(np.asarray(samples, dtype=np.float32), sample_rate, float(self.metadata["longest"]))
        return " ".join(filter(None, (self.texts([piece])[0] for piece in pieces)))

    def texts(self, inputs: list[Any]) -> list[str]:
        """The text of each waveform (or matrix of features, if the graph takes features), all in one batch."""
        outputs = self.run(inputs)
        found = []
        for row, each in enumerate(inputs):
            silent = np.ndim(each) == 1 and (len(each) == 0 or float(np.abs(each).max()) <= SILENT)
            labels = [] if silent else self.labels(outputs, row)
            found.append(" ".join("".join(self.texts_of_labels[label] for label in labels).split()))
        return found

    def run(self, inputs: list[Any]) -> Arrays:
        """The outputs of the encoder by name, for a batch."""
        lengths_B = np.array([max(1, len(each)) for each in inputs], dtype=np.int64)
        least = int(self.metadata["least_samples"])
        shape = (len(inputs), max(least, int(lengths_B.max())), *np.shape(inputs[0])[1:])
        batch = np.zeros(shape, dtype=np.float32)
        for row, each in enumerate(inputs):
            batch[row, : len(each)] = each
        return self.encoder(dict(zip(self.encoder.inputs, (batch, lengths_B), strict=True)))

    def labels(self, outputs: Arrays, row: int) -> list[int]:
        """The labels of one utterance of a batch, by the search of the metadata."""
        length = int(outputs["lengths"][row])
        if self.decoder is None:
            return greedy_ctc(outputs["log_probs"][row, :length])
        beams = int(self.search["beam_size"])
        step = DecoderStep(self.decoder, {name: each[row : row + 1] for name, each in outputs.items()}, beams)
        most = int(np.ceil(np.float32(length) * np.float32(self.search["max_length_ratio"])))
        if self.search["kind"] == "attention_greedy":
            return greedy_attention(step, most)
        share = float(self.search["ctc_weight"])
        ctc = CTCPrefixes(outputs["log_probs"][row, :length], beams) if share else None
        return beam_search(step, ctc, length, most, self.search)


def greedy_ctc(log_probs_SV: np.ndarray) -> list[int]:
    """The best label of each frame; runs of one label are one, and blanks are left out."""
    path_S = log_probs_SV.argmax(1)
    kept_S = np.ones(len(path_S), dtype=bool)
    kept_S[1:] = path_S[1:] != path_S[:-1]
    return [int(label) for label in path_S[kept_S] if label != BLANK]


class DecoderStep:
    """The attention decoder for the hypotheses of one utterance; its state has one row for each of them."""

    def __init__(self, graph: OnnxGraph | TorchGraph, encoded: Arrays, rows: int) -> None:
        self.graph = graph
        self.state = {name: np.repeat(each, rows, axis=0) for name, each in encoded.items() if name in graph.inputs}
        self.labels_K = np.full(rows, START, dtype=np.int64)
        self.attention_KS = np.zeros(0)

    def __call__(self) -> np.ndarray:
        """log_probs_KV of the next label."""
        found = self.graph({"labels": self.labels_K, **self.state})
        self.attention_KS = found["attention"].mean(1)
        self.state.update({name[4:]: each for name, each in found.items() if name.startswith("new_")})
        log_probs_KV: np.ndarray = found["log_probs"]
        return log_probs_KV

    def advance(self, rows_K: np.ndarray, labels_K: np.ndarray) -> None:
        """Continue with these rows, each with one more label. All rows are of one utterance."""
        changed = {name[4:] for name in self.graph.outputs if name.startswith("new_")}
        self.state = {name: each[rows_K] if name in changed else each for name, each in self.state.items()}
        self.labels_K = labels_K.astype(np.int64)


def greedy_attention(step: DecoderStep, most: int) -> list[int]:
    """The most probable next label until the end of the text, at most `most` labels."""
    labels: list[int] = []
    while len(labels) < most:
        log_probs_V = step()[0]
        log_probs_V[[BLANK, START]] = -np.inf
        label = int(log_probs_V.argmax())
        if label == END:
            break
        labels.append(label)
        step.advance(np.zeros(1, dtype=np.int64), np.array([label]))
    return labels


@dataclass
class Finished:
    """The best text that is complete."""

    score: float = -np.inf
    labels: tuple[int, ...] = ()


def beam_search(
    step: DecoderStep, ctc: CTCPrefixes | None, frames: int, most: int, settings: dict[str, Any]
) -> list[int]:
    """The text with the best ((1 - c) log p_attention + c log p_ctc) / length ** power + coverage."""
    beams, share, power = int(settings["beam_size"]), float(settings["ctc_weight"]), float(settings["length_power"])
    weight, threshold = float(settings["coverage_weight"]), float(settings["coverage_threshold"])
    score_K = np.full(beams, -np.inf)
    score_K[0] = 0.0
    texts: list[tuple[int, ...]] = [()] * beams
    covered_KS: Any = 0.0
    best = Finished()
    for length in range(most + 1):
        log_probs_KV = step().astype(np.float64)
        forbidden_KV = _forbidden(log_probs_KV, length >= most, settings["end_threshold"])
        gain_KV = (1 - share) * np.maximum(log_probs_KV, IMPOSSIBLE)
        if ctc is not None:
            promising_KV = np.where(forbidden_KV, -np.inf, log_probs_KV)
            gain_KV = gain_KV + share * ctc.gains(promising_KV, max(beams, int(settings["ctc_candidates"])))
        total_KV = score_K[:, None] + np.where(forbidden_KV, -np.inf, gain_KV)
        covered_KS = covered_KS + step.attention_KS
        ended_K = total_KV[:, END] / (length + 1) ** power + weight * (covered_KS > threshold).sum(1)
        row = int(ended_K.argmax())
        if ended_K[row] > best.score:
            best = Finished(float(ended_K[row]), texts[row])
        total_KV[:, END] = -np.inf
        place_K = np.argsort(-total_KV.ravel(), kind="stable")[:beams]
        score_K, (rows_K, labels_K) = total_KV.ravel()[place_K], np.divmod(place_K, total_KV.shape[1])
        texts = [(*texts[row], int(label)) for row, label in zip(rows_K, labels_K, strict=True)]
        bound = score_K.max()
        bound = bound / (most + 1 if bound < 0 else length + 2) ** power + max(0.0, weight) * frames
        if bound <= best.score:
            break
        covered_KS = covered_KS[rows_K]
        step.advance(rows_K, labels_K)
        if ctc is not None:
            ctc.advance(rows_K, labels_K)
    return list(best.labels)


def _forbidden(log_probs_KV: np.ndarray, at_limit: bool, end_threshold: float | None) -> np.ndarray:
    """Which labels may not follow: at the limit all but the end, before it an end that is not likely enough."""
    impossible_KV = log_probs_KV == -np.inf
    forbidden_KV: np.ndarray = impossible_KV | at_limit
    forbidden_KV[:, [BLANK, START]] = True
    forbidden_KV[:, END] = impossible_KV[:, END]
    if end_threshold is not None and not at_limit:
        forbidden_KV[:, END] |= log_probs_KV[:, END] <= end_threshold * log_probs_KV[:, END + 1 :].max(1)
    return forbidden_KV


class CTCPrefixes:
    """log p that an utterance begins with the text of each row, under CTC (Watanabe et al. 2017).

    `by_label_KS` and `by_blank_KS` are log p of exactly this text up to each frame, the last frame in its last label or
    in a blank; the first place is before any frame.
    """

    def __init__(self, log_probs_SV: np.ndarray, rows: int) -> None:
        self.log_probs_SV = np.maximum(log_probs_SV.astype(np.float64), IMPOSSIBLE)
        blank_S = np.concatenate([[0.0], self.log_probs_SV[:, BLANK].cumsum()])
        self.by_blank_KS = np.repeat(blank_S[None], rows, axis=0)
        self.by_label_KS = np.full_like(self.by_blank_KS, IMPOSSIBLE)
        self.last_K = np.full(rows, BLANK)
        self.score_K = np.zeros(rows)
        self.extended_KV: Any = None

    def gains(self, promising_KV: np.ndarray, candidates: int) -> np.ndarray:
        """How much each label changes the score; computed for the most promising ones, -inf for the others."""
        extended_KV = np.full(promising_KV.shape, IMPOSSIBLE)
        labels_KC = np.argsort(-promising_KV, axis=1, kind="stable")[:, :candidates]
        arriving_KSC = self._before(labels_KC) + self.log_probs_SV[:, labels_KC].transpose(1, 0, 2)
        np.put_along_axis(extended_KV, labels_KC, np.logaddexp.reduce(arriving_KSC, axis=1), axis=1)
        extended_KV[:, END] = np.logaddexp(self.by_label_KS[:, -1], self.by_blank_KS[:, -1])
        self.extended_KV = extended_KV
        return np.where(extended_KV < IMPOSSIBLE / 2, -np.inf, extended_KV - self.score_K[:, None])

    def advance(self, rows_K: np.ndarray, labels_K: np.ndarray) -> None:
        """Continue with these rows, each with one more label."""
        self.score_K = self.extended_KV[rows_K, labels_K]
        self.by_blank_KS, self.by_label_KS = self.by_blank_KS[rows_K], self.by_label_KS[rows_K]
        self.last_K = self.last_K[rows_K]
        before_KS = self._before(labels_K[:, None])[..., 0]
        self.by_label_KS = _accumulate(before_KS, self.log_probs_SV[:, labels_K].T)
        self.by_blank_KS = _accumulate(self.by_label_KS[:, :-1], self.log_probs_SV[:, BLANK][None])
        self.last_K = labels_K

    def _before(self, labels_KC: np.ndarray) -> np.ndarray:
        """log p_KSC that the text is complete before a frame and the label may follow; a repeat needs a blank."""
        by_blank_KS1 = self.by_blank_KS[:, :-1, None]
        either_KS1 = np.logaddexp(by_blank_KS1, self.by_label_KS[:, :-1, None])
        return np.where((labels_KC == self.last_K[:, None])[:, None], by_blank_KS1, either_KS1)


def _accumulate(arriving_KS: np.ndarray, emission_KS: np.ndarray) -> np.ndarray:
    """p[t] = (p[t - 1] + arriving[t]) * emission[t] for all frames, in logarithms, with zero before the first one."""
    product_KS = emission_KS.cumsum(1)
    sums_KS = product_KS + np.logaddexp.accumulate(arriving_KS - (product_KS - emission_KS), axis=1)
    return np.concatenate([np.full((len(sums_KS), 1), IMPOSSIBLE), sums_KS], axis=1)


def cut(samples_N: np.ndarray, sample_rate: int, longest: float) -> list[np.ndarray]:
    """The recording in pieces of at most `longest` seconds, cut in the quietest tenth of a second near their ends."""
    pieces = []
    while len(samples_N) > longest * sample_rate:
        most, window = int(longest * sample_rate), sample_rate // 10
        power_N = np.convolve(samples_N[most // 2 : most].astype(np.float64) ** 2, np.ones(window), mode="valid")
        end = most // 2 + int(power_N.argmin()) + window // 2
        pieces.append(samples_N[:end])
        samples_N = samples_N[end:]
    return [*pieces, samples_N]


def read_audio(path: str) -> tuple[np.ndarray, int]:
    """(samples in [-1, 1], sample rate) of a recording; several channels become their mean.

    PCM WAV is read by Python itself, other formats by the package soundfile if it is there.
    """
    try:
        with wave.open(path, "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            content = np.frombuffer(file.readframes(file.getnframes()), dtype=np.uint8)
    except wave.Error as error:
        try:
            soundfile = importlib.import_module("soundfile")
        except ImportError:
            reason = f"not a PCM WAV file ({error}). Convert it, or install the package soundfile"
            raise ValueError(f"{reason}.") from None
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        return samples.mean(axis=1, dtype=np.float32), int(rate)
    if width == 1:
        samples = (content.astype(np.float32) - 128) / 128
    else:
        wide = np.zeros((len(content) // width, 4), dtype=np.uint8)
        wide[:, 4 - width :] = content.reshape(-1, width)
        samples = (wide.view("<i4")[:, 0] / 2.0**31).astype(np.float32)
    return samples.reshape(-1, channels).mean(axis=1, dtype=np.float32), rate


class OnnxGraph:
    """A graph in onnxruntime."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.metadata: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        self.inputs = [each.name for each in self.session.get_inputs()]
        self.outputs = [each.name for each in self.session.get_outputs()]

    def __call__(self, inputs: Arrays) -> Arrays:
        """The outputs by name."""
        return dict(zip(self.outputs, self.session.run(self.outputs, inputs), strict=True))


class TorchGraph:
    """A graph in torch; `threads` is a setting of the whole process there, and is left alone."""

    def __init__(self, path: Path, threads: int) -> None:
        import torch

        files = {"metadata.json": ""}
        self.torch = torch
        self.module = torch.export.load(path, extra_files=files).module()
        self.metadata: dict[str, str] = json.loads(files["metadata.json"])
        self.inputs: list[str] = json.loads(self.metadata["inputs"])
        self.outputs: list[str] = json.loads(self.metadata["outputs"])

    def __call__(self, inputs: Arrays) -> Arrays:
        """The outputs by name."""
        with self.torch.no_grad():
            found = self.module(*(self.torch.from_numpy(inputs[name]) for name in self.inputs))
        return {name: each.numpy() for name, each in zip(self.outputs, found, strict=True)}


def _find(folder: Path, name: str, int8: bool) -> Path | None:
    paths = [folder / f"{name}.int8.onnx"] if int8 else [folder / f"{name}.onnx", folder / f"{name}.pt2"]
    return next((path for path in paths if path.exists()), None)


def _load(path: Path | None, threads: int) -> OnnxGraph | TorchGraph:
    assert path is not None
    return OnnxGraph(path, threads) if path.suffix == ".onnx" else TorchGraph(path, threads)


def main() -> int:
    """Print the text of each recording; the exit code is 1 if one could not be read."""
    parser = argparse.ArgumentParser(description="Transcribe WAV files with the exported recogniser in this folder.")
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="WAV or another format, or .npy if the graph takes features"
    )
    parser.add_argument("--int8", action="store_true", help="take the small graphs")
    parser.add_argument("--threads", type=int, default=1, help="threads per recording")
    parser.add_argument("--folder", default=Path(__file__).parent, help="where the graphs are")
    given = parser.parse_args()
    failed = 0
    try:
        recogniser = Recogniser(given.folder, given.int8, given.threads)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    takes_features = recogniser.metadata["input"] == "features"
    for path in given.files:
        try:
            text = recogniser.texts([np.load(path)])[0] if takes_features else recogniser(*read_audio(path))
        except (OSError, EOFError, ValueError, RuntimeError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            failed += 1
            continue
        print(f"{path}: {text}" if len(given.files) > 1 else text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
