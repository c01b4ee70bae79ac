"""Which decoder to use when nobody chose one."""

from __future__ import annotations

from typing import Any

from sonosco_like.decoding.decoder import Decoder
from sonosco_like.decoding.greedy_attention import GreedyAttentionDecoder
from sonosco_like.decoding.greedy_ctc import GreedyCTCDecoder


def default_decoder(model: Any) -> Decoder:
    """The greedy one: of the attention decoder if the model has one, since it has the last word, else of CTC."""
    return GreedyCTCDecoder() if getattr(model, "decoder", None) is None else GreedyAttentionDecoder()
