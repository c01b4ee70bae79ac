"""Batches of noise with labels, and one of every kind of model at a size that costs nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from sonosco_like.models import (
    LAS,
    TDS,
    Attention,
    Conformer,
    ConformerEncoder,
    DeepSpeech2,
    DeepSpeech2Encoder,
    KeyValueDecoder,
    Listener,
    Recogniser,
    SpectrogramConvolution,
    Speller,
    TDSEncoder,
    TDSGroup,
)  # fmt: skip
from sonosco_like.records import Batch

VOCABULARY, FEATURES = 12, 16
COMMON = {"vocabulary_size": VOCABULARY, "features": FEATURES}


def _make_batch(frames: list[int], labels: list[int], seed: int = 0) -> Batch:
    """Utterances of noise with so many frames and random labels, padded to the longest."""
    generator = torch.Generator().manual_seed(seed)
    batch = Batch(
        features_BTF=torch.zeros(len(frames), max(frames), FEATURES),
        feature_lengths_B=torch.tensor(frames),
        labels_BU=torch.zeros(len(labels), max(labels), dtype=torch.int64),
        label_lengths_B=torch.tensor(labels),
    )
    for row, (length, count) in enumerate(zip(frames, labels, strict=True)):
        batch.features_BTF[row, :length] = torch.randn(length, FEATURES, generator=generator)
        batch.labels_BU[row, :count] = torch.randint(4, VOCABULARY, (count,), generator=generator)
    return batch


def _convolutions() -> list[SpectrogramConvolution]:
    return [
        SpectrogramConvolution(channels=4, time_kernel=5, frequency_kernel=5, time_stride=2),
        SpectrogramConvolution(channels=4, time_kernel=3, frequency_kernel=3),
    ]


def deepspeech2(**encoder) -> DeepSpeech2:
    fields = {"convolutions": _convolutions(), "hidden_size": 24, "layers": 2, **encoder}
    return DeepSpeech2(**COMMON, encoder=DeepSpeech2Encoder(**fields))


def las(ctc: bool = True, **attention) -> LAS:
    speller = Speller(
        hidden_size=24, embedding_size=8, attention=Attention(**{"size": 16, "location_kernel": 5, **attention})
    )
    return LAS(**COMMON, encoder=Listener(hidden_size=12, layers=2), decoder=speller, ctc=ctc)


def tds(ctc: bool, attention_decoder: KeyValueDecoder | None, norm_over: str = "utterance") -> TDS:
    groups = [TDSGroup(channels=2, blocks=1, kernel=5), TDSGroup(channels=3, blocks=1, kernel=5)]
    encoder = TDSEncoder(groups=groups, dropout=0.0, norm_over=norm_over)
    return TDS(**COMMON, encoder=encoder, attention_decoder=attention_decoder, ctc=ctc)


def conformer(**fields) -> Conformer:
    encoder = ConformerEncoder(size=24, layers=2, heads=2, kernel=5, channels=4, dropout=0.0)
    return Conformer(**COMMON, encoder=encoder, **fields)


MODELS: dict[str, Callable[[], Recogniser]] = {
    "deepspeech2": deepspeech2,
    "deepspeech2-lstm-without-norm": lambda: deepspeech2(cell="lstm", batch_norm=False),
    "deepspeech2-rnn-streaming": lambda: deepspeech2(cell="rnn", bidirectional=False, look_ahead=3),
    "las-dot": lambda: las(ctc=False, kind="dot"),
    "las-mlp-heads": lambda: las(kind="mlp", heads=2),
    "las-location": lambda: las(kind="location"),
    "las-frames-per-label": lambda: las(kind="location", frames_per_label=2.0),
    "tds-attention": lambda: tds(ctc=False, attention_decoder=KeyValueDecoder(size=24, window_sigma=4.0)),
    "tds-ctc": lambda: tds(ctc=True, attention_decoder=None, norm_over="frame"),
    "conformer-ctc": conformer,
    "conformer-hybrid": lambda: conformer(attention_decoder=KeyValueDecoder(size=24)),
}
ATTENTION_MODELS = [name for name in MODELS if name.startswith("las") or "attention" in name or "hybrid" in name]


@pytest.fixture(params=MODELS)
def model(request) -> Recogniser:
    """Each kind of model, freshly made."""
    torch.manual_seed(1)
    return MODELS[request.param]()


@pytest.fixture(params=ATTENTION_MODELS)
def attention_model(request) -> Recogniser:
    """Each kind of model with an attention decoder."""
    torch.manual_seed(1)
    return MODELS[request.param]()


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """Utterances of noise: `make_batch(frames, labels)` with the lengths of each."""
    return _make_batch


@pytest.fixture
def make_model() -> Callable[[str], Recogniser]:
    """A model of a named kind."""
    return lambda name: MODELS[name]()
