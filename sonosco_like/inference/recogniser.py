"""A trained recogniser, from waveforms to hypotheses, how its decoder is changed, and where a saved trainer keeps it.

The trainer writes into its state, as plain data, where the parts are and which weights it uses, so that nothing here
depends on how a trainer is built. The data, the optimizer's moments and the callbacks are not read: a run can be used
on a machine that never had its corpus."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sonosco_like.data.dataset import Example, collate
from sonosco_like.data.features import FeatureExtractor
from sonosco_like.data.normalization import Normalization
from sonosco_like.data.text import TextCleaner, Tokenizer
from sonosco_like.decoding import (
    AttentionBeamDecoder,
    CTCBeamDecoder,
    Decoder,
    GreedyAttentionDecoder,
    GreedyCTCDecoder,
    NGramLanguageModel,
    WordScores,
    default_decoder,
)
from sonosco_like.errors import UsageError, as_sentence
from sonosco_like.models import SpeechModel
from sonosco_like.models.adapters import merge_adapters
from sonosco_like.records import Batch, Hypothesis, Output, Prediction
from sonosco_like.runs.checkpoints import find_checkpoint
from sonosco_like.serialization import Saved, serializable

_BEAMS: dict[type, type] = {GreedyCTCDecoder: CTCBeamDecoder, GreedyAttentionDecoder: AttentionBeamDecoder}


@dataclass(frozen=True)
class DecoderSettings:
    """The settings of a decoder to change; None and empty values leave a setting as it is.

    A greedy decoder is replaced by the beam search of its kind if a setting needs one. `kind` chooses between the two
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


RECOGNISER = "recogniser"
"""The entry in the `state_dict` of a trainer: `parts` are paths by name, `averaged_weights` an address or nothing."""
AVERAGED, LAST = "averaged", "last"
_LOADERS = ("train_data_loader", "val_data_loader", "test_data_loader")
_OF_DATASET = ("features", "normalization", "tokenizer", "cleaner", "max_duration")


@serializable
class TrainedRecogniser:
    """Features, normalization, model, decoder and tokenizer, in the order in which they are used.

    `weights` says which weights the model has: the `last` ones of the training, or their moving average (`averaged`).
    `max_duration` is the length in seconds of the longest utterance in the training. `source` is the folder from which
    it was loaded.
    """

    features: FeatureExtractor
    model: Any
    decoder: Decoder
    tokenizer: Tokenizer
    normalization: Normalization | None = None
    cleaner: TextCleaner | None = None
    max_duration: float | None = None
    weights: str = LAST

    def __post_init__(self) -> None:
        self.source: Path | None = None
        if not isinstance(self.model, SpeechModel):
            raise UsageError(
                f"{type(self.model).__name__} cannot be used to transcribe: it lacks what every model of ours has "
                f"(encode, ctc_logits, decoder ...; see sonosco_like/models/recogniser.py)."
            )

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        parameter: Tensor = next(self.model.parameters())
        return parameter.device

    @property
    def frame_seconds(self) -> float:
        """The length of one encoded frame in seconds."""
        return float(self.features.frame_shift * self.model.frame_reduction)

    def batch(self, waveforms: Sequence[Tensor]) -> Batch:
        """Waveforms `samples_N` at the sample rate of the features as one batch without labels."""
        made = self.features(waveforms)
        if self.normalization is not None:
            made = [self.normalization(features_TF) for features_TF in made]
        return collate([Example("", "", 0.0, features_TF, []) for features_TF in made])

    @torch.no_grad()
    def encode(self, batch: Batch) -> Output:
        """The output of the model for a batch, which any decoder of its kind can search."""
        batch = batch.to(self.device)
        encoded_BSD, encoded_lengths_B = self.model.encode(batch.features_BTF, batch.feature_lengths_B)
        output = Output(encoded_BSD, encoded_lengths_B)
        if self.model.has_ctc:
            output.ctc_logits_BSV = self.model.ctc_logits(encoded_BSD)
        return output

    @torch.no_grad()
    def decode(self, batch: Batch) -> list[list[Hypothesis]]:
        """The hypotheses of each utterance of a batch, the best one first; the decoder sees no reference text."""
        output = self.encode(batch)
        return self.decoder.decode(output, self.tokenizer, model=self.model, frame_seconds=self.frame_seconds)

    def predict(self, loader: Iterable[Batch]) -> Iterator[Prediction]:
        """The prediction for each utterance of the batches of a loader."""
        for batch in loader:
            texts = [hypotheses[0].text for hypotheses in self.decode(batch)]
            yield from map(Prediction, batch.ids, batch.texts, texts)


