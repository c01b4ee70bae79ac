"""The options that several commands share. `--train`, `--val` and `--test` put the user's own data into any config."""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.errors import UsageError, as_sentence, message_of
from sonosco_like.runs.run_folder import CONFIG
from sonosco_like.untrusted_files import ALLOW_WRITE_VARIABLE, allow_writing_only_to

if TYPE_CHECKING:
    from sonosco_like.inference import DecoderSettings
    from sonosco_like.serialization import Document
    from sonosco_like.training import Experiment, ModelTrainer

PATH = click.Path(path_type=Path)
_RUNS = "that of the run's decoder"  # a default

config = click.option("--config", type=PATH, required=True, help="The YAML file of the experiment.")
imports = click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="A Python module with your own classes; can be given several times.",
)
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value of the config; the value is YAML: --set trainer.epochs=3, and in a list, counted from 0, "
    "--set 'trainer.callbacks[2].patience=5'; can be given several times.",
)
device = click.option(
    "--device",
    help="Such as cpu or cuda; the GPU, if there is one, if not given. With torchrun each process takes its own GPU.",
)
force = click.option("--force", is_flag=True, help="Overwrite files that exist.")
opening = click.option(
    "--open",
    "opening",
    type=click.Choice(["all", "sample", "none"]),
    default="sample",
    show_default=True,
    help="Which recordings to decode: all, a sample of one hour, or none; with none, headers are not read either.",
)


def with_device(overrides: tuple[str, ...], device: str | None) -> tuple[str, ...]:
    """The overrides with the device added to them."""
    return overrides if device is None else (*overrides, f"trainer.device={device}")


def allow_write(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --allow-write to a command; without it a config writes only to the run folder and the working directory."""

    @click.option(
        "--allow-write",
        "allowed",
        multiple=True,
        metavar="PLACE",
        help="A folder or URL outside the run folder and the working directory to which the config may write (remote, "
        f"corpus, tracking). Can be given several times, or in the environment variable {ALLOW_WRITE_VARIABLE}.",
    )
    @functools.wraps(command)
    def guarded(allowed: tuple[str, ...], **options: Any) -> Any:
        folders = [options[name] for name in ("run_dir", "into", "keep") if options.get(name) is not None]
        with allow_writing_only_to([".", *folders, *allowed]):
            return command(**options)

    return guarded


def manifests(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --train, --val and --test to a command, which put the user's own data into any config."""
    for name in reversed(SETS):
        text = f"Your own {name} manifest, instead of the one in the config."
        several = name == "train"
        text += " Can be given several times." if several else ""
        command = click.option(f"--{name}", f"{name}_manifest", type=PATH, multiple=several, help=text)(command)
    return command


def import_modules(modules: tuple[str, ...]) -> None:
    """Import the user's modules, also from the current folder, so that their classes are registered."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever the user's own code raises
            reason = as_sentence(message_of(error))
            place = _place_of(error)
            where = f" ({place})" if place else ""
            raise UsageError(
                f"--import {module}{where}: {reason} `sonosco --debug ...` shows the traceback."
            ) from error


def _place_of(error: Exception) -> str:
    """File and line of the user's code at which an import failed; empty if none of that code ran."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}" if error.filename else ""
    ours = str(Path(__file__).parents[1])
    places = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<frozen", importlib.__file__))
    ]
    return places[-1] if places else ""


_DECODER_OPTIONS = (
    click.option(
        "--decode",
        "kind",
        type=click.Choice(["ctc", "attention"]),
        help="The output to decode, if the model has both; the run's own decoder if not given.",
    ),
    click.option(
        "--beam",
        type=click.IntRange(1),
        help=f"Width of the beam search.  [default: {_RUNS}, else no beam search; with other options of a beam search "
        "16 for CTC, 8 for attention]",
    ),
    click.option(
        "--lm",
        "language_model",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A word n-gram language model, ARPA or KenLM.",
    ),
    click.option(
        "--lm-weight",
        "language_model_weight",
        type=float,
        help=f"Weight of the language model.  [default: {_RUNS}, else 0.5]",
    ),
    click.option("--word-bonus", type=float, help=f"What each word adds to the score.  [default: {_RUNS}, else 0]"),
    click.option("--hot-word", "hot_words", multiple=True, help="A word to prefer; can be given several times."),
    click.option(
        "--hot-word-bonus", type=float, help=f"What each hot word adds to the score.  [default: {_RUNS}, else 5]"
    ),
    click.option(
        "--ctc-weight",
        type=click.FloatRange(0, 1),
        help=f"Share of CTC in an attention beam search.  [default: {_RUNS}, else 0]",
    ),
)
DECODER_NAMES = (
    "kind", "beam", "language_model", "language_model_weight",
    "word_bonus", "hot_words", "hot_word_bonus", "ctc_weight",
)  # fmt: skip


