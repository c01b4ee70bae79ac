"""A recogniser as functions of plain tensors, which ONNX and `torch.export` can trace.

Shape suffixes as in `records`; here also N rows of a search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.export.front import Front
from sonosco_like.records import END, START

IMPOSSIBLE = -1e10  # a logarithm that can be calculated with, unlike -inf
NEW = "new_"  # in front of the name of a state that a step changed


class RecogniserGraph(nn.Module, ABC):
    """From waveforms or features, and their lengths, to the inputs of a search."""

    def __init__(self, front: Front, model: Any) -> None:
        super().__init__()
        self.front, self.model = front, model
        self.eval()

    @property
    @abstractmethod
    def outputs(self) -> list[str]:
        """The names of what `forward` returns."""

    @abstractmethod
    def after_front(self, features_BTF: Tensor, lengths_B: Tensor) -> tuple[Tensor, ...]:
        """The outputs for the features that the model takes."""

    def forward(self, inputs: Tensor, lengths_B: Tensor) -> tuple[Tensor, ...]:
        """The outputs in the order of their names."""
        return self.after_front(*self.front(inputs, lengths_B))


class CTCGraph(RecogniserGraph):
    """The CTC output; START and END, which CTC never writes, are impossible. Each frame is there `repeats` times."""

    def __init__(self, front: Front, model: Any, repeats: int = 1) -> None:
        super().__init__(front, model)
        self.repeats = repeats

    @property
    def outputs(self) -> list[str]:
        return ["log_probs", "lengths"]

    def after_front(self, features_BTF: Tensor, lengths_B: Tensor) -> tuple[Tensor, ...]:
        encoded_BSD, encoded_lengths_B = self.model.encode(features_BTF, lengths_B)
        log_probs_BSV = ctc_log_probs(self.model, encoded_BSD)
        if self.repeats > 1:
            log_probs_BSV = log_probs_BSV.repeat_interleave(self.repeats, dim=1)
        return log_probs_BSV, encoded_lengths_B * self.repeats


class EncoderGraph(RecogniserGraph):
    """For an attention search: encoded lengths, the CTC output if there is one, the decoder's state at the start."""

    def __init__(self, front: Front, model: Any, states: list[str]) -> None:
        super().__init__(front, model)
        self.states = states

    @property
    def outputs(self) -> list[str]:
        return ["lengths", *(["log_probs"] if self.model.has_ctc else []), *self.states]

    def after_front(self, features_BTF: Tensor, lengths_B: Tensor) -> tuple[Tensor, ...]:
        encoded_BSD, encoded_lengths_B = self.model.encode(features_BTF, lengths_B)
        state = tensors_of(self.model.attention_decoder.start(encoded_BSD, encoded_lengths_B))
        log_probs = [ctc_log_probs(self.model, encoded_BSD)] if self.model.has_ctc else []
        return (encoded_lengths_B, *log_probs, *(state[name].clone() for name in self.states))


class DecoderGraph(nn.Module):
    """One step of the attention decoder: (log_probs_NV, attention_NHS, *the states that it changes)."""

    def __init__(self, model: Any, example: DecoderExample) -> None:
        super().__init__()
        self.decoder, self.example = model.attention_decoder, example
        self.eval()

    def forward(self, labels_N: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """The states in the order of `example.states`."""
        given = dict(zip(self.example.states, states, strict=True))
        log_probs_NV, attention_NHS, after = self.decoder.step(labels_N, with_tensors(self.example.state, given))
        return (log_probs_NV, attention_NHS, *(tensors_of(after)[name] for name in self.example.changed))


@dataclass(frozen=True)
class DecoderExample:
    """A state of a decoder to trace it with: all tensors of it by name, and which of them a step changes."""

    state: Any
    tensors: dict[str, Tensor]
    changed: list[str]

    @property
    def states(self) -> list[str]:
        """The names of all tensors."""
        return list(self.tensors)

    @classmethod
    @torch.no_grad()
    def of(cls, model: Any, encoded_BSD: Tensor, lengths_B: Tensor) -> DecoderExample:
        """The state at the start; one step shows what a step changes."""
        before = model.attention_decoder.start(encoded_BSD, lengths_B)
        _, _, after = model.attention_decoder.step(torch.full_like(lengths_B, START), before)
        first, second = tensors_of(before), tensors_of(after)
        changed = [name for name, tensor in second.items() if tensor is not first[name]]
        # Copies, since one tensor may be two states at first, and a trace would take the two inputs for one.
        return cls(before, {name: each.clone() for name, each in first.items()}, changed)


def ctc_log_probs(model: Any, encoded_BSD: Tensor) -> Tensor:
    """log_probs_BSV; START and END are impossible."""
    log_probs_BSV: Tensor = model.ctc_logits(encoded_BSD).float().log_softmax(-1)
    labels_V = torch.arange(log_probs_BSV.shape[2], device=encoded_BSD.device)
    never_V = (labels_V == START) | (labels_V == END)
    return log_probs_BSV.masked_fill(never_V, IMPOSSIBLE)


def tensors_of(state: Any, name: str = "") -> dict[str, Tensor]:
    """Every tensor in a state of dataclasses and tuples, by the path to it."""
    if isinstance(state, Tensor):
        return {name: state}
    if isinstance(state, (tuple, list)):
        parts = {str(number): each for number, each in enumerate(state)}
    elif is_dataclass(state):
        parts = {each.name: getattr(state, each.name) for each in fields(state)}
    else:
        raise UsageError(
            f"The state of this attention decoder cannot be exported: {name or 'it'} is a {type(state).__name__}. "
            f"A state must be a dataclass of tensors, tuples and such dataclasses."
        )
    return {
        path: tensor
        for key, each in parts.items()
        for path, tensor in tensors_of(each, f"{name}_{key}".strip("_")).items()
    }


def with_tensors(state: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """The same state with these tensors in it, by the paths of `tensors_of`."""
    if isinstance(state, Tensor):
        return tensors[name]
    if isinstance(state, (tuple, list)):
        return type(state)(
            with_tensors(each, tensors, f"{name}_{number}".strip("_")) for number, each in enumerate(state)
        )
    parts = {each.name: f"{name}_{each.name}".strip("_") for each in fields(state)}
    return replace(state, **{key: with_tensors(getattr(state, key), tensors, path) for key, path in parts.items()})


def free_axes(one: Tensor, other: Tensor, names: tuple[str, ...]) -> dict[int, str]:
    """The axes in which two examples of a tensor differ, named by the example: the batch first, then the frames."""
    return {axis: names[min(axis, 1)] for axis in range(one.dim()) if one.shape[axis] != other.shape[axis]}
