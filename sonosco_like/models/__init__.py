"""Models: LAS, TDS, DeepSpeech2, Conformer, and the parts they are made of."""

from sonosco_like.models.attention import Attention
from sonosco_like.models.conformer import Conformer, ConformerEncoder
from sonosco_like.models.deepspeech2 import DeepSpeech2, DeepSpeech2Encoder, SpectrogramConvolution
from sonosco_like.models.interfaces import AttentionDecoder, DecoderState, SpeechModel
from sonosco_like.models.key_value_decoder import KeyValueDecoder
from sonosco_like.models.las import LAS
from sonosco_like.models.listener import Listener
from sonosco_like.models.parts import Decoder, Encoder, Recogniser
from sonosco_like.models.speller import Speller
from sonosco_like.models.tds import TDS, TDSEncoder, TDSGroup

__all__ = [
    "LAS",
    "TDS",
    "Attention",
    "AttentionDecoder",
    "Conformer",
    "ConformerEncoder",
    "Decoder",
    "DecoderState",
    "DeepSpeech2",
    "DeepSpeech2Encoder",
    "Encoder",
    "KeyValueDecoder",
    "Listener",
    "Recogniser",
    "SpectrogramConvolution",
    "SpeechModel",
    "Speller",
    "TDSEncoder",
    "TDSGroup",
]
