"""Using what was trained: from a run folder and a recording to text."""

from sonosco_like.inference.checkpoints import find_checkpoint
from sonosco_like.inference.decoders import DecoderSettings
from sonosco_like.inference.recogniser import TrainedRecogniser, load_recogniser
from sonosco_like.inference.transcriber import Failure, Transcriber, load_transcriber
from sonosco_like.inference.transcript import Segment, Transcript

__all__ = [
    "DecoderSettings",
    "Failure",
    "Segment",
    "TrainedRecogniser",
    "Transcriber",
    "Transcript",
    "find_checkpoint",
    "load_recogniser",
    "load_transcriber",
]
