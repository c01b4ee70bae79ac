"""`--train`, `--val` and `--test`: the user's own data in any config, for all commands that train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonosco_like.errors import UsageError
from sonosco_like.run_folder import CONFIG

if TYPE_CHECKING:
    from yaml.nodes import Node

    from sonosco_like.training import Experiment, ModelTrainer

SETS = ("train", "val", "test")

Manifests = Mapping[str, Path | None]


def read_with_own_data(config: Path, overrides: Sequence[str], manifests: Manifests) -> Experiment:
    """The experiment of a config with the manifests in it; it gets the loaders that it lacks for them."""
    from sonosco_like.training import read_experiment

    given = _given(manifests)
    present = _present(config, overrides, given)
    own = [_override(name, path) for name, path in given.items() if name in present]
    experiment = read_experiment(config, [*overrides, *own])
    for name, path in given.items():
        if name not in present:
            setattr(experiment.trainer, f"{name}_data_loader", _new_loader(experiment.trainer, name, path))
    _leave_out_missing_data(experiment, given)
    return experiment


def open_with_own_data(
    run_dir: Path, config: Path, overrides: Sequence[str], manifests: Manifests
) -> tuple[Experiment, int]:
    """A run that goes on with what the config and the manifests change in it, and the step it is at."""
    from sonosco_like.training.config_edits import open_with_config

    given = _given(manifests)
    present = _present(run_dir / CONFIG, (), given)
    for name in given:
        if name not in present:
            raise UsageError(
                f"The run in {run_dir} was begun without {name} data and cannot get any now: leave out --{name}, or "
                "begin a new run in another folder."
            )
    own = [*overrides, *(_override(name, path) for name, path in given.items())]
    return open_with_config(run_dir, config, own, lambda: read_with_own_data(config, overrides, manifests))


def _given(manifests: Manifests) -> dict[str, Path]:
    return {name: path.absolute() for name in SETS if (path := manifests[f"{name}_manifest"]) is not None}


def _override(name: str, path: Path) -> str:
    from sonosco_like.serialization.overrides import quoted

    return f"trainer.{name}_data_loader.dataset.manifest={quoted(path.as_posix())}"


def _present(config: Path, overrides: Sequence[str], given: Mapping[str, Path]) -> list[str]:
    """The given sets that a config has a loader of their own for."""
    from sonosco_like.serialization import files
    from sonosco_like.serialization.document import MAX_BYTES, parse
    from sonosco_like.serialization.overrides import apply_overrides

    if not given or not config.is_file():
        return []  # who reads the config says that it is not there
    root = apply_overrides(parse(files.read_file(config.resolve(), MAX_BYTES), str(config)), overrides)
    trainer = _entries(_entries(root).get("trainer"))
    loaders = {name: trainer.get(f"{name}_data_loader") for name in SETS}
    named = _entries(loaders["val"])
    if "val" in given and named and "class" not in named:
        raise UsageError(
            f"The config has several validation sets ({', '.join(named)}), and --val does not say which is meant: give "
            f"--set trainer.val_data_loader.{next(iter(named))}.dataset.manifest={given['val']}"
        )
    own = {id(loader): name for name, loader in reversed(loaders.items())}  # of an alias, the first has the loader
    return [name for name in given if _entries(loaders[name]) and own[id(loaders[name])] == name]


def _entries(node: Node | None) -> dict[str, Node]:
    from yaml.nodes import MappingNode, ScalarNode

    pairs = node.value if isinstance(node, MappingNode) else ()
    return {key.value: value for key, value in pairs if isinstance(key, ScalarNode)}


def _new_loader(trainer: ModelTrainer, name: str, manifest: Path) -> Any:
    """A loader like the validation's, else like the training's without what makes it random.

    It shares tokenizer, features and normalization with that one, whose statistics only training data may decide.
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
    return "not there" if loader is None else f"a {type(loader).__name__}"


def _leave_out_missing_data(experiment: Experiment, given: Mapping[str, Path]) -> None:
    """With data of the user's own to learn from, the config's corpus is not made, and its test set is not there."""
    if not given.keys() & {"train", "val"}:
        return
    experiment.corpus = None
    if "test" not in given:
        experiment.trainer.test_data_loader = None
    for name, (option, loader) in _options_for(experiment.trainer).items():
        manifest = getattr(getattr(loader, "dataset", None), "manifest", None)
        if name not in given and isinstance(manifest, Path) and not manifest.exists():
            raise UsageError(
                f"{option} is needed too: {manifest} of the config is not there, and with data of your own the "
                "config's corpus is not made."
            )


def _options_for(trainer: ModelTrainer) -> dict[str, tuple[str, Any]]:
    """The loaders that a run cannot do without, each with the option that gives it other data."""
    found: dict[str, tuple[str, Any]] = {"train": ("--train", trainer.train_data_loader)}
    for name, loader in trainer.validation_sets.items():
        option = "--val" if name is None else f"--set trainer.val_data_loader.{name}.dataset.manifest=..."
        found["val" if name is None else f"val {name}"] = (option, loader)
    return found
