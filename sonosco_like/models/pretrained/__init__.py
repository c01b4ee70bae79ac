"""Pretrained encoders of other projects: their layers, the names of their tensors, and their folders."""

from sonosco_like.models.pretrained.folder import WeightFolder, is_foreign
from sonosco_like.models.pretrained.wav2vec2 import Wav2Vec2Encoder
from sonosco_like.models.pretrained.weights import ForeignWeights, OutputLayer, read_weights
from sonosco_like.models.pretrained.whisper import WhisperEncoder

__all__ = [
    "ForeignWeights", "OutputLayer", "Wav2Vec2Encoder", "WeightFolder", "WhisperEncoder", "is_foreign", "read_weights",
]  # fmt: skip
