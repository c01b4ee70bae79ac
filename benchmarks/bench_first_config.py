"""The WER of the config that `sonosco init` writes, as a ratio to the best of several settings chosen by hand.

`python benchmarks/bench_first_config.py CORPUS ... [--minutes 3] [--setting lr_twice ...] [--test MANIFEST]`. A corpus
is a folder with `train.jsonl`, `val.jsonl` and `test.jsonl`, as `sonosco data synth` or `sonosco data split` makes it;
`--test` takes another manifest in place of its `test.jsonl`. `init` writes a config for the minutes. It is trained as
it is, then with each setting instead of its own, or as the config of another model for the same minutes. The WER on
`val` chooses the best by hand, both are reported on `test`. Minutes are those of the processor in all processes of a
training. Without a corpus, ten minutes of synthetic digits are made. Takes the number of settings and one, times the
minutes, per corpus.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Row, report
from sonosco_like.data.corpora.synth import synthesize

GOAL = 1.2
SETTINGS: dict[str, list[str]] = {  # values, or factors for what the config says; about the same processor time
    "lr_half": ["trainer.optimizer.lr*0.5"],
    "lr_twice": ["trainer.optimizer.lr*2"],
    "warmup_short": ["trainer.scheduler.warmup=0.04dur"],
    "decay_early": ["trainer.scheduler.hold=0.2dur"],
    "no_masks": ["trainer.train_data_loader.dataset.feature_augmentations=[]"],
    "no_dropout": ["trainer.model.encoder.dropout=0.0"],
    "batch_half": ["trainer.train_data_loader.sampler.batch_seconds*0.5", "trainer.epochs*0.83"],
    "batch_twice": ["trainer.train_data_loader.sampler.batch_seconds*2", "trainer.epochs*1.1"],
}
MODELS = ["conformer", "las", "tds"]  # instead of the model that `init` takes if none is named


@dataclass(frozen=True)
class Result:
    """Word error rates in percent, and the CPU minutes of the training."""

    val: float
    test: float
    minutes: float


def sonosco(*arguments: object) -> None:
    """Run a command with one thread; what it prints is shown only if it fails."""
    command = [sys.executable, "-m", "sonosco_like", *map(str, arguments)]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")


def cpu_minutes() -> float:
    """Of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) / 60


def in_full(change: str, config: dict[str, Any]) -> str:
    """What `--set` takes: a factor becomes the value of the config times it."""
    key, times, factor = change.partition("*")
    if not times:
        return change
    value: Any = config
    for part in key.split("."):
        value = value[part]
    changed = float(factor) * value
    return f"{key}={round(changed) if isinstance(value, int) else changed}"


def train(config: Path, run: Path, changes: list[str], manifests: dict[str, Path]) -> Result:
    """Train a config with changes, and evaluate its end."""
    begin = cpu_minutes()
    content = yaml.safe_load(config.read_text())
    sets = [word for change in changes for word in ("--set", in_full(change, content))]
    sonosco("train", "--config", config, "--run-dir", run, *sets)
    minutes = cpu_minutes() - begin
    rates = {}
    for name in ("val", "test"):
        output = run.with_name(f"{run.name}-{name}.json")
        sonosco("evaluate", run / "final", "--manifest", manifests[name], "--bootstraps", 0, "--json", output)
        rates[name] = 100 * json.loads(output.read_text())["wer"]
    return Result(rates["val"], rates["test"], minutes)


def compare(corpus: Path, minutes: float, names: list[str], test: Path) -> None:
    """The config of `init` for one corpus beside the settings by hand."""
    manifests = {"train": corpus / "train.jsonl", "val": corpus / "val.jsonl", "test": test}
    results = {}
    with tempfile.TemporaryDirectory() as name:
        for setting in ["init", *names]:
            folder = Path(name) / (setting if setting in MODELS else "init")
            if not folder.exists():
                model = ["--model", setting] if setting in MODELS else []
                sets = [word for part in ("train", "val") for word in (f"--{part}", manifests[part])]
                sonosco("init", folder, *sets, "--minutes", minutes, *model)
            changes = SETTINGS.get(setting, [])
            found = results[setting] = train(folder / "config.yaml", folder / setting, changes, manifests)
            print(
                f"{corpus.name}, {setting:12} {found.minutes:5.2f} CPU minutes, val {found.val:6.2f} %, "
                f"test {found.test:6.2f} %",
                flush=True,
            )
    first = results["init"]
    best = min(results, key=lambda setting: results[setting].val)
    against = f"{best}, best on val: {results[best].test:.2f} % on test"
    ratio = first.test / results[best].test if results[best].test else "the best has no errors"
    report(
        Row(f"{corpus.name}: WER on test after {first.minutes:.1f} CPU minutes", first.test, against, unit="%"),
        Row(f"{corpus.name}: ratio of the two", ratio, against, GOAL),
    )


def main() -> None:
    """Compare on one corpus after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", type=Path, metavar="CORPUS", help="folders with train, val and test")
    parser.add_argument("--minutes", type=float, default=3.0, help="for each training; default 3")
    names = [*SETTINGS, *MODELS]
    parser.add_argument("--setting", action="append", choices=names, help="which to try; all, if none is named")
    parser.add_argument("--test", type=Path, metavar="MANIFEST", help="in place of the test.jsonl of a corpus")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if not options.corpora:
            synthesize(Path(name) / "digits", minutes=10.0)
        for corpus in options.corpora or [Path(name) / "digits"]:
            test = (options.test or corpus / "test.jsonl").resolve()
            compare(corpus.resolve(), options.minutes, options.setting or names, test)


if __name__ == "__main__":
    main()
