"""One entry for all measurements: each benchmark in a process of its own, one after the other, and one table of all."""

from __future__ import annotations

import argparse
import ast
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe_load, describe_machine
from benchmarks.page import Page, Run
from benchmarks.results import ROWS_FILE, Row, read_rows
from benchmarks.timing import QUICK
from sonosco_like.errors import UsageError

FOLDER = Path(__file__).parent
EXAMPLES = """
examples:
  python -m benchmarks                                   all of them
  python -m benchmarks step peers                        those whose names hold one of the words
  python -m benchmarks --skip learning                   all but the long one
  python -m benchmarks --quick                           does each of them still run?
  python -m benchmarks --write docs/benchmarks.md        the table into the page, too
  python -m benchmarks learning -- --config las          options of one benchmark, after --
  python benchmarks/bench_learning.py --help             what these options are
"""


@dataclass(frozen=True)
class Benchmark:
    """A file `bench_<name>.py`."""

    path: Path

    @property
    def name(self) -> str:
        """What it is asked for by."""
        return self.path.stem.removeprefix("bench_")

    @property
    def summary(self) -> str:
        """The first paragraph of its docstring; read, not imported, so that it needs no package to be there."""
        docstring = ast.get_docstring(ast.parse(self.path.read_text(encoding="utf-8"))) or ""
        return " ".join(docstring.partition("\n\n")[0].split())


@dataclass(frozen=True)
class Outcome:
    """The rows of a benchmark, and whether it ended as it should."""

    rows: list[Row]
    failed: bool = False


def benchmarks_in(folder: Path) -> list[Benchmark]:
    """All there are."""
    return [Benchmark(path) for path in sorted(folder.glob("bench_*.py"))]


def chosen(all_of_them: Sequence[Benchmark], words: Sequence[str], skipped: Sequence[str]) -> list[Benchmark]:
    """Those whose names hold a word, or all, without those that are skipped. A word that no name holds is an error."""
    for word in [*words, *skipped]:
        if not any(word in each.name for each in all_of_them):
            names = ", ".join(each.name for each in all_of_them)
            raise UsageError(f"No benchmark's name holds {word!r}; there are {names}.")
    found = [each for each in all_of_them if not words or any(word in each.name for word in words)]
    return [each for each in found if not any(word in each.name for word in skipped)]


def measure(benchmark: Benchmark, options: Sequence[str] = ()) -> Outcome:
    """Run one benchmark; if it fails, the last row says so, after those that it had measured before."""
    with tempfile.TemporaryDirectory() as name:
        rows, errors = Path(name) / "rows.jsonl", Path(name) / "errors.txt"
        rows.touch()
        environment = {"OMP_NUM_THREADS": "1", **os.environ, ROWS_FILE: str(rows)}
        with errors.open("wb") as stream:  # a file, not a pipe: a worker that outlives a crash would hold a pipe open
            command = [sys.executable, str(benchmark.path), *options]
            code = subprocess.run(command, check=False, env=environment, stderr=stream).returncode
        said = errors.read_text(encoding="utf-8", errors="replace")
        sys.stderr.write(said)
        return outcome(read_rows(rows), code, said)


def outcome(rows: list[Row], code: int, said: str) -> Outcome:
    """What an exit code and the last line on standard error make of a benchmark."""
    if code == 0:
        return Outcome(rows)
    last = ([line for line in said.splitlines() if line.strip()] or [""])[-1].strip()
    missing = re.fullmatch(r"ModuleNotFoundError: No module named '(\w+)[\w.]*'", last)
    if missing and missing[1] not in ("sonosco_like", "benchmarks"):
        return Outcome([*rows, Row("not measured", f"the package {missing[1]} is not installed")])
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    last = re.sub(r"(?<![\w.])/(?:[^\s/'\"]+/)+", "", last)  # the folders of this machine are nobody's business
    return Outcome([*rows, Row("failed", f"{how}: {last}")], failed=True)


def without_folders(words: Sequence[str]) -> str:
    """A command line with absolute paths cut to their last part."""
    return shlex.join(re.sub(r"^(--[\w-]+=)?/.*/(?=[^/])", r"\1", word) for word in words)


def run_all(wanted: Sequence[Benchmark], options: Sequence[str], run: Run, page: Page | None) -> int:
    """Measure, print the table, and keep the page up to date as results come in. The exit code is 1 if one failed."""
    table = Table("python -m benchmarks", "measured", "value", "against", "goal", "met", title=f"\n{run.line()[2:]}")
    failed = []
    for benchmark in wanted:
        print(f"\n== {benchmark.name}", flush=True)
        asked = without_folders([benchmark.name, *(["--", *options] if options else [])])
        try:
            found = measure(benchmark, options)
        except KeyboardInterrupt:
            failed.append(f"{benchmark.name}, interrupted")
            break
        for row in found.rows:
            table.add_row(asked, *row.cells())
        if page is not None:
            page.put(benchmark.name, asked, found.rows, run)
        failed += [benchmark.name] if found.failed else []
    Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False).print(table)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own options, and those after `--` that are a benchmark's."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="only benchmarks whose names hold one of these")
    parser.add_argument("--skip", action="append", default=[], metavar="WORD", help="but not those that hold this one")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the rows into this Markdown page, too")
    parser.add_argument(
        "--quick", action="store_true", help="each only once: tries that all works, gives no numbers to keep"
    )
    parser.add_argument("--list", action="store_true", help="say what there is, and measure nothing")
    return parser.parse_args(arguments[:cut]), list(arguments[cut + 1 :])


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """What `make bench` runs."""
    asked, options = parse(arguments)
    everything = benchmarks_in(folder)
    try:
        wanted = chosen(everything, asked.words, asked.skip)
        if options and len(wanted) != 1:
            raise UsageError("Options after -- are for one benchmark: name one.")
        if asked.quick and asked.write:
            raise UsageError("A quick run is for trying: its numbers are not to be written down.")
        page = Page(asked.write, [each.name for each in everything]) if asked.write else None
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if asked.list:
        for benchmark in wanted:
            print(f"{benchmark.name:18} {benchmark.summary}")
        return 0
    if asked.quick:
        os.environ[QUICK] = "yes"
    command = without_folders(["python", "-m", "benchmarks", *arguments])
    now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    return run_all(wanted, options, Run(now, command, describe_machine(), describe_load()), page)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
