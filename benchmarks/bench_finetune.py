"""The WER on digits after some minutes of fine-tuning, beside that of the same minutes from scratch.

`python benchmarks/bench_finetune.py [--folder DIR] [--hours 2] [--minutes 10] [--epochs 30]`. The config `deepspeech2`
is trained on hours of spoken commands, and then on minutes of digits: from scratch, from all weights of that training,
and from its weights with the encoder frozen at first. The three see the same batches; minutes are those of the
processor in all processes. The first learns at the rate of the config, the others at a third of it. No speaker of the
digits is a speaker of the commands, and no voice of the test is in any training. About 15 CPU minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_first_config import cpu_minutes, sonosco
from benchmarks.configs import FOLDER
from benchmarks.results import Row, report

GOAL = 1.0
TEST_MINUTES = 40.0
VALIDATED = 4.0  # minutes of speech, once per epoch
PRETRAINING_EPOCHS = 6
GENTLE = ["trainer.optimizer.lr=0.0005"]
FROZEN = "{class: FreezeParameters, patterns: ['encoder.*'], until: 0.2dur}"
LOG = "{class: MetricsFile}"


def last_minutes(manifest: Path, minutes: float) -> Path:
    """A manifest beside another one with its last rows, whose speakers are not the first ones of another corpus."""
    rows, seconds = [], 0.0
    for line in reversed(manifest.read_text(encoding="utf-8").splitlines(keepends=True)):
        if seconds >= 60 * minutes:
            break
        rows.append(line)
        seconds += json.loads(line)["duration"]
    path = manifest.with_name(f"{manifest.stem}-{minutes:g}.jsonl")
    path.write_text("".join(rows), encoding="utf-8")
    return path


def train(run: Path, manifests: tuple[Path, Path], epochs: int, callbacks: list[str], changes: list[str]) -> float:
    """Train the config; the CPU minutes that it took."""
    begin = cpu_minutes()
    sets = ["corpus=null", f"trainer.epochs={epochs}", f"trainer.callbacks=[{', '.join([LOG, *callbacks])}]", *changes]
    data = ("--train", manifests[0], "--val", manifests[1])
    words = [word for each in sets for word in ("--set", each)]
    sonosco("train", "--config", FOLDER / "deepspeech2.yaml", "--run-dir", run, *data, *words)
    return cpu_minutes() - begin


def wer(run: Path, manifest: Path) -> float:
    """Of the last weights of a run, in percent."""
    output = run.with_name(f"{run.name}.json")
    sonosco("evaluate", run / "final", "--manifest", manifest, "--bootstraps", 0, "--json", output)
    return 100 * float(json.loads(output.read_text())["wer"])


def pretrain(folder: Path, hours: float) -> Path:
    """Both corpora, and a model trained on the first; what is there already is used."""
    for kind, length in (("commands", 60 * hours / 0.8), ("digits", 10 * TEST_MINUTES)):  # 80 % train, 10 % test
        if not (folder / kind / "test.jsonl").exists():
            sonosco("data", "synth", folder / kind, "--kind", kind, "--minutes", length)
    run, corpus = folder / "pretrained", folder / "commands"
    if not (run / "final").exists():
        data = corpus / "train.jsonl", last_minutes(corpus / "val.jsonl", VALIDATED)
        spent = train(run, data, PRETRAINING_EPOCHS, [], [])
        print(f"pretrained    {spent:5.2f} CPU minutes, commands {wer(run, corpus / 'test.jsonl'):6.2f} %", flush=True)
    return run / "final"


def compare(folder: Path, runs: Path, hours: float, minutes: float, epochs: int) -> None:
    """Train on the digits in three ways, and report each."""
    pretrained, digits = pretrain(folder, hours), folder / "digits"
    data = last_minutes(digits / "train.jsonl", minutes), last_minutes(digits / "val.jsonl", VALIDATED)
    start = [f"init_from={pretrained}", *GENTLE]
    rates: dict[str, float] = {}
    for name, callbacks, changes in (("scratch", [], []), ("fine-tuned", [], start), ("frozen first", [FROZEN], start)):
        spent = train(runs / name, data, epochs, callbacks, changes)
        rates[name] = wer(runs / name, digits / "test.jsonl")
        print(f"{name:13} {spent:5.2f} CPU minutes, digits {rates[name]:6.2f} %", flush=True)
        report(Row(f"{name}: WER on digits after {spent:.1f} CPU minutes", rates[name], "unseen voices", unit="%"))
    for name in ("fine-tuned", "frozen first"):
        report(Row(f"{name}: WER on digits", rates[name] / rates["scratch"], "scratch", GOAL))


def main() -> None:
    """Compare once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where corpora and the pretrained model are kept for another time")
    parser.add_argument("--hours", type=float, default=2.0, help="of commands; default 2")
    parser.add_argument("--minutes", type=float, default=10.0, help="of digits; default 10")
    parser.add_argument("--epochs", type=int, default=30, help="over the digits; default 30")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name) / "kept").resolve()
        compare(folder, Path(name) / "runs", options.hours, options.minutes, options.epochs)


if __name__ == "__main__":
    main()
