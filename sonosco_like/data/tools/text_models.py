"""What is learned from texts: word pieces, and word n-gram language models as ARPA text.

The language models are interpolated modified Kneser-Ney (Chen and Goodman 1998). The probability of a word after a
history is its discounted share of the words seen there, plus what was discounted times its probability after the
history without its first word. The shorter n-grams are not counted by how often they occur, but by how many different
words they follow, since they are asked only where the longer ones do not help.

Shape suffixes: P positions in the texts, N n-grams of one order."""

from __future__ import annotations

import gzip
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.text import SentencePieceTokenizer, TextCleaner
from sonosco_like.data.tools.files import claim_file
from sonosco_like.errors import DataError, UsageError, as_sentence
from sonosco_like.progress import Progress, no_progress
from sonosco_like.serialization import replace_file
from sonosco_like.untrusted_files import open_text, read_lines

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
UNKNOWN, START, END = range(3)  # the numbers of the words that are in no text
_MARKS = ["<unk>", "<s>", "</s>"]
_FALLBACK = (0.5, 1.0, 1.5)  # as KenLM's --discount_fallback
_NEVER = -99.0  # log10 of zero, as SRILM writes it


@dataclass
class LearnedModel:
    """What was learned: the number of texts, of words, and of n-grams by order; orders with assumed discounts."""

    texts: int
    words: int
    ngrams: list[int] = field(default_factory=list)
    assumed: list[int] = field(default_factory=list)


def learn_language_model(
    sources: Sequence[Path],
    output: Path,
    order: int = 3,
    cleaner: TextCleaner | None = None,
    closed: bool = False,
    force: bool = False,
    progress: Progress = no_progress,
) -> LearnedModel:
    """Learn a model from the texts of manifests, or from text files (.txt) with a sentence in each line.

    A `closed` model gives words that are in no text no probability at all. The same texts give the same file.
    """
    if not sources:
        raise UsageError("Name at least one manifest or text file to learn from.")
    if order < 1:
        raise UsageError(f"The order of a language model must be at least 1, got {order}.")
    claim_file(output, force)
    cleaner = cleaner or TextCleaner()
    corpus = _Corpus.of(cleaner(text) for source in sources for text in _texts(source, progress))
    if len(corpus.words) == len(_MARKS):
        raise DataError(f"There is no text to learn from in {', '.join(map(str, sources))}: all texts are empty.")
    longest = int(corpus.depth_P.max()) + 1
    if order > longest:
        raise UsageError(
            f"The longest text has {longest - 2} words, too few for order {order}. Take --order {longest}."
        )
    learned = LearnedModel(int((corpus.depth_P == 0).sum()), len(corpus.words) - len(_MARKS))
    with progress(f"learning order {order}", len(corpus.tokens_P), "words") as advance:
        lines = list(_arpa_lines(corpus, order, closed, learned))
        advance(len(corpus.tokens_P))
    content = "\n".join(lines).encode()
    output.parent.mkdir(parents=True, exist_ok=True)
    replace_file(output, gzip.compress(content, mtime=0) if output.suffix == ".gz" else content)
    return learned


def _texts(source: Path, progress: Progress) -> Iterator[str]:
    if source.suffix == ".txt" or source.name.endswith(".txt.gz"):
        yield from _lines(source, progress)
        return
    yield from _manifest_texts(source, progress)


def _lines(source: Path, progress: Progress) -> Iterator[str]:
    try:
        with open_text(source) as stream, progress(f"reading {source}", None, "texts") as advance:
            for line in read_lines(stream, source):
                yield line.decode()
                advance(1)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{source} cannot be read as UTF-8 text, plain or gzip: {as_sentence(error)}") from None


class _Corpus(NamedTuple):
    """All texts in a row.

    ```
    words     the word of each number
    tokens_P  the number of the word at each position; each text begins with START and ends with END
    depth_P   the place of each position in its text
    ```
    """

    words: list[str]
    tokens_P: Ints
    depth_P: Ints

    @classmethod
    def of(cls, texts: Iterable[str]) -> _Corpus:
        """Texts without words are left out."""
        numbers = {mark: number for number, mark in enumerate(_MARKS)}
        tokens, depth = array("q"), array("q")
        for text in texts:
            words = [word for word in text.split() if word not in _MARKS]
            if words:
                tokens.append(START)
                tokens.extend([numbers.setdefault(word, len(numbers)) for word in words])
                tokens.append(END)
                depth.extend(range(len(words) + 2))
        return cls(list(numbers), np.array(tokens, np.int64), np.array(depth, np.int64))


class _NGrams(NamedTuple):
    """The different n-grams of one order.

    ```
    at_P      the n-gram that ends at each position, -1 where the text is too short
    prefix_N  the n-gram of the order below without the last word
    suffix_N  the n-gram of the order below without the first word
    word_N    the last word
    counts_N  how often it occurs
    ```
    """

    at_P: Ints
    prefix_N: Ints
    suffix_N: Ints
    word_N: Ints
    counts_N: Ints


def _count(corpus: _Corpus, order: int) -> list[_NGrams]:
    """The n-grams of each order, from 1 on."""
    size = len(corpus.words)
    nothing = np.zeros(size, np.int64)
    found = [_NGrams(corpus.tokens_P, nothing, nothing, np.arange(size), np.bincount(corpus.tokens_P, minlength=size))]
    for length in range(2, order + 1):
        before_P = found[-1].at_P
        ends = np.flatnonzero(corpus.depth_P >= length - 1)
        keys = before_P[ends - 1] * size + corpus.tokens_P[ends]
        _, first, numbers, counts_N = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        at_P = np.full(len(corpus.tokens_P), -1)
        at_P[ends] = numbers
        place = ends[first]
        found.append(_NGrams(at_P, before_P[place - 1], before_P[place], corpus.tokens_P[place], counts_N))
    return found


