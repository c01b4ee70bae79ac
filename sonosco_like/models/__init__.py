"""Models: LAS, TDS, DeepSpeech2, Conformer, pretrained encoders, and the parts they are made of."""

from sonosco_like.models.adapters import LowRankAdapters
from sonosco_like.models.attention import Attention
from sonosco_like.models.conformer import Conformer, ConformerEncoder
from sonosco_like.models.deepspeech2 import DeepSpeech2, DeepSpeech2Encoder, SpectrogramConvolution
from sonosco_like.models.las import LAS, Listener, Speller
from sonosco_like.models.pretrained import Wav2Vec2Encoder, WhisperEncoder
from sonosco_like.models.recogniser import (
    AttentionDecoder,
    DecoderState,
    Encoder,
    Recogniser,
    SpeechModel,
)
from sonosco_like.models.tds import TDS, KeyValueDecoder, TDSEncoder, TDSGroup

__all__ = [
    "LAS",
    "TDS",
    "Attention",
    "AttentionDecoder",
    "Conformer",
    "ConformerEncoder",
    "DecoderState",
    "DeepSpeech2",
    "DeepSpeech2Encoder",
    "Encoder",
    "KeyValueDecoder",
    "Listener",
    "LowRankAdapters",
    "Recogniser",
    "SpectrogramConvolution",
    "SpeechModel",
    "Speller",
    "TDSEncoder",
    "TDSGroup",
    "Wav2Vec2Encoder",
    "WhisperEncoder",
]
