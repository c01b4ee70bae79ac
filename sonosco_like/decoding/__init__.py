"""From a model's output to text: greedy and beam searches, n-best lists, times of tokens and words."""

from sonosco_like.decoding.attention_beam import AttentionBeamDecoder
from sonosco_like.decoding.ctc_beam import CTCBeamDecoder
from sonosco_like.decoding.decoder import Decoder, Vocabulary
from sonosco_like.decoding.default import default_decoder
from sonosco_like.decoding.greedy_attention import GreedyAttentionDecoder
from sonosco_like.decoding.greedy_ctc import GreedyCTCDecoder
from sonosco_like.decoding.language_model import NGramLanguageModel
from sonosco_like.decoding.word_scores import WordScores

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
