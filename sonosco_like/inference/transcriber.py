"""The transcriber: recordings of any kind and length in, their text out, as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sonosco_like.decoding import Decoder
from sonosco_like.errors import DataError, UsageError
from sonosco_like.inference.batching import in_batches
from sonosco_like.inference.cutting import LONGEST, OVERLAP, Cutting, Piece
from sonosco_like.inference.decoders import DecoderSettings
from sonosco_like.inference.joining import join, segment_of
from sonosco_like.inference.reading import Recording, blocks_of, recordings_of, waveform_of
from sonosco_like.inference.recogniser import TrainedRecogniser, load_recogniser
from sonosco_like.inference.transcript import Segment, Transcript
from sonosco_like.records import Hypothesis


@dataclass(frozen=True, slots=True)
class Failure:
    """A recording that could not be read, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Part:
    """One more segment of a recording, or its end: then `segment` is None, and `failure` says if it ended badly."""

    name: str
    segment: Segment | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """A piece of a recording on its way through the model; without a piece, the end of the recording."""

    name: str
    piece: Piece | None = None
    failure: Failure | None = None


class Transcriber:
    """Calls a recogniser for recordings: `transcriber(audio).text`.

    Recordings beyond `longest` seconds are cut at pauses, where there are none into windows with `overlap` seconds in
    common. `batch_seconds` limits what the model hears at once.
    """

    def __init__(
        self,
        recogniser: TrainedRecogniser,
        longest: float | None = None,
        overlap: float | None = None,
        batch_seconds: float = 120.0,
    ) -> None:
        self.recogniser = recogniser
        longest = longest if longest is not None else max(recogniser.longest or LONGEST, 1.0)
        self.cutting = Cutting(longest, min(OVERLAP, longest / 3) if overlap is None else overlap)
        self.batch_seconds = batch_seconds

    def __call__(self, audio: Any, sample_rate: int | None = None) -> Transcript:
        """What is said in a file, or in an array or tensor of samples, which needs its `sample_rate`."""
        if not isinstance(audio, (str, Path)):
            samples_N = waveform_of(audio, sample_rate, self.recogniser.features.sample_rate)
            pieces = self.cutting.pieces([samples_N], self.recogniser.features.sample_rate)
            work = (_Work("array", piece) for piece in pieces)
            return next(_transcripts(self._hear([*work, _Work("array")])))  # type: ignore[return-value]
        with recordings_of([audio]) as recordings:
            if len(recordings) != 1:
                raise UsageError(f"{audio} is a folder of {len(recordings)} recordings; call `transcribe` with it.")
            found = next(self.stream(recordings))
        if isinstance(found, Failure):
            raise DataError(found.reason)
        return found

    def transcribe(self, audio: Iterable[str | Path]) -> list[Transcript | Failure]:
        """What is said in many files and folders, in their order."""
        with recordings_of(list(audio)) as recordings:
            return list(self.stream(recordings))

    def stream(self, recordings: Iterable[Recording]) -> Iterator[Transcript | Failure]:
        """What is said in each recording, as soon as all of it is known."""
        return _transcripts(self.segments(recordings))

    def segments(self, recordings: Iterable[Recording]) -> Iterator[Part]:
        """What is said in each part of each recording, as soon as it is known."""
        return self._hear(work for recording in recordings for work in self._cut(recording))

    def _cut(self, recording: Recording) -> Iterator[_Work]:
        rate = self.recogniser.features.sample_rate
        failure = None
        try:
            for piece in self.cutting.pieces(blocks_of(recording.path, rate, self.cutting.longest), rate):
                yield _Work(recording.name, piece)
        except DataError as error:
            failure = Failure(recording.name, str(error).replace(str(recording.path), recording.shown))
        yield _Work(recording.name, failure=failure)

    def _hear(self, works: Iterable[_Work]) -> Iterator[Part]:
        """Segments in order; each is held back until it is known whether the next one overlaps with it."""
        held: Segment | None = None
        for work, readings in in_batches(works, _seconds, self._readings, self.batch_seconds):
            if work.piece is None:
                if held is not None:
                    yield Part(work.name, held)
                held = None
                yield Part(work.name, failure=work.failure)
                continue
            segment = segment_of(work.piece, readings)
            if held is not None:
                if work.piece.overlaps:
                    held, segment = join(held, segment)
                yield Part(work.name, held)
            held = segment

    def _readings(self, works: list[_Work]) -> list[list[Hypothesis]]:
        audible = {index: work.piece for index, work in enumerate(works) if work.piece and not work.piece.is_silent}
        heard = dict(zip(audible, self._hear_batch(list(audible.values())), strict=True))
        return [heard.get(index, []) for index in range(len(works))]

    def _hear_batch(self, pieces: list[Piece]) -> list[list[Hypothesis]]:
        if not pieces:
            return []
        batch = self.recogniser.batch([torch.from_numpy(piece.samples_N) for piece in pieces])
        return self.recogniser.readings(batch)


def load_transcriber(
    run: str | Path,
    device: str | torch.device | None = None,
    decoder: Decoder | DecoderSettings | None = None,
    longest: float | None = None,
    overlap: float | None = None,
) -> Transcriber:
    """A transcriber from a run folder or a checkpoint; what it does not take from there is given here.

    transcriber = load_transcriber("runs/digits")
    print(transcriber("call.mp3").text)
    """
    recogniser = load_recogniser(run, device)
    if isinstance(decoder, DecoderSettings):
        decoder = decoder.apply(recogniser.decoder, recogniser.model)
    if decoder is not None:
        recogniser = replace(recogniser, decoder=decoder)
    return Transcriber(recogniser, longest, overlap)


def _seconds(work: _Work) -> float:
    return 0.0 if work.piece is None else work.piece.end - work.piece.start


def _transcripts(parts: Iterable[Part]) -> Iterator[Transcript | Failure]:
    segments: list[Segment] = []
    for each in parts:
        if each.segment is not None:
            segments.append(each.segment)
            continue
        yield each.failure or Transcript(each.name, tuple(segments))
        segments = []
