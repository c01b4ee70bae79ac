"""A trained recogniser in torch, and the same one exported: how fast each of them hears, and how large the files are.

The recogniser has the size of `configs/deepspeech2.yaml`, and random weights. Everything runs on one thread: reading is
left out, features are in. Utterances come one at a time, as in a service, so that no engine gains by batches.

The real-time factor is processor seconds per second of audio. Our own work is `TrainedRecogniser`: features, model,
search. Options: a run folder, to measure a recogniser of your own.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.results import Row, report
from benchmarks.timing import print_ratios, take_turns
from sonosco_like.data import Alphabet
from sonosco_like.data.features import LogMel
from sonosco_like.data.normalization import UtteranceNormalization
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.export import export
from sonosco_like.export.transcribe import Recogniser
from sonosco_like.inference import TrainedRecogniser, load_recogniser
from sonosco_like.models import DeepSpeech2

RATE, UTTERANCES = 16000, 16
OURS = "torch, ours"
_CLOCK = time.process_time
Work = Callable[[NDArray[np.float32]], object]


def untrained() -> TrainedRecogniser:
    """Weights do not matter for the speed of greedy CTC."""
    torch.manual_seed(0)
    tokenizer = Alphabet()
    return TrainedRecogniser(
        features=LogMel(mels=40, high_frequency=-400.0),
        normalization=UtteranceNormalization(),
        model=DeepSpeech2.small(vocabulary_size=len(tokenizer.symbols)),
        decoder=GreedyCTCDecoder(),
        tokenizer=tokenizer,
    )


def sherpa(folder: Path, name: str, size: int) -> Work:
    """A recogniser of sherpa-onnx."""
    import sherpa_onnx

    recogniser: Any = sherpa_onnx.OfflineRecognizer.from_zipformer_ctc(
        model=str(folder / name), tokens=str(folder / "tokens.txt"), feature_dim=size, num_threads=1
    )

    def hear(samples_N: NDArray[np.float32]) -> object:
        stream = recogniser.create_stream()
        stream.accept_waveform(RATE, samples_N)
        recogniser.decode_stream(stream)
        return stream.result.text

    return hear


def ours(recogniser: TrainedRecogniser, samples_N: NDArray[np.float32]) -> object:
    """Features, model and search in torch."""
    return recogniser.decode(recogniser.batch([torch.from_numpy(samples_N)]))


def hear_all(work: Work, waveforms: list[NDArray[np.float32]]) -> None:
    """One recording after the other."""
    for samples_N in waveforms:
        work(samples_N)


def main(arguments: list[str]) -> None:
    """Export, then measure all engines in turns."""
    torch.set_num_threads(1)
    recogniser = load_recogniser(arguments[0], "cpu") if arguments else untrained()
    recogniser.model.eval()
    random = np.random.default_rng(0)
    lengths = random.uniform(2.0, 8.0, UTTERANCES)
    waveforms = [(0.1 * random.standard_normal(int(each * RATE))).astype(np.float32) for each in lengths]
    with tempfile.TemporaryDirectory() as name:
        folders = {form: Path(name) / form for form in ("onnx", "sherpa", "torch-export")}
        for form, folder in folders.items():
            export(recogniser, folder, form, verify=False, int8=form != "torch-export", decode="ctc")  # type: ignore[arg-type]
        graphs = {
            "onnxruntime": Recogniser(folders["onnx"]),
            "onnxruntime, int8": Recogniser(folders["onnx"], int8=True),
            "torch.export": Recogniser(folders["torch-export"]),
        }
        works: dict[str, Work] = {OURS: partial(ours, recogniser)}
        works |= {each: partial(graph, sample_rate=RATE) for each, graph in graphs.items()}
        size = recogniser.features.size
        works["sherpa-onnx"] = sherpa(folders["sherpa"], "model.onnx", size)
        works["sherpa-onnx, int8"] = sherpa(folders["sherpa"], "model.int8.onnx", size)
        seconds = take_turns({each: partial(hear_all, work, waveforms) for each, work in works.items()}, 5, _CLOCK)
        sizes = {path.name: path.stat().st_size for path in folders["onnx"].glob("*.onnx")}
    print_ratios(seconds, OURS)
    for each, value in seconds.items():
        print(f"{each:20} real-time factor {value / float(lengths.sum()):.4f}")
        if each != OURS:
            report(Row(f"hearing with {each}", value / seconds[OURS], "TrainedRecogniser in torch, one thread"))
    print(", ".join(f"{each} {bytes_ / 1e6:.2f} MB" for each, bytes_ in sorted(sizes.items())))


if __name__ == "__main__":
    main(sys.argv[1:])
