"""Seconds of audio per CPU second, forward and backward, of each small model, as ratios to a plain `nn.LSTM`.

The floor is one bidirectional `nn.LSTM` layer of 192 units over every fourth frame, which knows nothing of padding.
torchaudio's Conformer and, if it is installed, SpeechBrain's CRDNN stand beside ours. A second table has the ways to
run a bidirectional LSTM over a padded batch, a third the encoder of Whisper with and without padding to 30 s. Run with
`python benchmarks/bench_models.py`; one thread, repeats interleaved, the fastest of each counts.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Row, report
from benchmarks.timing import turns
from sonosco_like.models import LAS, TDS, Conformer, DeepSpeech2, Recogniser, WhisperEncoder
from sonosco_like.models.layers import Bidirectional
from sonosco_like.records import Batch
from sonosco_like.torchaudio_import import import_torchaudio

BATCH, FRAMES, FEATURES, LABELS, VOCABULARY = 16, 400, 40, 28, 32
SECONDS_OF_AUDIO = BATCH * FRAMES * 0.01
REPEATS = 5
Run = Callable[[], Tensor]


def make_batch() -> Batch:
    """A bucket of utterances of about four seconds."""
    torch.manual_seed(0)
    return Batch(
        features_BTF=torch.randn(BATCH, FRAMES, FEATURES),
        feature_lengths_B=torch.linspace(0.9 * FRAMES, FRAMES, BATCH).long(),
        labels_BU=torch.randint(4, VOCABULARY, (BATCH, LABELS)),
        label_lengths_B=torch.full((BATCH,), LABELS),
    )


def model_run(model: Recogniser, batch: Batch) -> Run:
    """Something to differentiate that needs all of the model's outputs."""

    def run() -> Tensor:
        output = model(batch)
        outputs = (output.ctc_logits_BSV, output.attention_logits_BUV)
        return sum((logits.logsumexp(-1).mean() for logits in outputs if logits is not None), torch.zeros(()))

    return run


def floor(batch: Batch) -> Run:
    """One plain layer on every fourth frame."""
    frames_BSD = batch.features_BTF.reshape(BATCH, FRAMES // 4, 4 * FEATURES)
    layer = nn.LSTM(4 * FEATURES, 192, batch_first=True, bidirectional=True)
    return lambda: layer(frames_BSD)[0].mean()


def millions(module: nn.Module) -> str:
    """How many parameters."""
    return f"{sum(parameter.numel() for parameter in module.parameters()) / 1e6:.1f} M"


def others(batch: Batch) -> dict[str, Run]:
    """torchaudio's blocks at the size of `Conformer.small` on stacked frames, and SpeechBrain's CRDNN if installed."""
    import_torchaudio()
    blocks = importlib.import_module("torchaudio.models").Conformer(144, 4, 576, 4, 15)
    project = nn.Linear(4 * FEATURES, 144)
    frames_BSD = batch.features_BTF.reshape(BATCH, FRAMES // 4, 4 * FEATURES)
    lengths_B = batch.feature_lengths_B // 4
    lengths_B[-1] = FRAMES // 4
    runs: dict[str, Run] = {
        f"torchaudio Conformer, {millions(blocks)}": lambda: blocks(project(frames_BSD), lengths_B)[0].mean()
    }
    try:
        crdnn = importlib.import_module("speechbrain.lobes.models.CRDNN").CRDNN
        lstm = importlib.import_module("speechbrain.nnet.RNN").LSTM
    except ImportError:
        report(Row("forward + backward: SpeechBrain CRDNN", "not installed"))
        return runs
    block = crdnn(
        input_size=FEATURES, cnn_channels=(16, 32), time_pooling=True, time_pooling_size=4,
        rnn_class=lstm, rnn_layers=3, rnn_neurons=192, rnn_bidirectional=True, dnn_neurons=192,
    )  # fmt: skip
    runs[f"SpeechBrain CRDNN, {millions(block)}"] = lambda: block(batch.features_BTF).mean()
    return runs


def bidirectional_runs(frames: int, size: int, hidden_size: int) -> dict[str, Run]:
    """Three ways over a padded batch; the first ignores padding, which changes what the backward direction hears."""
    frames_BTD = torch.randn(BATCH, frames, size)
    lengths_B = torch.linspace(0.9 * frames, frames, BATCH).long()
    plain = nn.LSTM(size, hidden_size, batch_first=True, bidirectional=True)
    ours = Bidirectional("lstm", size, hidden_size, batch_norm=False, join="concatenate")

    def packed() -> Tensor:
        sequence = pack_padded_sequence(frames_BTD, lengths_B, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(plain(sequence)[0], batch_first=True)[0].mean()

    return {
        "padding ignored (wrong)": lambda: plain(frames_BTD)[0].mean(),
        "two directions, reversed by length (ours)": lambda: ours(frames_BTD, lengths_B).mean(),
        "packed": packed,
    }


def whisper_runs() -> dict[str, Run]:
    """The encoder of whisper-tiny on four utterances of four seconds, and on the same filled to 30 s."""
    encoder = WhisperEncoder()
    encoder.build(80)

    def run(frames: int) -> Run:
        features_BTF, lengths_B = torch.randn(4, frames, 80), torch.full((4,), frames)
        return lambda: encoder(features_BTF, lengths_B)[0].mean()

    return {"positions cut to the length": run(FRAMES), "padded to 30 s": run(3000)}


def measure(runs: dict[str, Run]) -> dict[str, float]:
    """The fastest CPU seconds of each, forward and backward, taken in turns."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(turns(REPEATS) + 1):
        for name, run in runs.items():
            begin = time.process_time()
            torch.autograd.backward(run())
            best[name] = min(best[name], time.process_time() - begin)
    return best


def print_table(title: str, seconds: dict[str, float], audio: float | None = None) -> None:
    """Times relative to the first row, printed and reported."""
    reference = next(iter(seconds.values()))
    print(f"\n{title}")
    for name, value in seconds.items():
        rate = f"{audio / value:8.0f} s of audio per CPU s" if audio else ""
        print(f"  {name:45s} {value / reference:6.2f} x {rate}")
    first, *names = seconds
    report(*(Row(f"{title}: {name}", seconds[name] / reference, first) for name in names))


def main() -> None:
    """Print all tables."""
    torch.set_num_threads(1)
    batch = make_batch()
    runs = {"nn.LSTM, one layer (floor)": floor(batch)}
    for kind in (DeepSpeech2, LAS, TDS, Conformer):
        model = kind.small(VOCABULARY, FEATURES)
        runs[f"{kind.__name__}.small, {millions(model)}"] = model_run(model, batch)
    runs |= others(batch)
    print_table("forward + backward", measure(runs), SECONDS_OF_AUDIO)
    for shape in ((400, 40, 128), (200, 512, 128), (100, 512, 192)):
        print_table(
            f"bidirectional LSTM, {shape[0]} frames, {shape[1]} -> {shape[2]}", measure(bidirectional_runs(*shape))
        )
    print_table("WhisperEncoder, utterances of 4 s", measure(whisper_runs()))


if __name__ == "__main__":
    main()
