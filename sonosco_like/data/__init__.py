"""Data: from manifests and recordings to batches. Read in the order manifest, sampling, audio, text, dataset, loader.

What is offered here is fetched when it is first used, so that the tools and corpora of this room need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sonosco_like.data.audio import audio_info, load_audio
    from sonosco_like.data.bpe import SentencePieceTokenizer
    from sonosco_like.data.dataset import AudioDataset
    from sonosco_like.data.loader import AudioDataLoader
    from sonosco_like.data.manifest import Manifest, write_manifest
    from sonosco_like.data.part import ManifestPart
    from sonosco_like.data.sampling import BatchPlan, BucketSampler
    from sonosco_like.data.text import Alphabet, TextCleaner, Tokenizer

_HOMES = {
    "Alphabet": "text",
    "AudioDataLoader": "loader",
    "AudioDataset": "dataset",
    "BatchPlan": "sampling",
    "BucketSampler": "sampling",
    "Manifest": "manifest",
    "ManifestPart": "part",
    "SentencePieceTokenizer": "bpe",
    "TextCleaner": "text",
    "Tokenizer": "text",
    "audio_info": "audio",
    "load_audio": "audio",
    "write_manifest": "manifest",
}

__all__ = [
    "Alphabet",
    "AudioDataLoader",
    "AudioDataset",
    "BatchPlan",
    "BucketSampler",
    "Manifest",
    "ManifestPart",
    "SentencePieceTokenizer",
    "TextCleaner",
    "Tokenizer",
    "audio_info",
    "load_audio",
    "write_manifest",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
