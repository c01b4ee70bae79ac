"""The description of an exported folder: the metadata of its graphs, its symbols, and its search."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sonosco_like.decoding import (
    AttentionBeamDecoder,
    CTCBeamDecoder,
    Decoder,
    GreedyAttentionDecoder,
    GreedyCTCDecoder,
    WordScores,
)
from sonosco_like.errors import UsageError
from sonosco_like.inference import TrainedRecogniser
from sonosco_like.inference.audio_stream import LONGEST
from sonosco_like.inference.transcriber import description_of
from sonosco_like.records import SPECIAL_SYMBOLS, UNKNOWN, UNKNOWN_TEXT
from sonosco_like.runs.run_folder import step_of
from sonosco_like.serialization import TENSOR_FILE, Saved, dumps, hash_file
from sonosco_like.version import __version__

WORD_MARK = "▁"
CTC_GREEDY, ATTENTION_GREEDY, ATTENTION_BEAM = "ctc_greedy", "attention_greedy", "attention_beam"
_OF_BEAM = (
    "beam_size", "length_power", "coverage_weight", "coverage_threshold", "end_threshold", "max_length_ratio",
    "ctc_weight", "ctc_candidates",
)  # fmt: skip


def exportable_decoder(decoder: Decoder) -> tuple[Decoder, str]:
    """The decoder with the settings that an exported folder supports, and a sentence about the others, if any."""
    if isinstance(decoder, CTCBeamDecoder):
        return GreedyCTCDecoder(), (
            "The exported folder decodes greedily: the beam search over CTC, with its language model and hot words, "
            "stays here."
        )
    if isinstance(decoder, AttentionBeamDecoder):
        plain = replace(decoder, n_best=1, words=WordScores())
        said = "Language model, word bonus and hot words of the decoder are not exported."
        is_plain = dumps(decoder.words, state=False) == dumps(plain.words, state=False)
        return plain, "" if is_plain else said
    if isinstance(decoder, (GreedyCTCDecoder, GreedyAttentionDecoder)):
        return decoder, ""
    raise UsageError(
        f"The search of {type(decoder).__name__} cannot be exported. Choose one that can: --decode ctc or attention."
    )


def search_settings(decoder: Decoder) -> dict[str, Any]:
    """The search for `transcribe.py`."""
    if isinstance(decoder, AttentionBeamDecoder):
        return {"kind": ATTENTION_BEAM, **{name: getattr(decoder, name) for name in _OF_BEAM}}
    if isinstance(decoder, GreedyAttentionDecoder):
        return {"kind": ATTENTION_GREEDY, "max_length_ratio": decoder.max_length_ratio, "beam_size": 1, "ctc_weight": 0}
    return {"kind": CTC_GREEDY}


def decoder_of_search(settings: dict[str, Any]) -> Decoder:
    """The decoder from which `search_settings` made these settings."""
    kind, own = settings["kind"], {name: value for name, value in settings.items() if name != "kind"}
    if kind == ATTENTION_BEAM:
        return AttentionBeamDecoder(**own)
    if kind == ATTENTION_GREEDY:
        return GreedyAttentionDecoder(max_length_ratio=own["max_length_ratio"])
    return GreedyCTCDecoder()


def texts_of_labels(symbols: tuple[str, ...]) -> list[str]:
    """What each label adds to a text; the texts of all labels are joined, and blanks at the ends removed."""
    unknown = f" {UNKNOWN_TEXT} " if any(symbol.startswith(WORD_MARK) for symbol in symbols) else UNKNOWN_TEXT
    special = ["" if label != UNKNOWN else unknown for label in range(len(SPECIAL_SYMBOLS))]
    return [*special, *(symbol.replace(WORD_MARK, " ") for symbol in symbols[len(SPECIAL_SYMBOLS) :])]


def metadata_of(recogniser: TrainedRecogniser, takes: str, least_samples: int) -> dict[str, str]:
    """The metadata of every graph of a folder: all that a program must know to use it, and where it comes from."""
    symbols = tuple(recogniser.tokenizer.symbols)
    longest = max(recogniser.max_duration or LONGEST, 1.0)  # as `Transcriber` cuts
    return {
        "sonosco_like": __version__,
        "input": takes,
        "sample_rate": str(recogniser.features.sample_rate),
        "least_samples": str(least_samples),
        "features_per_frame": str(recogniser.features.size),
        "frame_seconds": f"{recogniser.frame_seconds:g}",
        "longest": f"{longest:g}",
        "symbols": json.dumps(symbols, ensure_ascii=False),
        "texts": json.dumps(texts_of_labels(symbols), ensure_ascii=False),
        "search": json.dumps(search_settings(recogniser.decoder)),
        "features": dumps(recogniser.features, state=False),
        "normalization": dumps(recogniser.normalization, state=False) if recogniser.normalization else "",
        **{name: str(each) for name, each in description_of(recogniser).items()},
        **_origin_of(recogniser),
    }


def _origin_of(recogniser: TrainedRecogniser) -> dict[str, str]:
    if recogniser.source is None:
        return {}
    origin = Saved(recogniser.source, tensors=False).origin
    found = {"weights_sha256": hash_file(recogniser.source / TENSOR_FILE)}
    if origin is not None:
        found |= {"run": str(origin.run), "step": str(origin.step)}
    elif step_of(recogniser.source) >= 0:
        found["step"] = str(step_of(recogniser.source))
    return found
