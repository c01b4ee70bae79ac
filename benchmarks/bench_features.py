"""How fast are our features beside those of other tools, and what does each augmentation cost?

Prints microseconds per second of audio, the best of interleaved repeats, and the ratio to ours (above 1: slower than
ours). With one thread it is time of the processor, which other programs hardly disturb; with two it is the clock on the
wall, which needs a quiet machine. Other tools are measured if they are installed:
`pip install lhotse urllib3 kaldi-native-fbank librosa`.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
import torch
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Row, report
from benchmarks.timing import turns
from sonosco_like.data.augment import (
    Gain,
    PitchShift,
    SpecAugment,
    SpeedPerturbation,
    TempoPerturbation,
    TimeShift,
    WaveformAugmentation,
    WhiteNoise,
    utterance_random,
)
from sonosco_like.data.augment_recordings import NoiseFiles, Reverberation
from sonosco_like.data.features import MFCC, LinearSpectrogram, LogMel
from sonosco_like.data.normalization import UtteranceNormalization
from sonosco_like.torchaudio_import import import_torchaudio

RATE, MELS = 16000, 80
FLOOR = 1.1920929e-07
OURS = "sonosco_like LogMel"
Extract = Callable[[list[Tensor]], object]


def log_mels() -> dict[str, Extract]:
    """The same features by each tool that is here; ours first."""
    tools: dict[str, Extract] = {OURS: LogMel(mels=MELS), **_torchaudio()}
    for package, make in OTHERS.items():
        if importlib.util.find_spec(package):
            tools.update(make())
    return tools


def _torchaudio() -> dict[str, Extract]:
    torchaudio = import_torchaudio()
    import torchaudio.compliance.kaldi as kaldi

    spectrogram = torchaudio.transforms.MelSpectrogram(
        RATE, n_fft=512, win_length=400, hop_length=160, f_min=20.0, n_mels=MELS, mel_scale="htk"
    )
    return {
        "torchaudio.compliance.kaldi": lambda waveforms: [
            kaldi.fbank(waveform_N[None], num_mel_bins=MELS, dither=0.0, snip_edges=False) for waveform_N in waveforms
        ],
        "torchaudio MelSpectrogram, log": lambda waveforms: [
            spectrogram(waveform_N).clamp_min_(FLOOR).log_().T for waveform_N in waveforms
        ],
    }


def _librosa() -> dict[str, Extract]:
    import librosa

    options = {"sr": RATE, "n_fft": 512, "win_length": 400, "hop_length": 160, "n_mels": MELS, "fmin": 20.0}
    return {
        "librosa melspectrogram, log": lambda waveforms: [
            np.log(np.maximum(librosa.feature.melspectrogram(y=waveform_N.numpy(), **options), FLOOR)).T
            for waveform_N in waveforms
        ]
    }


def _lhotse() -> dict[str, Extract]:
    import lhotse

    extractor = lhotse.Fbank(lhotse.FbankConfig(num_filters=MELS))
    return {
        "lhotse Fbank": lambda waveforms: [extractor.extract(waveform_N.numpy(), RATE) for waveform_N in waveforms],
        "lhotse Fbank, batch": lambda waveforms: extractor.extract_batch([w.numpy() for w in waveforms], RATE),
    }


def _native() -> dict[str, Extract]:
    import kaldi_native_fbank

    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = MELS

    def extract(waveform_N: Tensor) -> np.ndarray:
        native = kaldi_native_fbank.OnlineFbank(options)
        native.accept_waveform(RATE, waveform_N.numpy())
        native.input_finished()
        return np.stack([native.get_frame(index) for index in range(native.num_frames_ready)])

    return {"kaldi-native-fbank": lambda waveforms: [extract(waveform_N) for waveform_N in waveforms]}


OTHERS: dict[str, Callable[[], dict[str, Extract]]] = {
    "librosa": _librosa, "lhotse": _lhotse, "kaldi_native_fbank": _native,
}  # fmt: skip


def measured(jobs: Mapping[str, Callable[[], object]], seconds: float, threads: int = 1) -> dict[str, float]:
    """Microseconds per second of audio of each job: the best of repeats that take turns."""
    clock = time.process_time if threads == 1 else time.perf_counter
    best = dict.fromkeys(jobs, float("inf"))
    repeats = turns(15 if seconds > 20 else 80)
    for repeat in range(repeats + 1):
        for name, job in jobs.items():
            start = clock()
            job()
            if repeat:  # the first round warms up
                best[name] = min(best[name], clock() - start)
    return {name: 1e6 * taken / seconds for name, taken in best.items()}


def compare_features(waveforms: list[Tensor]) -> Table:
    """One row for each tool, one column for each batch and number of threads."""
    batches = {"16 utterances": waveforms, "one of 15 s": waveforms[:1], "one of 2 s": waveforms[-1:]}
    table = Table("log-mel, µs per second of audio (ratio)", title="Features")
    columns = []
    for threads in (1, 2):
        for name, batch in batches.items():
            table.add_column(f"{name}\n{threads} thread{'s' * (threads > 1)}", justify="right")
            with threadpool_limits(threads):
                torch.set_num_threads(threads)
                jobs = {tool: partial(extract, batch) for tool, extract in log_mels().items()}
                columns.append(measured(jobs, sum(map(len, batch)) / RATE, threads))
            report_fastest(f"log-mel of {name}, {threads} thread{'s' * (threads > 1)}", columns[-1])
    for tool in columns[0]:
        ours = [column[OURS] for column in columns]
        cells = [f"{column[tool]:.0f} ({column[tool] / base:.2f})" for column, base in zip(columns, ours, strict=True)]
        table.add_row(tool, *cells)
    return table


def report_fastest(what: str, found: dict[str, float]) -> None:
    """Ours beside the fastest of the others."""
    others = {tool: microseconds for tool, microseconds in found.items() if tool != OURS}
    fastest = min(others, key=others.__getitem__)
    report(Row(what, found[OURS] / others[fastest], f"{fastest}, the fastest of {len(others)}", goal=1.0))


def augmentations(folder: Path) -> dict[str, WaveformAugmentation]:
    """Every augmentation of samples, always at work."""
    random = np.random.default_rng(0)
    soundfile.write(folder / "noise.wav", 0.1 * random.standard_normal(60 * RATE), RATE)
    return {
        "SpeedPerturbation 0.9": SpeedPerturbation(factors=(0.9,)),
        "SpeedPerturbation 1.1": SpeedPerturbation(factors=(1.1,)),
        "TempoPerturbation": TempoPerturbation(),
        "PitchShift": PitchShift(),
        "Gain": Gain(),
        "TimeShift": TimeShift(),
        "WhiteNoise": WhiteNoise(),
        "NoiseFiles": NoiseFiles(files=folder),
        "Reverberation, made up, 0.35 s": Reverberation(decay_seconds=(0.35, 0.35)),
    }


def augment_all(augmentation: WaveformAugmentation, waveforms: list[Tensor]) -> list[Tensor]:
    """Every waveform augmented, with the same random numbers each time."""
    return [augmentation(waveform_N, RATE, utterance_random(0, 0, "a")) for waveform_N in waveforms]


def cost_of_augmentations(waveforms: list[Tensor], folder: Path) -> Table:
    """One row for each augmentation, beside the features it goes with."""
    extractor, spec_augment, normalization = LogMel(mels=MELS), SpecAugment(), UtteranceNormalization()
    features = extractor(waveforms)
    jobs: dict[str, Callable[[], object]] = {
        "LogMel": lambda: extractor(waveforms),
        "MFCC": lambda: MFCC()(waveforms),
        "LinearSpectrogram": lambda: LinearSpectrogram()(waveforms),
        "UtteranceNormalization": lambda: [normalization(features_TF) for features_TF in features],
        "utterance_random": lambda: [utterance_random(0, 0, str(number)) for number in range(len(waveforms))],
        "SpecAugment": lambda: [spec_augment(features_TF, utterance_random(0, 0, "a")) for features_TF in features],
    }
    for name, augmentation in augmentations(folder).items():
        jobs[name] = partial(augment_all, augmentation, waveforms)
    found = measured(jobs, sum(map(len, waveforms)) / RATE)
    table = Table("16 utterances, one thread", "µs per second of audio", "ratio to LogMel", title="Augmentations")
    for name, microseconds in found.items():
        table.add_row(name, f"{microseconds:.0f}", f"{microseconds / found['LogMel']:.2f}")
        if name != "LogMel":
            report(Row(f"{name}, 16 utterances", microseconds / found["LogMel"], "LogMel of the same"))
    return table


def main() -> None:
    """Measure and print both tables."""
    warnings.simplefilter("ignore")  # other tools' own
    random = np.random.default_rng(0)
    lengths = [15.0, *random.uniform(2, 15, 14), 2.0]
    waveforms = [torch.from_numpy(0.1 * random.standard_normal(round(s * RATE), dtype=np.float32)) for s in lengths]
    console = Console(width=150)
    console.print(compare_features(waveforms))
    for package in OTHERS:
        if not importlib.util.find_spec(package):
            report(Row(f"log-mel by {package}", "not installed"))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        console.print(cost_of_augmentations(waveforms, Path(folder)))


if __name__ == "__main__":
    main()
