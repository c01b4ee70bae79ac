"""Destinations: callbacks log values with `context.log`, and destinations write them to files and services."""

from sonosco_like.callbacks.destinations.destination import Destination, numeric_values, plain_values
from sonosco_like.callbacks.destinations.mlflow import MlflowDestination
from sonosco_like.callbacks.destinations.row_files import CsvFile, MetricsFile, RowFile
from sonosco_like.callbacks.destinations.tensorboard import TensorBoardCallback
from sonosco_like.callbacks.destinations.weights_and_biases import WandbDestination

__all__ = [
    "CsvFile", "Destination", "MetricsFile", "MlflowDestination", "RowFile", "TensorBoardCallback",
    "WandbDestination", "numeric_values", "plain_values",
]  # fmt: skip
