"""Where logged values go: callbacks say what is logged with `context.log`, destinations say where to."""

from sonosco_like.callbacks.destinations.console import ConsoleLog
from sonosco_like.callbacks.destinations.csv_file import CsvFile
from sonosco_like.callbacks.destinations.destination import Destination, WritesFiles, numbers, plain_values
from sonosco_like.callbacks.destinations.metrics_file import MetricsFile
from sonosco_like.callbacks.destinations.mlflow_store import MlflowDestination
from sonosco_like.callbacks.destinations.rows import RowFile
from sonosco_like.callbacks.destinations.weights_and_biases import WandbDestination

__all__ = [
    "ConsoleLog", "CsvFile", "Destination", "MetricsFile", "MlflowDestination", "RowFile", "WandbDestination",
    "WritesFiles", "numbers", "plain_values",
]  # fmt: skip