def _adjusted_counts(corpus: _Corpus, orders: Sequence[_NGrams]) -> list[Ints]:
    """For each order but the highest, the number of different words before an n-gram; at the start of a text nothing is
    before it, and it keeps its count."""
    adjusted = []
    for length, (ngrams, longer) in enumerate(pairwise(orders), 1):
        counts_N = np.bincount(longer.suffix_N, minlength=len(ngrams.word_N))
        at_start = ngrams.at_P[corpus.depth_P == length - 1]
        counts_N[at_start] = ngrams.counts_N[at_start]
        adjusted.append(counts_N)
    adjusted.append(orders[-1].counts_N)
    adjusted[0][START] = 0  # no text has it behind a word
    return adjusted


def _discounts(counts_N: Ints) -> tuple[Floats, bool]:
    """(what is taken off a count of 0, 1, 2, and 3 or more; whether that is assumed and not computed)."""
    n1, n2, n3, n4 = (int((counts_N == count).sum()) for count in (1, 2, 3, 4))
    if min(n1, n2, n3, n4) > 0:
        share = n1 / (n1 + 2 * n2)
        found = (1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3)
        if all(0 <= discount <= count for count, discount in enumerate(found, 1)):
            return np.array([0.0, *found]), False
    return np.array([0.0, *_FALLBACK]), True


class _Estimate(NamedTuple):
    """The probability of the last word of each n-gram, and the share that each history H leaves to shorter ones.

    A history that nothing follows has the share NaN.
    """

    p_N: Floats
    left_H: Floats


def _estimate(ngrams: _NGrams, counts_N: Ints, discounts: Floats, shorter_N: Floats) -> _Estimate:
    """Estimates from counts, and from the probabilities after the history without its first word."""
    taken_N = discounts[np.minimum(counts_N, len(discounts) - 1)]
    seen_H = np.bincount(ngrams.prefix_N, counts_N)
    with np.errstate(invalid="ignore"):
        left_H = np.bincount(ngrams.prefix_N, taken_N) / seen_H
    share_N = (counts_N - taken_N) / seen_H[ngrams.prefix_N]
    return _Estimate(share_N + left_H[ngrams.prefix_N] * shorter_N, left_H)


def _estimates(corpus: _Corpus, orders: Sequence[_NGrams], closed: bool, learned: LearnedModel) -> list[_Estimate]:
    """The estimates of all orders; the shortest history leaves its share to all words alike."""
    possible = np.ones(len(corpus.words))
    possible[[START, UNKNOWN] if closed else [START]] = 0.0
    shorter_N = possible / possible.sum()
    found: list[_Estimate] = []
    for ngrams, counts_N in zip(orders, _adjusted_counts(corpus, orders), strict=True):
        discounts, is_assumed = _discounts(counts_N)
        if is_assumed:
            learned.assumed.append(len(found) + 1)
        found.append(_estimate(ngrams, counts_N, discounts, found[-1].p_N[ngrams.suffix_N] if found else shorter_N))
    return found


def _arpa_lines(corpus: _Corpus, order: int, closed: bool, learned: LearnedModel) -> Iterator[str]:
    orders = _count(corpus, order)
    estimates = _estimates(corpus, orders, closed, learned)
    learned.ngrams = [len(ngrams.word_N) for ngrams in orders]
    yield from ("\\data\\", *(f"ngram {length}={count}" for length, count in enumerate(learned.ngrams, 1)))
    texts = corpus.words
    for length, (ngrams, estimate) in enumerate(zip(orders, estimates, strict=True), 1):
        if length > 1:
            pairs = zip(ngrams.prefix_N.tolist(), ngrams.word_N.tolist(), strict=True)
            texts = [f"{texts[prefix]} {corpus.words[word]}" for prefix, word in pairs]
        left_N = np.full(len(texts), np.nan)
        if length < order:
            left_N[: len(estimates[length].left_H)] = estimates[length].left_H
        yield from ("", f"\\{length}-grams:")
        for text, log_p, log_left in zip(texts, _log10(estimate.p_N), _log10(left_N), strict=True):
            back_off = "" if math.isnan(log_left) else f"\t{log_left:.7g}"
            yield f"{log_p:.7g}\t{text}{back_off}"
    yield from ("", "\\end\\", "")


def _log10(values: Floats) -> list[float]:
    logarithms: list[float] = np.log10(values, out=np.full(len(values), _NEVER), where=values != 0).tolist()
    return logarithms


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
    texts = [cleaner(text) for source in sources for text in _manifest_texts(source, progress)]
    if not any(texts):
        raise DataError(f"There is no text to learn from in {', '.join(map(str, sources))}: all texts are empty.")
    output.parent.mkdir(parents=True, exist_ok=True)
    with progress(f"learning {size} labels", len(texts), "texts") as advance:
        pieces = SentencePieceTokenizer.train(texts, output, size, kind)
        advance(len(texts))
    return pieces


def _manifest_texts(source: Path, progress: Progress) -> Iterator[str]:
    manifest = Manifest.read(source)
    with progress(f"reading {source}", len(manifest), "texts") as advance:
        for utterance in manifest:
            yield utterance.text
            advance(1)
