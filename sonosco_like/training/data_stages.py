"""How data becomes batches, stage by stage: read, processed, divided, and handed out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.manifest import Manifest
from sonosco_like.events import stage
from sonosco_like.training.loaders import made
from sonosco_like.training.validating import Validating


class DataStages(Validating):
    """The part of ModelTrainer that makes loaders ready; `name` says which: train, val, val_<name> or test.

    Reading, processing and dividing are heard of our own datasets, once for each loader. Foreign loaders bring their
    data with them: of them only `build_data` and `create_loader` are heard. Texts are cleaned and recordings read when
    a batch is fetched, by the loader's workers.
    """

    @stage("build_data")
    def build_data(self, name: str, loader: Any) -> Any:
        """A loader that is ready; the training data says what all is measured by, such as global statistics."""
        loader = made(loader)
        dataset = getattr(loader, "dataset", None)
        if isinstance(dataset, AudioDataset):
            dataset.use_utterances(self.load_data(name, dataset))
            dataset.use_rows(self.split_data(name, dataset, self.process_data(name, dataset)))
        prepare = getattr(dataset, "prepare", None)
        if name == "train" and prepare is not None:
            prepare()
        return loader

    @stage("load_data")
    def load_data(self, name: str, dataset: AudioDataset) -> Manifest:
        """The rows of a dataset's manifest, read from their file."""
        return dataset.utterances

    @stage("process_data")
    def process_data(self, name: str, dataset: AudioDataset) -> NDArray[np.int64]:
        """The indices of the utterances that can be used: those whose length is within the limits."""
        return dataset.within_limits()

    @stage("split_data")
    def split_data(self, name: str, dataset: AudioDataset, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the indices that belong to this dataset; all of them, unless it is one `part` of its manifest."""
        return dataset.of_this_part(rows)

    @stage("create_loader")
    def create_loader(self, name: str, loader: Any) -> Any:
        """What hands out the batches, whoever made it: from any place on, and to each process its share."""
        loader = self._loaders.adapt(loader, even=name == "train")
        self.processes.deal(loader)
        return loader
