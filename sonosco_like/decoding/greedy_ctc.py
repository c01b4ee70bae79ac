"""The most probable label of each frame, repeats and blanks left out: fast, and good enough to follow a training."""

from __future__ import annotations

import torch

from sonosco_like.decoding.decoder import Decoder, Vocabulary, ctc_log_probs
from sonosco_like.decoding.timing import ctc_spans, hypothesis_of
from sonosco_like.models.interfaces import SpeechModel
from sonosco_like.models.masking import length_mask
from sonosco_like.records import BLANK, Hypothesis, Output
from sonosco_like.serialization import serializable


@serializable
class GreedyCTCDecoder(Decoder):
    """Best-path decoding (Graves et al. 2006) of a whole batch at once; the score is log p of the best path."""

    @torch.no_grad()
    def decode(
        self,
        output: Output,
        vocabulary: Vocabulary,
        *,
        model: SpeechModel | None = None,
        frame_seconds: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """One reading of each utterance."""
        best_BS, paths_BS = ctc_log_probs(output).max(-1)
        padding_BS = ~length_mask(output.encoded_lengths_B, paths_BS.shape[1])
        best_BS, paths_BS = best_BS.masked_fill(padding_BS, 0.0), paths_BS.masked_fill(padding_BS, BLANK)
        scores_B = best_BS.sum(1, dtype=torch.float32).tolist()
        all_spans = ctc_spans(paths_BS.cpu().numpy(), best_BS.cpu().numpy())
        return [
            [hypothesis_of(spans, score, vocabulary, frame_seconds)]
            for spans, score in zip(all_spans, scores_B, strict=True)
        ]
