"""The names of what is in a run folder; those of saved trainers are in `inference.checkpoints`."""

from __future__ import annotations

CONFIG = "config.yaml"  # as it was resolved at the start; with it a folder is a run
ENVIRONMENT = "environment.yaml"
CHANGES = "changes.yaml"
STATUS = "status.yaml"
METRICS = "metrics.jsonl"
LOGS = "logs"
