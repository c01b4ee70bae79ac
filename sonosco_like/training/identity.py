"""The id of a run: made once, kept in the run folder, and said by each of its checkpoints."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import Any

from sonosco_like.errors import ConfigError, StorageError
from sonosco_like.inference.checkpoints import folders_of_checkpoints
from sonosco_like.inference.ownership import Owners, written_id
from sonosco_like.run_folder import ENVIRONMENT, RUN_ID
from sonosco_like.serialization import files, loads
from sonosco_like.serialization.document import MAX_BYTES
from sonosco_like.serialization.folder import read_origin
from sonosco_like.serialization.origin import Origin
from sonosco_like.training.environment import computed_with

logger = logging.getLogger(__name__)


def identify(folder: Path) -> str:
    """The id of the run in a folder: its own, the one its checkpoints say if the file was lost, or a new one."""
    path = folder / RUN_ID
    found = written_id(path)
    if found is None:
        if path.exists():
            logger.warning("%s was damaged, and is written anew.", path)
        found = Owners(folder, folders_of_checkpoints(folder)).id or uuid.uuid4().hex
        files.replace_file(path, f"{found}\n".encode())
    return found


def origin_of(trainer: Any) -> Origin | None:
    """What a checkpoint of a trainer says of itself: nothing, if it does not train in a run."""
    run = getattr(trainer.experiment, "id", "")
    return Origin(run, trainer.global_step, computed_with(trainer._device)) if run else None


def machine_of(checkpoint: Path, folder: Path) -> dict[str, str]:
    """What a checkpoint was computed with; of one that does not say so, what the run began with."""
    origin = read_origin(checkpoint)
    if origin is not None:
        return dict(origin.computed_with)
    environment = read_environment(folder)
    packages, machine = environment.get("packages"), environment.get("machine")
    told = {
        "torch": packages.get("torch") if isinstance(packages, dict) else None,
        "threads": machine.get("threads") if isinstance(machine, dict) else None,
    }
    return {name: str(value) for name, value in told.items() if value is not None}


def read_environment(folder: Path) -> dict[str, Any]:
    """What `environment.yaml` says; nothing, with a warning, if it is damaged, for no run depends on it."""
    path = folder / ENVIRONMENT
    try:
        content: dict[str, Any] = loads(files.read_file(path, MAX_BYTES), dict[str, Any]) if path.exists() else {}
    except (StorageError, ConfigError) as error:
        logger.warning("%s cannot be read, and is left as it is: %s", path, error)
        return {}
    return content