def decoder_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of decoding to a command."""
    for option in reversed(_DECODER_OPTIONS):
        command = option(command)
    return command


def take_decoder_settings(options: dict[str, Any], n_best: int | None = None) -> DecoderSettings:
    """Remove the decoder options from the options of a command, and return them as settings."""
    from sonosco_like.inference import DecoderSettings

    return DecoderSettings(n_best=n_best, **{name: options.pop(name) for name in DECODER_NAMES})


SETS = ("train", "val", "test")

Manifests = Mapping[str, Path | tuple[Path, ...] | None]


def read_with_own_data(config: Path, overrides: Sequence[str], manifests: Manifests) -> Experiment:
    """The experiment of a config with the user's manifests; a loader is added for a set that the config lacks."""
    from sonosco_like.training.experiment import build_experiment, read_config

    given = _given(manifests)
    document = read_config(config, overrides)
    present = _sets_with_loader(document, given)
    for name in present:
        document.set(_manifest_of(name), _in_config(given[name]))
    experiment = build_experiment(document)
    for name, paths in given.items():
        if name not in present:
            setattr(experiment.trainer, f"{name}_data_loader", _new_loader(experiment.trainer, name, paths[0]))
    _leave_out_missing_data(experiment, given)
    return experiment


def open_with_own_data(
    run_dir: Path, config: Path, overrides: Sequence[str], manifests: Manifests
) -> tuple[Experiment, int]:
    """The experiment of a run with the changes of a config and of the user's manifests, and the step of the run."""
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
    own = [f"{_manifest_of(name)}={_in_override(paths)}" for name, paths in given.items()]
    read = functools.partial(read_with_own_data, config, overrides, manifests)
    return open_with_config(run_dir, config, [*overrides, *own], read)


def _given(manifests: Manifests) -> dict[str, list[Path]]:
    """The absolute paths of the sets that the user gave."""
    given = {name: manifests[f"{name}_manifest"] for name in SETS}
    paths = {name: [each] if isinstance(each, Path) else list(each or ()) for name, each in given.items()}
    return {name: [path.absolute() for path in each] for name, each in paths.items() if each}


def _in_config(paths: Sequence[Path]) -> Any:
    """The manifests as the field of a dataset: a path, or a list of paths."""
    return paths[0].as_posix() if len(paths) == 1 else [path.as_posix() for path in paths]


def _in_override(paths: Sequence[Path]) -> str:
    """The same as the value of an override."""
    from sonosco_like.serialization import quote_override

    quoted = [quote_override(path.as_posix()) for path in paths]
    return quoted[0] if len(paths) == 1 else f"[{', '.join(quoted)}]"


def _manifest_of(name: str) -> str:
    return f"trainer.{name}_data_loader.dataset.manifest"


def _sets_with_loader(config: Document, given: Mapping[str, Sequence[Path]]) -> list[str]:
    """The sets in `given` for which the config has a loader of its own, not an alias of another one."""
    loaders = {name: config.get(f"trainer.{name}_data_loader") for name in SETS}
    named = loaders["val"]
    if "val" in given and isinstance(named, dict) and named and "class" not in named:
        raise UsageError(
            f"The config has several validation sets ({', '.join(named)}), and --val cannot choose one of them: give "
            f"--set trainer.val_data_loader.{next(iter(named))}.dataset.manifest={given['val'][0]}"
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


def _leave_out_missing_data(experiment: Experiment, given: Mapping[str, Sequence[Path]]) -> None:
    """Remove the corpus and the test set of the config if the user gives training or validation data."""
    if not given.keys() & {"train", "val"}:
        return
    experiment.corpus = None
    if "test" not in given:
        experiment.trainer.test_data_loader = None
    for name, (option, loader) in _options_for(experiment.trainer).items():
        manifests = getattr(getattr(loader, "dataset", None), "manifests", [])
        missing = [] if name in given else [each for each in manifests if not each.exists()]
        if missing:
            raise UsageError(
                f"{option} is needed too: {missing[0]} of the config does not exist, and with your own data the corpus "
                "of the config is not generated."
            )


def _options_for(trainer: ModelTrainer) -> dict[str, tuple[str, Any]]:
    """The loaders of a run by set, each with the option that changes its data."""
    found: dict[str, tuple[str, Any]] = {"train": ("--train", trainer.train_data_loader)}
    for name, loader in trainer.validation_sets.items():
        option = "--val" if name is None else f"--set trainer.val_data_loader.{name}.dataset.manifest=..."
        found["val" if name is None else f"val {name}"] = (option, loader)
    return found
