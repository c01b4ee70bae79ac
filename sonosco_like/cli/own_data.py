"""`--train`, `--val` and `--test`: they put the user's own data into any config, for all commands that train."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonosco_like.errors import UsageError
from sonosco_like.runs.run_folder import CONFIG

if TYPE_CHECKING:
    from sonosco_like.serialization import Document
    from sonosco_like.training import Experiment, ModelTrainer

SETS = ("train", "val", "test")

Manifests = Mapping[str, Path | None]


def read_with_own_data(config: Path, overrides: Sequence[str], manifests: Manifests) -> Experiment:
    """The experiment of a config with the user's manifests; a loader is added for a set that the config lacks."""
    from sonosco_like.training.experiment import build_experiment, read_config

    given = _given(manifests)
    document = read_config(config, overrides)
    present = _sets_with_loader(document, given)
    for name in present:
        document.set(_manifest_of(name), given[name].as_posix())
    experiment = build_experiment(document)
    for name, path in given.items():
        if name not in present:
            setattr(experiment.trainer, f"{name}_data_loader", _new_loader(experiment.trainer, name, path))
    _leave_out_missing_data(experiment, given)
    return experiment


def open_with_own_data(
    run_dir: Path, config: Path, overrides: Sequence[str], manifests: Manifests
) -> tuple[Experiment, int]:
    """The experiment of a run with the changes of a config and of the user's manifests, and the step of the run."""
    from sonosco_like.serialization import quote_override
    from sonosco_like.training.experiment import read_config
    from sonosco_like.training.resume import open_with_config

    given = _given(manifests)
    present = _sets_with_loader(read_config(run_dir / CONFIG), given) if given else []
    for name in given:
        if name not in present:
            raise UsageError(
                f"The run in {run_dir} was started without {name} data, which cannot be added now. Leave out --{name}, "
                "or start a new run in another folder."
            )
    own = [f"{_manifest_of(name)}={quote_override(path.as_posix())}" for name, path in given.items()]
    read = functools.partial(read_with_own_data, config, overrides, manifests)
    return open_with_config(run_dir, config, [*overrides, *own], read)


def _given(manifests: Manifests) -> dict[str, Path]:
    return {name: path.absolute() for name in SETS if (path := manifests[f"{name}_manifest"]) is not None}


def _manifest_of(name: str) -> str:
    return f"trainer.{name}_data_loader.dataset.manifest"


def _sets_with_loader(config: Document, given: Mapping[str, Path]) -> list[str]:
    """The sets in `given` for which the config has a loader of its own, not an alias of another one."""
    loaders = {name: config.get(f"trainer.{name}_data_loader") for name in SETS}
    named = loaders["val"]
    if "val" in given and isinstance(named, dict) and named and "class" not in named:
        raise UsageError(
            f"The config has several validation sets ({', '.join(named)}), and --val cannot choose one of them: give "
            f"--set trainer.val_data_loader.{next(iter(named))}.dataset.manifest={given['val']}"
        )
    own = {
        id(loader): name for name, loader in reversed(loaders.items())
    }  # aliases belong to the first set with the loader
    present = {name for name, loader in loaders.items() if isinstance(loader, dict) and loader}
    return [name for name in given if name in present and own[id(loaders[name])] == name]


def _new_loader(trainer: ModelTrainer, name: str, manifest: Path) -> Any:
    """A copy of the validation loader, or else of the training loader without shuffling and augmentation.

    The copy shares tokenizer, features and normalization: only training data may decide their statistics.
    """
    from sonosco_like.data.loader import AudioDataLoader

    model = "val" if name == "test" and trainer.val_data_loader is not None else "train"
    loader = getattr(trainer, f"{model}_data_loader")
    if not isinstance(loader, AudioDataLoader):
        raise UsageError(
            f"--{name}: the config has no `{name}_data_loader`, and none can be made like its `{model}_data_loader`, "
            f"which is {_kind(loader)} and not an AudioDataLoader. Add a `{name}_data_loader` to the config."
        )
    if model == "val":
        return replace(loader, dataset=replace(loader.dataset, manifest=manifest))
    dataset = replace(loader.dataset, manifest=manifest, waveform_augmentations=[], feature_augmentations=[])
    return replace(loader, dataset=dataset, sampler=replace(loader.sampler, shuffle=False, sorted_first_epoch=False))


def _kind(loader: Any) -> str:
    if isinstance(loader, dict):
        return f"several by name ({', '.join(map(str, loader))})"
    return "missing" if loader is None else f"a {type(loader).__name__}"


def _leave_out_missing_data(experiment: Experiment, given: Mapping[str, Path]) -> None:
    """Remove the corpus and the test set of the config if the user gives training or validation data."""
    if not given.keys() & {"train", "val"}:
        return
    experiment.corpus = None
    if "test" not in given:
        experiment.trainer.test_data_loader = None
    for name, (option, loader) in _options_for(experiment.trainer).items():
        manifest = getattr(getattr(loader, "dataset", None), "manifest", None)
        if name not in given and isinstance(manifest, Path) and not manifest.exists():
            raise UsageError(
                f"{option} is needed too: {manifest} of the config does not exist, and with your own data the corpus "
                "of the config is not generated."
            )


def _options_for(trainer: ModelTrainer) -> dict[str, tuple[str, Any]]:
    """The loaders of a run by set, each with the option that changes its data."""
    found: dict[str, tuple[str, Any]] = {"train": ("--train", trainer.train_data_loader)}
    for name, loader in trainer.validation_sets.items():
        option = "--val" if name is None else f"--set trainer.val_data_loader.{name}.dataset.manifest=..."
        found["val" if name is None else f"val {name}"] = (option, loader)
    return found
