"""On what something was measured: enough to compare by, nothing that says whose machine it is."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path


def describe_machine() -> str:
    """Cores, processor, memory, and the versions that matter."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    return f"{os.cpu_count()} cores, {_processor()}, {memory:.0f} GiB, {platform.system()}, {python}"


def describe_load() -> str:
    """How busy the machine is, by the average of the last minute."""
    return f"load average {os.getloadavg()[0]:.2f} at the start"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
