"""The interface of a format: what it refuses, what it writes, and how the written files are run to verify them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.inference import TrainedRecogniser

Inputs = Sequence[NDArray[np.float32]]
Numbers = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ExportSettings:
    """What a user chooses: the input of the graphs, small weights beside them, the version of ONNX's operators."""

    takes: Literal["waveform", "features"] = "waveform"
    int8: bool = False
    opset: int = 17


@dataclass(frozen=True)
class Runner:
    """Runs a part of an exported folder; an `exact` one must give the texts of the recogniser, all of them.

    ```
    name    for people, such as `model.onnx in onnxruntime`
    texts   the texts of a batch of waveforms
    numbers the outputs of the graphs for one waveform by name, without batch; empty if they cannot be seen
    search  the text that the search of the folder finds in numbers; None if it cannot be run alone
    hidden  what it computes by itself, so that the numbers do not show it; empty for nothing
    ```
    """

    name: str
    exact: bool
    texts: Callable[[Inputs], list[str]]
    numbers: Callable[[NDArray[np.float32]], Numbers]
    search: Callable[[Numbers], str] | None = None
    hidden: str = ""


class ExportFormat(ABC):
    """One way to write a recogniser. `notes` are sentences about the limits of the export.

    `packages` must be installed; `output` is the only output of a model that the format can represent.
    """

    packages: tuple[str, ...] = ()
    output: str | None = None

    def __init__(self, recogniser: TrainedRecogniser, settings: ExportSettings) -> None:
        self.recogniser, self.settings = recogniser, settings
        self.notes: list[str] = []

    @classmethod
    def check(cls, recogniser: TrainedRecogniser) -> None:
        """Refuse a recogniser that this format cannot represent."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Fill the folder."""

    @abstractmethod
    def runners(self, folder: Path) -> list[Runner]:
        """What can be run in the folder."""

    @abstractmethod
    def expected_numbers(self, waveform_N: NDArray[np.float32]) -> Numbers:
        """What the numbers of a runner should be, computed by the recogniser itself."""

    def graph_input(self, waveform_N: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the graphs take for a waveform: itself, or its features."""
        if self.settings.takes == "waveform":
            return waveform_N
        features: NDArray[np.float32] = self.recogniser.features([torch.from_numpy(waveform_N)])[0].numpy()
        return features


def example_inputs(recogniser: TrainedRecogniser, takes: str, least: int = 1) -> list[tuple[Tensor, Tensor]]:
    """Two batches (inputs, lengths) of noise with different sizes of at least `least`, to trace a graph with."""
    generator = torch.Generator().manual_seed(0)
    found = []
    rate = recogniser.features.sample_rate
    longer = max(1.0, least / rate) if takes == "waveform" else 1.0
    for seconds in ((1.0, 0.8), (1.7, 0.6, 1.3)):
        waveforms = [0.1 * torch.randn(int(longer * each * rate), generator=generator) for each in seconds]
        made = waveforms if takes == "waveform" else recogniser.features(waveforms)
        lengths_B = torch.tensor([len(each) for each in made])
        found.append((torch.nn.utils.rnn.pad_sequence(list(made), batch_first=True), lengths_B))
    return found
