"""A trained recogniser: from waveforms to readings, with everything it needs and nothing it was trained with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sonosco_like.data.collate import Example, collate
from sonosco_like.data.features import FeatureExtractor
from sonosco_like.data.normalization import Normalization
from sonosco_like.data.text import TextCleaner, Tokenizer
from sonosco_like.decoding import Decoder, default_decoder
from sonosco_like.errors import UsageError
from sonosco_like.inference.checkpoints import find_checkpoint
from sonosco_like.inference.parts import read_parts
from sonosco_like.inference.saved import SavedTrainer
from sonosco_like.models import SpeechModel
from sonosco_like.records import Batch, Hypothesis, Output


@dataclass(frozen=True, slots=True)
class Heard:
    """An utterance, what was said in it, and what was heard."""

    id: str
    reference: str
    hypothesis: str


@dataclass
class TrainedRecogniser:
    """What hears: features and normalization, model, decoder and alphabet, in the order in which they are used."""

    features: FeatureExtractor
    normalization: Normalization | None
    model: Any
    decoder: Decoder
    tokenizer: Tokenizer
    cleaner: TextCleaner | None = None
    longest: float | None = None
    source: Path | None = None
    weights: str = "last"

    def __post_init__(self) -> None:
        if not isinstance(self.model, SpeechModel):
            raise UsageError(
                f"{type(self.model).__name__} cannot be used to transcribe: it lacks what every model of ours has "
                f"(encode, ctc_logits, decoder ...; see sonosco_like/models/interfaces.py)."
            )
        self.model.eval()  # type: ignore[attr-defined]

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        parameter: Tensor = next(self.model.parameters())
        return parameter.device

    @property
    def frame_seconds(self) -> float:
        """Seconds that one encoded frame stands for."""
        return float(self.features.frame_shift * self.model.frame_reduction)

    def batch(self, waveforms: Sequence[Tensor]) -> Batch:
        """Waveforms `samples_N` at the rate of the features as one batch without labels."""
        made = self.features(waveforms)
        if self.normalization is not None:
            made = [self.normalization(features_TF) for features_TF in made]
        return collate([Example("", "", 0.0, features_TF, []) for features_TF in made])

    @torch.no_grad()
    def readings(self, batch: Batch) -> list[list[Hypothesis]]:
        """What is heard in each utterance of a batch, decoded freely, the best reading first."""
        batch = batch.to(self.device)
        encoded_BSD, encoded_lengths_B = self.model.encode(batch.features_BTF, batch.feature_lengths_B)
        output = Output(encoded_BSD, encoded_lengths_B)
        if self.model.has_ctc:
            output.ctc_logits_BSV = self.model.ctc_logits(encoded_BSD)
        return self.decoder.decode(output, self.tokenizer, model=self.model, frame_seconds=self.frame_seconds)

    def predict(self, loader: Iterable[Batch]) -> Iterator[Heard]:
        """What is heard in each utterance of the batches of a loader."""
        for batch in loader:
            texts = [readings[0].text for readings in self.readings(batch)]
            yield from map(Heard, batch.ids, batch.texts, texts)


def load_recogniser(run: str | Path, device: str | torch.device | None = None) -> TrainedRecogniser:
    """The recogniser of a run folder or a checkpoint.

    Only the parts that hear are built: neither the training data nor the optimizer is touched.
    """
    saved = SavedTrainer(find_checkpoint(run))
    parts = read_parts(saved)
    if parts.features is None or parts.tokenizer is None:
        raise UsageError(
            f"{saved.folder} cannot be used to transcribe: it must hold a trainer with a `model` and a data loader "
            f"whose `dataset` has `features` and a `tokenizer`, as AudioDataset does."
        )
    return TrainedRecogniser(
        features=parts.features,
        normalization=parts.normalization,
        model=parts.model.to(device_of(device)),
        decoder=parts.decoder or default_decoder(parts.model),
        tokenizer=parts.tokenizer,
        cleaner=parts.cleaner,
        longest=parts.max_duration,
        source=saved.folder,
        weights=parts.weights,
    )


def device_of(name: str | torch.device | None) -> torch.device:
    """The device of a name; without one a GPU if there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"The device {str(name)!r} cannot be used here: {reason}. Try cpu.") from None
    return device
