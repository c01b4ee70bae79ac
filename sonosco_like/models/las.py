"""Listen, Attend and Spell (Chan et al. 2015, arXiv 1508.01211)."""

from __future__ import annotations

from dataclasses import field

from torch import nn

from sonosco_like.models.attention import Attention
from sonosco_like.models.listener import Listener
from sonosco_like.models.parts import Decoder, Recogniser
from sonosco_like.models.speller import Speller
from sonosco_like.serialization import serializable


@serializable
class LAS(Recogniser):
    """A pyramid of bidirectional LSTM layers, and an attending speller.

    The paper has no CTC output (`ctc: false`); with it, and a joint loss, attention learns to align in minutes. Every
    weight is drawn from U(-initial_range, initial_range) if that is given (0.1 in the paper).

    Weights at the paper's size, 40 features and V symbols (biases add 0.2 %):
        listener   2*4*256*(40 + 256) + 3 * 2*4*256*(4*256 + 256)         = 8.47 M
        speller    embedding 512*V, 4*512*(512 + 512 + 512) + 4*512*(512 + 512) = 5.24 M + 512 V
        attention  phi 512*512, psi 512*512                               = 0.52 M
        output     (512 + 512)*512 + 512*V                                = 0.52 M + 512 V
    """

    encoder: Listener = field(default_factory=Listener)
    decoder: Decoder | None = field(default_factory=Speller)
    ctc: bool = False
    initial_range: float | None = None

    def __post_init__(self) -> None:
        """Build the parts and, if asked, draw their weights as the paper does."""
        super().__post_init__()
        if self.initial_range is not None:
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -self.initial_range, self.initial_range)

    @classmethod
    def paper(cls, vocabulary_size: int, features: int = 40) -> LAS:
        """The model of the paper, with 10 % of the speller's inputs sampled from itself."""
        decoder = Speller(scheduled_sampling=0.1)
        return cls(vocabulary_size=vocabulary_size, features=features, decoder=decoder, initial_range=0.1)

    @classmethod
    def small(cls, vocabulary_size: int, features: int = 40) -> LAS:
        """Learns digits in minutes on one CPU core: fewer units, attention with a pace, a CTC output beside."""
        encoder = Listener(hidden_size=128, layers=1, plain_layers=1, stack=2, dropout=0.1, batch_norm=True)
        attention = Attention(kind="location", size=128, pace=4.0)
        decoder = Speller(hidden_size=192, layers=1, embedding_size=64, attention=attention, dropout=0.1)
        return cls(vocabulary_size=vocabulary_size, features=features, encoder=encoder, decoder=decoder, ctc=True)
