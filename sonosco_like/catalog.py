"""Imports every room, so that each name a config may use is known. Layer 6: nothing below may import this."""

from sonosco_like import callbacks, data, decoding, events, losses, metrics, models, optim, training
from sonosco_like.data import augment_features, augment_recordings, augment_waveform, bpe, loader
from sonosco_like.data.corpora import synthetic

__all__ = [
    "augment_features", "augment_recordings", "augment_waveform", "bpe", "callbacks", "data", "decoding", "events",
    "loader", "losses", "metrics", "models", "optim", "synthetic", "training",
]  # fmt: skip
