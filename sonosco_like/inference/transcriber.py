"""The transcriber: from recordings of any kind and length to transcripts, each as soon as it is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sonosco_like.data.sampling import BucketSampler
from sonosco_like.decoding import Decoder
from sonosco_like.errors import DataError, UsageError
from sonosco_like.inference.audio_stream import (
    LONGEST,
    OVERLAP,
    Chunk,
    Recording,
    Samples,
    Segmenter,
    merge_overlaps,
    open_recordings,
    read_blocks,
    segment_of,
    to_waveform,
)
from sonosco_like.inference.recogniser import DecoderSettings, TrainedRecogniser, load_recogniser
from sonosco_like.inference.transcript import Segment, Transcript
from sonosco_like.records import Hypothesis


@dataclass(frozen=True, slots=True)
class Failure:
    """A recording that could not be read, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class StreamItem:
    """One more segment of a recording, or its end without a segment; with a `failure` it could not be read."""

    name: str
    segment: Segment | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class _QueuedChunk:
    """A chunk of a recording that waits for the model; without a chunk, the end of the recording."""

    name: str
    chunk: Chunk | None = None
    failure: Failure | None = None

    @property
    def seconds(self) -> float:
        return 0.0 if self.chunk is None else self.chunk.end - self.chunk.start


class WaveformTranscriber(ABC):
    """From recordings to transcripts, with any object that finds the hypotheses of a batch of waveforms.

    Recordings of more than `longest` seconds are cut at pauses, and where there are none into chunks that share
    `overlap` seconds. `batch_seconds` limits the audio in one batch of the model. `model` says which outputs there are
    to decode, and `about` what the model is.
    """

    decoder: Decoder
    model: Any
    about: dict[str, Any]

    def __init__(self, sample_rate: int, longest: float, overlap: float | None, batch_seconds: float = 120.0) -> None:
        self.sample_rate = sample_rate
        self.segmenter = Segmenter(longest, min(OVERLAP, longest / 3) if overlap is None else overlap)
        self.batch_seconds = batch_seconds

    @abstractmethod
    def hypotheses(self, waveforms: list[Tensor]) -> list[list[Hypothesis]]:
        """The hypotheses of each waveform `samples_N`, the best one first."""

    def __call__(self, audio: Any, sample_rate: int | None = None) -> Transcript:
        """The transcript of a file, or of an array or tensor of samples, which needs its `sample_rate`."""
        if not isinstance(audio, (str, Path)):
            return self.waveforms([to_waveform(audio, sample_rate, self.sample_rate)])[0]
        with open_recordings([audio]) as recordings:
            if len(recordings) != 1:
                raise UsageError(f"{audio} is a folder of {len(recordings)} recordings; call `transcribe` with it.")
            found = next(self.stream(recordings))
        if isinstance(found, Failure):
            raise DataError(found.reason)
        return found

    def transcribe(self, audio: Iterable[str | Path]) -> list[Transcript | Failure]:
        """The transcripts of files and folders, in their order."""
        with open_recordings(list(audio)) as recordings:
            return list(self.stream(recordings))

    def waveforms(self, waveforms: Sequence[Samples]) -> list[Transcript]:
        """The transcripts of mono waveforms at the sample rate of the features; short ones share a batch."""
        rate = self.sample_rate

        def queue() -> Iterator[_QueuedChunk]:
            for samples_N in waveforms:
                yield from (_QueuedChunk("array", chunk) for chunk in self.segmenter.chunks([samples_N], rate))
                yield _QueuedChunk("array")

        return [found for found in _transcripts(self._recognise(queue())) if isinstance(found, Transcript)]

    def stream(self, recordings: Iterable[Recording]) -> Iterator[Transcript | Failure]:
        """The transcript of each recording, as soon as it is complete."""
        return _transcripts(self.segments(recordings))

    def segments(self, recordings: Iterable[Recording]) -> Iterator[StreamItem]:
        """The segments of each recording, each as soon as it is known."""
        return self._recognise(queued for recording in recordings for queued in self._cut(recording))

    def _cut(self, recording: Recording) -> Iterator[_QueuedChunk]:
        rate = self.sample_rate
        failure = None
        try:
            for chunk in self.segmenter.chunks(read_blocks(recording.path, rate, self.segmenter.longest), rate):
                yield _QueuedChunk(recording.name, chunk)
        except DataError as error:
            failure = Failure(recording.name, str(error).replace(str(recording.path), recording.display_name))
        yield _QueuedChunk(recording.name, failure=failure)

    def _recognise(self, queue: Iterable[_QueuedChunk]) -> Iterator[StreamItem]:
        """Segments in order; each is held back until the next chunk shows whether they overlap."""
        held: Segment | None = None
        for queued, hypotheses in in_batches(queue, lambda each: each.seconds, self._decode, self.batch_seconds):
            if queued.chunk is None:
                if held is not None:
                    yield StreamItem(queued.name, held)
                held = None
                yield StreamItem(queued.name, failure=queued.failure)
                continue
            segment = segment_of(queued.chunk, hypotheses)
            if held is not None:
                if queued.chunk.overlaps:
                    held, segment = merge_overlaps(held, segment)
                yield StreamItem(queued.name, held)
            held = segment

    def _decode(self, queue: list[_QueuedChunk]) -> list[list[Hypothesis]]:
        """The hypotheses of each chunk; none for silent chunks, which the model does not get."""
        audible = [index for index, each in enumerate(queue) if each.chunk is not None and not each.chunk.is_silent]
        found: list[list[Hypothesis]] = [[] for _ in queue]
        if audible:
            waveforms = [torch.from_numpy(queue[index].chunk.samples_N) for index in audible]  # type: ignore[union-attr]
            for index, hypotheses in zip(audible, self.hypotheses(waveforms), strict=True):
                found[index] = hypotheses
        return found


