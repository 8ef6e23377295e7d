"""How long it takes until something happens: `import ensembed` and `ensembed --help`, each in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from benchmarks.timing import Comparison, Section, Table, best_in_turn

CASES = {
    "python -c pass": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import ensembed": ["-c", "import ensembed"],
    "ensembed --help": ["-m", "ensembed", "--help"],
    "from ensembed import Ensemble": ["-c", "from ensembed import Ensemble"],
}
TARGETS = {"import ensembed": "< 0.150 s", "ensembed --help": "< 0.250 s", "from ensembed import Ensemble": ""}
HEAVY = ("numpy", "scipy", "onnxruntime", "tokenizers", "torch", "rich")


def run(repeats: int = 15) -> Section:
    """Whole processes, from their start to their end."""
    best = best_in_turn([partial(_start, arguments) for arguments in CASES.values()], repeats)
    times = dict(zip(CASES, best, strict=True))
    comparisons = [
        Comparison(name, peer, times[name], times[peer], target)
        for name, target in TARGETS.items()
        for peer in ("python -c pass", "import numpy")
    ]
    loaded = [[name, ", ".join(_loaded(name)) or "none"] for name in TARGETS]
    return Section(
        "Start-up",
        comparisons,
        [Table("What they load of the large packages:", ["what", f"of {', '.join(HEAVY)}"], loaded)],
        ["Seconds of the whole process, the interpreter's own start and end included."],
        {"seconds": times},
    )


def _start(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def _loaded(name: str) -> list[str]:
    code = CASES[name][1] if CASES[name][0] == "-c" else "from ensembed.cli import main; main(['--help'])"
    code += f"\nimport sys; print('loaded', *(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1].split()[1:]
