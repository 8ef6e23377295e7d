"""Record how a result was made: versions, machine and time."""

from __future__ import annotations

import os
import platform
import sys
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ensembed.support.version import __version__

_PACKAGES = ("numpy", "scipy", "onnxruntime", "tokenizers", "torch")


def provenance() -> dict[str, str]:
    """Return the versions of packages, the machine and the time, for a result file."""
    facts = {"ensembed": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "absent"
    facts["system"] = f"{platform.system()} {platform.machine()}"
    facts["processor"] = f"{_processor()}, {os.cpu_count()} cores"
    torch = sys.modules.get("torch")  # not imported for this
    if torch is not None and torch.cuda.is_available():
        facts["gpu"] = str(torch.cuda.get_device_name())
    facts["time"] = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return facts


def _processor() -> str:
    """Return the name of the processor; Python itself knows it on some systems only."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"