class Transcriber(WaveformTranscriber):
    """Calls a recogniser for recordings: `transcriber(audio).text`."""

    def __init__(
        self,
        recogniser: TrainedRecogniser,
        longest: float | None = None,
        overlap: float | None = None,
        batch_seconds: float = 120.0,
    ) -> None:
        self.recogniser = recogniser
        recogniser.model.eval()
        longest = longest if longest is not None else max(recogniser.max_duration or LONGEST, 1.0)
        super().__init__(recogniser.features.sample_rate, longest, overlap, batch_seconds)

    @property
    def decoder(self) -> Decoder:
        """The search of the recogniser."""
        return self.recogniser.decoder

    @decoder.setter
    def decoder(self, decoder: Decoder) -> None:
        self.recogniser.decoder = decoder

    @property
    def model(self) -> Any:
        """The model of the recogniser."""
        return self.recogniser.model

    @property
    def about(self) -> dict[str, Any]:  # type: ignore[override]  # nobody sets it
        """What the recogniser is."""
        return {"kind": "run", **description_of(self.recogniser)}

    def hypotheses(self, waveforms: list[Tensor]) -> list[list[Hypothesis]]:
        """The hypotheses of each waveform, found by the recogniser."""
        return self.recogniser.decode(self.recogniser.batch(waveforms))


def description_of(recogniser: TrainedRecogniser) -> dict[str, Any]:
    """Its architecture, number of parameters, and which weights of the training it has."""
    parameters = sum(each.numel() for each in recogniser.model.parameters())
    return {"architecture": type(recogniser.model).__name__, "parameters": parameters, "weights": recogniser.weights}


def load_transcriber(
    run: str | Path,
    device: str | torch.device | None = None,
    decoder: Decoder | DecoderSettings | None = None,
    longest: float | None = None,
    overlap: float | None = None,
) -> Transcriber:
    """A transcriber from a run folder or a checkpoint; the other arguments replace the settings of the run.

    transcriber = load_transcriber("runs/digits")
    print(transcriber("call.mp3").text)
    """
    recogniser = load_recogniser(run, device)
    if isinstance(decoder, DecoderSettings):
        decoder = decoder.apply(recogniser.decoder, recogniser.model)
    if decoder is not None:
        recogniser.decoder = decoder
    return Transcriber(recogniser, longest, overlap)


def _transcripts(items: Iterable[StreamItem]) -> Iterator[Transcript | Failure]:
    segments: list[Segment] = []
    for each in items:
        if each.segment is not None:
            segments.append(each.segment)
            continue
        yield each.failure or Transcript(each.name, tuple(segments))
        segments = []


T = TypeVar("T")
R = TypeVar("R")
_MOST_IN_BATCH = 64
_BATCHES_IN_ROUND = 8
_FILLED = 0.9  # of a batch by the first round: the rest is for padding


def in_batches(
    items: Iterable[T],
    seconds_of: Callable[[T], float],
    work: Callable[[list[T]], list[R]],
    batch_seconds: float,
) -> Iterator[tuple[T, R]]:
    """Each item with the result of `work`.

    Items are gathered in rounds, sorted by length within a round, and worked on in batches of up to `batch_seconds`
    with padding. The first round is a single batch, so that the first result comes early.
    """
    gathered: list[T] = []
    seconds, limit = 0.0, _FILLED * batch_seconds
    for item in items:
        gathered.append(item)
        seconds += seconds_of(item)
        if seconds >= limit:
            yield from _round(gathered, seconds_of, work, batch_seconds)
            gathered, seconds, limit = [], 0.0, min(4 * limit, _BATCHES_IN_ROUND * batch_seconds)
    yield from _round(gathered, seconds_of, work, batch_seconds)


def _round(
    items: list[T], seconds_of: Callable[[T], float], work: Callable[[list[T]], list[R]], batch_seconds: float
) -> Iterator[tuple[T, R]]:
    if not items:
        return
    lengths = np.array([seconds_of(item) for item in items])
    limit = max(batch_seconds, float(lengths.max()))
    plan = BucketSampler(batch_seconds=limit, batch_size=_MOST_IN_BATCH, shuffle=False).plan(lengths, 0, 0)
    results: dict[int, R] = {}
    for number in range(len(plan)):
        indices = plan[number].tolist()
        results.update(zip(indices, work([items[index] for index in indices]), strict=True))
    yield from ((item, results[index]) for index, item in enumerate(items))
