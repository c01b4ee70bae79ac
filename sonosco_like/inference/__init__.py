"""Transcription with a trained recogniser: from a run folder and a recording to text."""

from sonosco_like.inference.recogniser import DecoderSettings, TrainedRecogniser, load_recogniser
from sonosco_like.inference.transcriber import Failure, Transcriber, load_transcriber
from sonosco_like.inference.transcript import Segment, Transcript

__all__ = [
    "DecoderSettings",
    "Failure",
    "Segment",
    "TrainedRecogniser",
    "Transcriber",
    "Transcript",
    "load_recogniser",
    "load_transcriber",
]
