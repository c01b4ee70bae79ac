"""Changes to the decoder of a recogniser, as commands and callers name them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonosco_like.decoding import (
    AttentionBeamDecoder,
    CTCBeamDecoder,
    Decoder,
    GreedyAttentionDecoder,
    GreedyCTCDecoder,
    NGramLanguageModel,
    WordScores,
)
from sonosco_like.errors import UsageError

_BEAMS: dict[type, type] = {GreedyCTCDecoder: CTCBeamDecoder, GreedyAttentionDecoder: AttentionBeamDecoder}


@dataclass(frozen=True)
class DecoderSettings:
    """The settings of a decoder to change; None and empty values leave a setting as it is.

    A greedy decoder gives way to the beam search of its kind where a setting needs one. `kind` chooses between the two
    outputs of a model that has both.
    """

    kind: str | None = None
    beam: int | None = None
    n_best: int | None = None
    language_model: Path | None = None
    language_model_weight: float | None = None
    word_bonus: float | None = None
    hot_words: tuple[str, ...] = ()
    hot_word_bonus: float | None = None
    ctc_weight: float | None = None

    def apply(self, decoder: Decoder, model: Any) -> Decoder:
        """A decoder with these settings; the given one itself if nothing is to change."""
        decoder = self._of_kind(decoder, model)
        search = {"beam_size": self.beam, "n_best": self.n_best, "ctc_weight": self.ctc_weight}
        changes: dict[str, Any] = {name: value for name, value in search.items() if value is not None}
        words = self._words(getattr(decoder, "words", None))
        if words is not None:
            changes["words"] = words
        if not changes:
            return decoder
        if type(decoder) in _BEAMS:
            decoder = _BEAMS[type(decoder)]()
        known = {field.name for field in dataclasses.fields(decoder)}  # type: ignore[arg-type]
        for name in sorted(changes.keys() - known):
            raise UsageError(f"{type(decoder).__name__} has no setting `{name}`; it has {', '.join(sorted(known))}.")
        if "n_best" in changes and getattr(decoder, "beam_size", changes["n_best"]) < changes["n_best"]:
            changes.setdefault("beam_size", changes["n_best"])
        return dataclasses.replace(decoder, **changes)  # type: ignore[type-var]

    def _of_kind(self, decoder: Decoder, model: Any) -> Decoder:
        if self.kind == "ctc" and not isinstance(decoder, (GreedyCTCDecoder, CTCBeamDecoder)):
            if not model.has_ctc:
                raise UsageError(f"This {type(model).__name__} has no CTC output to decode.")
            return GreedyCTCDecoder()
        if self.kind == "attention" and not isinstance(decoder, (GreedyAttentionDecoder, AttentionBeamDecoder)):
            if model.attention_decoder is None:
                raise UsageError(f"This {type(model).__name__} has no attention decoder.")
            return GreedyAttentionDecoder()
        return decoder

    def _words(self, words: WordScores | None) -> WordScores | None:
        language_model = NGramLanguageModel(path=self.language_model) if self.language_model else None
        settings: dict[str, Any] = {
            "language_model": language_model,
            "weight": self.language_model_weight,
            "word_bonus": self.word_bonus,
            "hot_words": list(self.hot_words) or None,
            "hot_word_bonus": self.hot_word_bonus,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        if language_model is not None:
            language_model.load()  # a wrong path is reported now, not in the middle of a recording
        return dataclasses.replace(words or WordScores(), **given) if given else None
