"""A model as a function of plain tensors, for `torch.export` and ONNX."""

from __future__ import annotations

from torch import Tensor, nn

from sonosco_like.models.parts import Recogniser


class ExportableEncoder(nn.Module):
    """features_BTF, feature_lengths_B to (log_probs_BSV, lengths_B), or to encoded frames without a CTC output."""

    def __init__(self, model: Recogniser) -> None:
        super().__init__()
        self.model = model
        self.eval()

    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """What greedy or beam search over CTC needs."""
        encoded_BSD, lengths_B = self.model.encode(features_BTF, feature_lengths_B)
        if not self.model.has_ctc:
            return encoded_BSD, lengths_B
        return self.model.ctc_logits(encoded_BSD).log_softmax(-1), lengths_B
