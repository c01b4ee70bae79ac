"""The public surface is what this frozen list says; a change here is a change of the contract."""

from __future__ import annotations

import json
import subprocess
import sys

import click

import sonosco_like
from sonosco_like.cli import sonosco

NAMES = [
    "AbstractCallback", "Event", "Experiment", "Loss", "ModelEvaluator", "ModelTrainer", "Moment", "Stop",
    "TrainerContext", "__version__", "diff", "dumps", "export", "load", "load_transcriber", "loads", "metric", "save",
    "serializable", "stage", "state",
]  # fmt: skip

COMMANDS = {
    "check": ["--allow-write", "--config", "--help", "--import", "--open", "--set", "--test", "--train", "--val"],
    "completion": ["--help", "SHELL"],
    "dashboard": ["--help", "--host", "--port", "RUNS"],
    "data an4": ["--force", "--help", "--seed", "--source", "FOLDER"],
    "data common-voice": ["--force", "--help", "--language", "--seed", "--source", "FOLDER"],
    "data librispeech": ["--force", "--help", "--part", "--seed", "--source", "FOLDER"],
    "data lm": ["--case", "--closed", "--force", "--help", "--order", "--output", "SOURCES"],
    "data manifest": ["--force", "--help", "--output", "--speaker", "FOLDER"],
    "data merge": ["--force", "--help", "--output", "SOURCES"],
    "data pieces": ["--case", "--force", "--help", "--kind", "--output", "--size", "SOURCES"],
    "data split": ["--by", "--force", "--help", "--seed", "--shares", "FOLDER", "SOURCE"],
    "data stats": [
        "--alphabet", "--fastest", "--force", "--help", "--json", "--open", "--picture", "--slowest", "SOURCE",
    ],
    "data synth": ["--force", "--help", "--kind", "--minutes", "--seed", "--variety", "--workers", "FOLDER"],
    "data tedlium": ["--force", "--help", "--seed", "--source", "FOLDER"],
    "data voxforge": ["--force", "--help", "--seed", "--source", "--submissions", "FOLDER"],
    "diff": ["--help", "--import", "A", "B"],
    "evaluate": [
        "--against", "--batch-seconds", "--beam", "--bootstraps", "--column", "--ctc-weight", "--decode", "--device",
        "--errors", "--force", "--help", "--hot-word", "--hot-word-bonus", "--html", "--import", "--json", "--lm",
        "--lm-weight", "--manifest", "--normalizer", "--pred-text", "--seed", "--tune-lm", "--word-bonus", "--workers",
        "--worst", "RUN",
    ],
    "export": [
        "--decode", "--force", "--format", "--help", "--import", "--input", "--int8", "--no-verify", "--opset",
        "--output", "--verify", "RUN",
    ],
    "init": ["--help", "--labels", "--minutes", "--model", "--train", "--val", "FOLDER"],
    "resume": ["--allow-write", "--device", "--help", "--import", "--run-dir", "--set", "RUN_DIR"],
    "runs": ["--help", "--json", "--sort", "FOLDER"],
    "schema": ["--help", "--import", "--indent"],
    "serve": [
        "--beam", "--collect", "--ctc-weight", "--decode", "--device", "--help", "--host", "--hot-word",
        "--hot-word-bonus", "--import", "--lm", "--lm-weight", "--longest", "--max-megabytes", "--max-requests",
        "--max-seconds",
        "--no-token", "--port", "--timeout", "--token-file", "--word-bonus", "--workers", "MODELS",
    ],
    "train": [
        "--allow-write", "--config", "--device", "--help", "--import", "--resume", "--run-dir", "--set", "--test",
        "--train", "--val",
    ],
    "transcribe": [
        "--beam", "--ctc-weight", "--decode", "--device", "--format", "--help", "--hot-word", "--hot-word-bonus",
        "--import", "--json", "--lm", "--lm-weight", "--longest", "--n-best", "--output", "--overlap", "--word-bonus",
        "AUDIO", "RUN",
    ],
    "verify-resume": [
        "--allow-write", "--config", "--help", "--import", "--keep", "--kills", "--set", "--test", "--train", "--val",
    ],
    "weights": ["--help", "--json", "FOLDER"],
}  # fmt: skip


def _commands(group: click.Group, prefix: str = "") -> dict[str, list[str]]:
    found = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found |= _commands(command, f"{prefix}{name} ")
            continue
        parameters = command.get_params(context)
        options = [max(p.opts, key=len) if isinstance(p, click.Option) else p.name.upper() for p in parameters]
        found[prefix + name] = sorted(options)
    return found


def test_the_package_offers_exactly_these_names():
    assert sorted(sonosco_like.__all__) == sorted(NAMES)
    for name in NAMES:
        assert getattr(sonosco_like, name) is not None


def test_the_command_line_offers_exactly_these_commands_and_options():
    assert _commands(sonosco) == COMMANDS


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(sonosco_like, "no_such_name")
    assert "serializable" in dir(sonosco_like)


def test_a_trainer_does_not_wait_for_what_only_our_own_data_needs():
    code = "import json, sys, sonosco_like; sonosco_like.ModelTrainer; print(json.dumps(list(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    imported = set(json.loads(found.stdout))
    assert "sonosco_like.training.trainer" in imported
    assert not imported & {
        "pyarrow", "scipy", "soundfile", "sonosco_like.data.dataset", "sonosco_like.decoding", "sonosco_like.inference",
        "sonosco_like.models", "sonosco_like.training.experiment", "torchaudio",
    }  # fmt: skip
