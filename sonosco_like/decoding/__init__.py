"""Searches for the text in a model's output: greedy and beam, n-best lists, times of tokens and words."""

from sonosco_like.decoding.attention_beam import AttentionBeamDecoder
from sonosco_like.decoding.ctc_beam import CTCBeamDecoder
from sonosco_like.decoding.decoder import Decoder, Vocabulary
from sonosco_like.decoding.greedy import GreedyAttentionDecoder, GreedyCTCDecoder, default_decoder
from sonosco_like.decoding.language_model import NGramLanguageModel
from sonosco_like.decoding.scorers import WordScores

__all__ = [
    "AttentionBeamDecoder",
    "CTCBeamDecoder",
    "Decoder",
    "GreedyAttentionDecoder",
    "GreedyCTCDecoder",
    "NGramLanguageModel",
    "Vocabulary",
    "WordScores",
    "default_decoder",
]
