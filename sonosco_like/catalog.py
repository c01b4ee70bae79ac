"""Imports every room, so that each name a config may use is known. Layer 6: nothing below may import this."""

from sonosco_like import callbacks, data, decoding, events, losses, metrics, models, optim
from sonosco_like.data import augment, augment_recordings, loader, pretrained_features, torchaudio_transforms
from sonosco_like.data.corpora import synth
from sonosco_like.export import FORMATS
from sonosco_like.training import experiment

__all__ = [
    "FORMATS", "augment", "augment_recordings", "callbacks", "data", "decoding", "events", "experiment",
    "loader", "losses", "metrics", "models", "optim",
    "pretrained_features", "synth", "torchaudio_transforms",
]  # fmt: skip
