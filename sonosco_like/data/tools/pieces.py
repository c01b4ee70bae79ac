"""Word pieces from the texts of manifests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.text import SentencePieceTokenizer, TextCleaner
from sonosco_like.data.tools.files import claim_file
from sonosco_like.errors import DataError, UsageError
from sonosco_like.progress import Progress, no_progress


def learn_pieces(
    sources: Sequence[Path],
    output: Path,
    size: int,
    kind: Literal["bpe", "unigram"] = "bpe",
    cleaner: TextCleaner | None = None,
    force: bool = False,
    progress: Progress = no_progress,
) -> SentencePieceTokenizer:
    """Learn a vocabulary of `size` labels from the texts of manifests, and write it to the file `output`.

    Texts are cleaned as the cleaner of a dataset does by default. The same manifests give the same file, bit for bit.
    """
    if not sources:
        raise UsageError("Name at least one manifest to learn word pieces from.")
    claim_file(output, force)
    cleaner = cleaner or TextCleaner()
    texts = [text for source in sources for text in _texts(source, cleaner, progress)]
    if not any(texts):
        raise DataError(f"There is no text to learn from in {', '.join(map(str, sources))}: all texts are empty.")
    output.parent.mkdir(parents=True, exist_ok=True)
    with progress(f"learning {size} labels", len(texts), "texts") as advance:
        pieces = SentencePieceTokenizer.train(texts, output, size, kind)
        advance(len(texts))
    return pieces


def _texts(source: Path, cleaner: TextCleaner, progress: Progress) -> Iterator[str]:
    manifest = Manifest.read(source)
    with progress(f"reading {source}", len(manifest), "texts") as advance:
        for utterance in manifest:
            yield cleaner(utterance.text)
            advance(1)
