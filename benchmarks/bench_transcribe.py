"""Transcribing beside the bare loop over features, model and decoder: the price of cutting, joining and bookkeeping.

The bare loop reads the same files and has the same batches. Weights are random; what a model costs does not depend on
them, and a CTC decoder's share is the same for any text.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Row, report
from benchmarks.timing import print_ratios, turns
from sonosco_like.data import Alphabet, BucketSampler, load_audio
from sonosco_like.data.features import LogMel
from sonosco_like.data.normalization import UtteranceNormalization
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.inference import TrainedRecogniser, Transcriber
from sonosco_like.models import DeepSpeech2, DeepSpeech2Encoder, SpectrogramConvolution
from sonosco_like.records import Output

RATE, FILES, MINUTES = 16000, 200, 15
LONGEST, BATCH_SECONDS = 15.0, 120.0
BARE = "bare loop"


def recogniser() -> TrainedRecogniser:
    """Deep Speech 2 of the size of configs/deepspeech2.yaml."""
    torch.manual_seed(0)
    convolutions = [
        SpectrogramConvolution(channels=16, time_kernel=7, frequency_kernel=11, time_stride=2),
        SpectrogramConvolution(channels=32, time_kernel=5, frequency_kernel=5, time_stride=2),
    ]
    encoder = DeepSpeech2Encoder(cell="lstm", hidden_size=192, layers=3, convolutions=convolutions)
    model = DeepSpeech2(vocabulary_size=32, features=40, encoder=encoder)
    return TrainedRecogniser(
        features=LogMel(mels=40),
        normalization=UtteranceNormalization(),
        model=model.eval(),
        decoder=GreedyCTCDecoder(),
        tokenizer=Alphabet(),
    )


def speech(seconds: float, random: np.random.Generator) -> np.ndarray:
    """Noise with a pause of 0.4 s each 2 s."""
    samples = random.normal(scale=0.1, size=int(seconds * RATE)).astype(np.float32)
    samples[np.arange(len(samples)) % (2 * RATE) < int(0.4 * RATE)] *= 0.01
    return samples


def hear(heard: TrainedRecogniser, waveforms: list[torch.Tensor]) -> list[str]:
    """Features, model and decoder by hand."""
    features = [heard.normalization(each) for each in heard.features(waveforms)]  # type: ignore[misc]
    lengths_B = torch.tensor([len(each) for each in features])
    features_BTF = torch.nn.utils.rnn.pad_sequence(features, batch_first=True)
    with torch.no_grad():
        encoded_BSD, encoded_lengths_B = heard.model.encode(features_BTF, lengths_B)
        output = Output(encoded_BSD, encoded_lengths_B, ctc_logits_BSV=heard.model.ctc_logits(encoded_BSD))
        return heard.decoder.texts(output, heard.tokenizer, model=heard.model)


def in_batches(waveforms: list[torch.Tensor], heard: TrainedRecogniser) -> list[str]:
    """The bare loop over batches of similar length."""
    lengths = np.array([len(each) / RATE for each in waveforms])
    plan = BucketSampler(batch_seconds=BATCH_SECONDS, batch_size=64, shuffle=False).plan(lengths, 0, 0)
    return [
        text
        for number in range(len(plan))
        for text in hear(heard, [waveforms[index] for index in plan[number].tolist()])
    ]


def bare_files(paths: list[Path], heard: TrainedRecogniser) -> list[str]:
    """Short recordings."""
    return in_batches([load_audio(path, RATE) for path in paths], heard)


def bare_long(path: Path, heard: TrainedRecogniser) -> list[str]:
    """A long recording in equal parts."""
    return in_batches(list(torch.split(load_audio(path, RATE), int(LONGEST * RATE))), heard)


def processor_seconds(work: Callable[[], object]) -> float:
    """Seconds of one processor; all here runs on one thread, and a busy machine disturbs this less than the clock."""
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(title: str, minutes: float, candidates: dict[str, Callable[[], object]], repeats: int = 5) -> None:
    """Print processor times and the real-time factor; the ratio is the median of those of interleaved rounds."""
    rounds = [{name: processor_seconds(work) for name, work in candidates.items()} for _ in range(turns(repeats) + 1)][
        1:
    ]
    medians = {name: statistics.median(each[name] for each in rounds) for name in candidates}
    ratio = statistics.median(each["transcribe"] / each[BARE] for each in rounds)
    print(f"{title}, {minutes:.1f} minutes of audio")
    print_ratios(medians, BARE)
    print(f"median ratio of the rounds {ratio:.2f} x; real-time factor {medians['transcribe'] / (60 * minutes):.4f}\n")
    report(Row(f"transcribing {title}", ratio, "bare loop over features, model and decoder", goal=1.1))


def main() -> None:
    """Many short recordings, and one long one."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    heard = recogniser()
    transcriber = Transcriber(heard, longest=LONGEST, batch_seconds=BATCH_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number:02d}.wav" for number in range(FILES)]
        lengths = random.uniform(2.0, 10.0, FILES)
        for path, length in zip(paths, lengths, strict=True):
            soundfile.write(path, speech(length, random), RATE)
        long = Path(folder) / "long.wav"
        soundfile.write(long, speech(60 * MINUTES, random), RATE)
        compare(
            f"{FILES} short recordings",
            float(lengths.sum()) / 60,
            {BARE: partial(bare_files, paths, heard), "transcribe": partial(transcriber.transcribe, paths)},
        )
        compare(
            "one long recording",
            MINUTES,
            {BARE: partial(bare_long, long, heard), "transcribe": partial(transcriber, long)},
        )


if __name__ == "__main__":
    main()
