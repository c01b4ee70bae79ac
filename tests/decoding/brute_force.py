"""Searches that try everything, and the small world they are tried in."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import torch

from sonosco_like.records import BLANK, END, SPECIAL_SYMBOLS, START, UNKNOWN, Output


@dataclass
class Letters:
    """The smallest vocabulary: the special symbols and some letters."""

    letters: str = "ab "
    symbols: list[str] = field(init=False)

    def __post_init__(self):
        self.symbols = [*SPECIAL_SYMBOLS, *self.letters]

    def decode(self, labels):
        return " ".join("".join(self.symbols[label] for label in labels if label > 2).split())

    def encode(self, text):
        return [self.symbols.index(letter) for letter in text]


def collapse(path):
    return tuple(label for label, _ in itertools.groupby(path) if label != BLANK)


def every_ctc_text(log_probs_SV):
    """{labels: log probability summed over all paths}, by enumerating the paths."""
    probabilities_SV = np.exp(log_probs_SV.astype(np.float64))
    frames, labels = log_probs_SV.shape
    hypotheses = {}
    for path in itertools.product(range(labels), repeat=frames):
        probability = math.prod(probabilities_SV[s, label] for s, label in enumerate(path))
        hypotheses[collapse(path)] = hypotheses.get(collapse(path), 0.0) + probability
    return {labels: math.log(probability) for labels, probability in hypotheses.items() if probability > 0.0}


def random_log_probs(frames, labels, seed, sharpness=2.0):
    logits_SV = np.random.default_rng(seed).normal(size=(frames, labels)) * sharpness
    return torch.tensor(logits_SV).log_softmax(-1).float().numpy()


def posteriors(frames, vocabulary, seed, sharpness=2.0):
    """log_probs_SV in which START, END and UNKNOWN have no part."""
    log_probs_SV = random_log_probs(frames, len(vocabulary.symbols), seed, sharpness)
    log_probs_SV[:, [START, END, UNKNOWN]] = -200.0
    return (log_probs_SV - np.log(np.exp(log_probs_SV).sum(1, keepdims=True))).astype(np.float32)


def ctc_output(log_probs_rows):
    """An Output of utterances of different lengths, padded with what would be heard as the last label."""
    longest = max(len(rows) for rows in log_probs_rows)
    labels = log_probs_rows[0].shape[1]
    logits_BSV = torch.full((len(log_probs_rows), longest, labels), -50.0)
    logits_BSV[..., -1] = 0.0
    for row, log_probs_SV in enumerate(log_probs_rows):
        logits_BSV[row, : len(log_probs_SV)] = torch.as_tensor(log_probs_SV)
    lengths_B = torch.tensor([len(rows) for rows in log_probs_rows])
    return Output(torch.zeros(len(log_probs_rows), longest, 1), lengths_B, ctc_logits_BSV=logits_BSV)


def saying(vocabulary, frames, sure=0.9):
    """log_probs_SV of a model that hears `frames`, one character each, `_` for blank."""
    symbols = vocabulary.symbols
    probabilities_SV = np.full((len(frames), len(symbols)), (1 - sure) / (len(symbols) - 1))
    for s, character in enumerate(frames):
        probabilities_SV[s, BLANK if character == "_" else symbols.index(character)] = sure
    return np.log(probabilities_SV).astype(np.float32)
