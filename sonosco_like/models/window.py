"""Soft window pre-training (Hannun et al. 2019, section 2.4): at first, attention is drawn to the diagonal."""

from __future__ import annotations

import torch
from torch import Tensor

from sonosco_like.errors import UsageError


def check_sigma(sigma: float | None) -> None:
    """Refuse what is no width."""
    if sigma is not None and sigma <= 0:
        raise UsageError(f"`window_sigma` must be more than 0, or null for no window, got {sigma}.")


def soft_window(encoded_lengths_B: Tensor, label_lengths_B: Tensor, size: tuple[int, int], sigma: float) -> Tensor:
    """A bias_BUS of `size` (U, S) to add to attention scores: -(s - centre)^2 / (2 sigma^2).

    The centre of position u lies where u would be said if all labels, and the END, took the same time. Squared, the
    distance makes a Gaussian peak around it; each utterance has its own lengths, whatever it is padded to.
    """
    positions_U = torch.arange(size[0], device=label_lengths_B.device)
    pace_B = encoded_lengths_B / (label_lengths_B + 1)
    centre_BU = (positions_U + 0.5) * pace_B[:, None] - 0.5
    distance_BUS = torch.arange(size[1], device=label_lengths_B.device) - centre_BU[:, :, None]
    return -distance_BUS.square() / (2 * sigma**2)
