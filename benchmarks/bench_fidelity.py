"""Whether a run that is killed and resumed ends with the same bits: `sonosco verify-resume` on configs/smoke.yaml.

`python benchmarks/bench_fidelity.py [--config configs/smoke.yaml] [--kills 2]`. The verdict is what the command says.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.configs import FOLDER
from benchmarks.results import Row, report

WANTED = "EXACT"


def main() -> None:
    """Run the proof, and report its verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=FOLDER / "smoke.yaml")
    parser.add_argument("--kills", type=int, default=2)
    options = parser.parse_args()
    command = [sys.executable, "-m", "sonosco_like", "verify-resume", "--config", str(options.config.resolve())]
    with tempfile.TemporaryDirectory() as folder:  # the config's corpus is made where the command runs
        done = subprocess.run(
            [*command, "--kills", str(options.kills)], cwd=folder, check=False, capture_output=True, text=True
        )
    print(done.stdout, end="")
    verdicts = [line.partition(":")[0] for line in done.stdout.splitlines() if WANTED in line]
    if not verdicts:
        sys.exit(f"verify-resume gave no verdict:\n{done.stderr}")
    what = f"{options.config.stem}.yaml, killed -9 {options.kills} times and resumed"
    report(Row(what, verdicts[-1], "the run that was never stopped, bit for bit", goal=WANTED))


if __name__ == "__main__":
    main()
