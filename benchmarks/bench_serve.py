"""The processor time of `sonosco serve` for many recordings, beside that of transcribing the same files directly.

The time of the server is that of all its processes; that of the clients, which belong to others, does not count.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import soundfile
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_transcribe import RATE, processor_seconds, recogniser, speech
from benchmarks.results import Row, report
from benchmarks.timing import print_ratios, turns
from sonosco_like import load_transcriber, save

FILES, CLIENTS = 200, 32
DIRECT, SERVED = "transcribe", "serve"


def processor_ticks_of(session: int) -> Counter[str]:
    """Processor time of the processes of a session by their names; `python` is the one that speaks HTTP."""
    ticks: Counter[str] = Counter()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            about, _, rest = (folder / "stat").read_text().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if int(fields[3]) == session:
            ticks[about.partition("(")[2]] += int(fields[11]) + int(fields[12])
    return ticks


async def send_all(address: str, contents: list[bytes]) -> list[str]:
    """The text of each recording, as a few clients receive it."""
    places = asyncio.Semaphore(CLIENTS)
    async with httpx.AsyncClient(base_url=address, timeout=600) as client:

        async def send(content: bytes) -> str:
            async with places:
                answer = await client.post("/v1/transcribe", files={"file": content})
            text: str = answer.raise_for_status().json()["results"][0]["text"]
            return text

        return list(await asyncio.gather(*map(send, contents)))


def measure(address: str, session: int, paths: list[Path], folder: Path) -> None:
    """Print the ratio of both, from rounds that take turns."""
    transcriber = load_transcriber(folder)
    contents = [path.read_bytes() for path in paths]
    direct = [str(each) for each in transcriber.transcribe(paths)]
    assert asyncio.run(send_all(address, contents)) == direct, "both hear the same"
    rounds, wall, parts = [], [], Counter[str]()
    for _ in range(turns(5)):
        before, began = processor_ticks_of(session), time.perf_counter()
        asyncio.run(send_all(address, contents))
        wall.append(time.perf_counter() - began)
        served = processor_ticks_of(session)
        served.subtract(before)
        parts += served
        rounds.append(
            {
                SERVED: served.total() / os.sysconf("SC_CLK_TCK"),
                DIRECT: processor_seconds(lambda: transcriber.transcribe(paths)),
            }
        )
    print_ratios({name: statistics.median(each[name] for each in rounds) for name in (DIRECT, SERVED)}, DIRECT)
    ratio = statistics.median(each[SERVED] / each[DIRECT] for each in rounds)
    shares = ", ".join(f"{name} {each / parts.total():.0%}" for name, each in parts.most_common())
    print(f"by process: {shares}")
    seconds = sum(soundfile.info(path).duration for path in paths)
    print(f"median ratio of the rounds {ratio:.2f} x; {seconds / statistics.median(wall):.0f} x real time by the clock")
    report(Row(f"serving {FILES} recordings to {CLIENTS} clients", ratio, "the transcriber on the files", goal=1.25))


def main() -> None:
    """A server of its own, and the same model in this process; each on one thread."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        save(recogniser(), folder)
        paths = [Path(name) / f"{number:03d}.wav" for number in range(FILES)]
        for path in paths:
            soundfile.write(path, speech(random.uniform(2.0, 10.0), random), RATE)
        command = [sys.executable, "-m", "sonosco_like", "serve", str(folder), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            assert server.stdout is not None
            address = next(found[1] for line in server.stdout if (found := re.search(r"at (http://\S+)", line)))
            measure(address, server.pid, paths, folder)
        finally:
            server.terminate()
            server.wait(60)


if __name__ == "__main__":
    main()
