"""`make bench`: run every benchmark, each in its own process, one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run `bench_*.py`, or only those whose names hold one of the arguments."""
    wanted = sys.argv[1:]
    failed = []
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        if wanted and not any(word in path.stem for word in wanted):
            continue
        print(f"\n== {path.stem.removeprefix('bench_')}", flush=True)
        if subprocess.run([sys.executable, str(path)], check=False).returncode:
            failed.append(path.stem)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
