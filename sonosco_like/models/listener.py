"""The listener of LAS: a pyramid of bidirectional LSTM layers, each of which halves the number of frames."""

from __future__ import annotations

from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.masking import stack_neighbours, zero_padding
from sonosco_like.models.parts import Encoder
from sonosco_like.models.recurrent import Bidirectional
from sonosco_like.serialization import serializable


@serializable
class Listener(Encoder):
    """One bidirectional LSTM layer, `layers` pyramidal ones on top, then `plain_layers` that keep the frames.

    A pyramidal layer reads two neighbouring frames of the layer below at once. `stack` input frames are joined before
    the first layer, which saves most of its time. `pyramid: false` turns all layers into plain ones. `batch_norm` is
    that of Deep Speech 2, on each layer's input term; the paper has none, but on little data it learns much sooner.
    """

    hidden_size: int = 256
    layers: int = 3
    pyramid: bool = True
    plain_layers: int = 0
    stack: int = 1
    dropout: float = 0.0
    batch_norm: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no listener."""
        if self.stack < 1 or self.layers < 0 or self.plain_layers < 0:
            raise UsageError("`stack` must be at least 1, `layers` and `plain_layers` at least 0.")

    @property
    def frame_reduction(self) -> int:
        """Eight in the paper: three pyramidal layers."""
        return self.stack * (2**self.layers if self.pyramid else 1)

    @property
    def output_size(self) -> int:
        """Both directions side by side."""
        return 2 * self.hidden_size

    def build(self, features: int) -> None:
        """Make the layers."""
        self.factors = [1] + [2 if self.pyramid else 1] * self.layers + [1] * self.plain_layers
        sizes = [features * self.stack] + [self.output_size * factor for factor in self.factors[1:]]
        self.recurrent = nn.ModuleList(
            Bidirectional("lstm", size, self.hidden_size, self.batch_norm, join="concatenate") for size in sizes
        )
        self.drop = nn.Dropout(self.dropout)

    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(encoded_BSD, encoded_lengths_B), padding zeroed."""
        frames_BTD, lengths_B = zero_padding(features_BTF, feature_lengths_B), feature_lengths_B
        for layer, factor in zip(self.recurrent, [self.stack, *self.factors[1:]], strict=True):
            if factor > 1:
                frames_BTD, lengths_B = stack_neighbours(frames_BTD, lengths_B, factor)
            frames_BTD = zero_padding(self.drop(layer(frames_BTD, lengths_B)), lengths_B)
        return frames_BTD, lengths_B
