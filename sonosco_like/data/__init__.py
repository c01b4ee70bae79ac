"""Data: from manifests to batches. Read manifest, sampling, audio, features, augment, text, collate, dataset, loader.

Its names are imported when they are first used, so that the rendering of synthetic speech needs no torch.
"""

from typing import TYPE_CHECKING

from sonosco_like.deferred_imports import lazy

if TYPE_CHECKING:
    from sonosco_like.data.audio import audio_info, load_audio
    from sonosco_like.data.augment import FeatureAugmentation, WaveformAugmentation
    from sonosco_like.data.dataset import AudioDataset
    from sonosco_like.data.features import FeatureExtractor
    from sonosco_like.data.loader import AudioDataLoader
    from sonosco_like.data.manifest import Manifest, write_manifest
    from sonosco_like.data.mixing import WeightedManifest
    from sonosco_like.data.normalization import Normalization
    from sonosco_like.data.sampling import BatchPlan, BucketSampler
    from sonosco_like.data.text import Alphabet, SentencePieceTokenizer, TextCleaner, Tokenizer
    from sonosco_like.data.tools.split import ManifestPart

__all__ = [
    "Alphabet", "AudioDataLoader", "AudioDataset", "BatchPlan", "BucketSampler", "FeatureAugmentation",
    "FeatureExtractor", "Manifest", "ManifestPart", "Normalization", "SentencePieceTokenizer", "TextCleaner",
    "Tokenizer", "WaveformAugmentation", "WeightedManifest", "audio_info", "load_audio", "write_manifest",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "audio": "audio_info load_audio",
        "augment": "FeatureAugmentation WaveformAugmentation",
        "dataset": "AudioDataset",
        "features": "FeatureExtractor",
        "loader": "AudioDataLoader",
        "manifest": "Manifest write_manifest",
        "mixing": "WeightedManifest",
        "normalization": "Normalization",
        "sampling": "BatchPlan BucketSampler",
        "text": "Alphabet SentencePieceTokenizer TextCleaner Tokenizer",
        "tools.split": "ManifestPart",
    },
)
