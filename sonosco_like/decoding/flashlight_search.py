"""The prefix beam search of the package flashlight-text (extra `decode`), for one utterance."""

from __future__ import annotations

import importlib.util

import numpy as np
from numpy.typing import NDArray

from sonosco_like.decoding.prefix_search import Reading
from sonosco_like.errors import MissingPackageError
from sonosco_like.records import BLANK


def is_installed() -> bool:
    """Whether flashlight-text can be imported."""
    return importlib.util.find_spec("flashlight") is not None


def flashlight_beam_search(
    log_probs_SV: NDArray[np.floating], beam_size: int, threshold: float = 50.0, n_best: int = 1
) -> list[Reading]:
    """As `prefix_beam_search` without words: the same readings, scores and paths, unless scores are equal."""
    try:
        from flashlight.lib.text.decoder import CriterionType, LexiconFreeDecoder, LexiconFreeDecoderOptions, ZeroLM
    except ImportError:
        raise MissingPackageError(
            "The package flashlight-text is not installed (pip install 'sonosco_like[decode]'). "
            "The engine `builtin` needs nothing and gives the same result."
        ) from None
    # What is never said need not be searched; sorted, so that BLANK stays the first.
    possible = np.union1d([BLANK], np.flatnonzero(log_probs_SV.max(axis=0, initial=-np.inf) > -np.inf))
    emissions_SV = np.ascontiguousarray(log_probs_SV[:, possible], np.float32)
    frames, labels = emissions_SV.shape
    options = LexiconFreeDecoderOptions(
        beam_size=beam_size,
        beam_size_token=labels,
        beam_threshold=threshold,
        lm_weight=0.0,
        sil_score=0.0,
        log_add=True,
        criterion_type=CriterionType.CTC,
    )
    # Its silence is the label it assumes before the first frame; with BLANK there, no label is taken for a repeat.
    search = LexiconFreeDecoder(options, ZeroLM(), BLANK, BLANK, [])
    results = search.decode(emissions_SV.ctypes.data, frames, labels)
    return [Reading(result.score, possible[result.tokens[1:-1]]) for result in results[:n_best]]