def load_recogniser(run: str | Path, device: str | torch.device | None = None) -> TrainedRecogniser:
    """The recogniser of a run folder, a checkpoint, or a folder that `ExportForInference` wrote.

    Only the parts of the recogniser are built, not the training data and the optimizer.
    """
    recogniser = read_recogniser(Saved(find_checkpoint(run)))
    recogniser.model.to(device_of(device)).eval()
    return recogniser


def read_recogniser(saved: Saved) -> TrainedRecogniser:
    """The recogniser in a saved folder: as it was exported, or as the parts of a trainer."""
    is_exported = saved.paths(TrainedRecogniser)[:1] == [""]
    recogniser = saved.build(TrainedRecogniser) if is_exported else _of_trainer(SavedParts(saved))
    merge_adapters(recogniser.model)
    recogniser.source = saved.folder
    return recogniser


def _of_trainer(parts: SavedParts) -> TrainedRecogniser:
    kinds = {
        "model": Any,
        "features": FeatureExtractor,
        "tokenizer": Tokenizer,
        "decoder": Decoder,
        "normalization": Normalization,
        "cleaner": TextCleaner,
        "max_duration": float,
    }
    found = parts.read(kinds)
    if "features" not in found or "tokenizer" not in found:
        raise UsageError(
            f"{parts.folder} cannot be used to transcribe: it must hold a trainer with a `model` and a data loader "
            f"whose `dataset` has `features` and a `tokenizer`, as AudioDataset does."
        )
    found.setdefault("decoder", default_decoder(found["model"]) if isinstance(found["model"], SpeechModel) else None)
    averaged = parts.averaged_weights()
    recogniser = TrainedRecogniser(**found, weights=AVERAGED if averaged else parts.label)
    if averaged:
        recogniser.model.load_state_dict(averaged)
    return recogniser


def device_of(name: str | torch.device | None) -> torch.device:
    """The device with a name; without a name a GPU if there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"The device {str(name)!r} cannot be used here: {as_sentence(reason)} Try cpu.") from None
    return device


class SavedParts:
    """The parts of a recogniser in a saved trainer, or in a folder that an older `ExportForInference` wrote."""

    def __init__(self, saved: Saved) -> None:
        self.folder: Path = saved.folder
        self._saved = saved
        written = saved.state("", "state_dict", RECOGNISER) or _layout_of_older_version(saved)
        self._paths: dict[str, str] = written["parts"]
        self._averaged: list[str] | None = written.get("averaged_weights")

    def read(self, kinds: dict[str, Any]) -> dict[str, Any]:
        """The parts of the folder by name, each read as its type in `kinds`; raises UsageError without a model."""
        present = {name: path for name, path in self._paths.items() if name in kinds and self._saved.has(path)}
        if "model" not in present:
            raise UsageError(f"{self.folder} cannot be used to transcribe: it must hold a trainer with a `model`.")
        found = self._saved.read_all({path: kinds[name] for name, path in present.items()})
        return dict(zip(present, found, strict=True))

    def averaged_weights(self) -> dict[str, Tensor]:
        """The moving average of the weights if the trainer is used with it; else nothing."""
        return dict(self._saved.state(*self._averaged) or {}) if self._averaged else {}

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the data, if the folder has one."""
        path = self._paths.get("tokenizer")
        return self._saved.read(path, Tokenizer) if path is not None and self._saved.has(path) else None

    @property
    def label(self) -> str:
        """The label that an older export gives its weights; the weights of a trainer are the `last` ones."""
        written = self._saved.get("weights")
        return written if isinstance(written, str) else LAST


def _layout_of_older_version(saved: Saved) -> dict[str, Any]:
    """The layout of a folder that does not record it, from the names of the fields of older trainers."""
    loader = next((name for name in _LOADERS if saved.has(f"{name}.dataset.tokenizer")), None)
    of_data = {name: f"{loader}.dataset.{name}" for name in _OF_DATASET if loader is not None}
    used = saved.state("", "state_dict", "used_weights") or {}
    averaged = None if _is_used_plain(used, saved) else ["averaging", "state_dict", "weights"]
    return {"parts": {"model": "model", "decoder": "decoder", **of_data}, "averaged_weights": averaged}


def _is_used_plain(used: dict[str, Any], saved: Saved) -> bool:
    """Whether a measure of the weights themselves, and not of their average, chose these weights or this step."""
    if used.get("origin"):
        return used.get("kind") == "plain"
    step = saved.state("", "position", "global_step") or saved.state("", "global_step")  # where version 1 had it
    return used.get("judged") == "plain" and used.get("judged_at") == step
