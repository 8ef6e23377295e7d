"""Run a piece of code in a process of its own, and measure what it does to the memory."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

_CODE = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # a bomb must not harm the machine that runs the test
from ensembed.errors import EnsembedError
{before}
def peak():  # not `ru_maxrss`, which begins at the memory of the process that started this one
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
start = peak()
try:
{code}
    outcome = "nothing was refused"
except EnsembedError as error:
    outcome = str(error)
print(json.dumps([outcome, (peak() - start) / 1024]))
"""


def refusal(code: str, *arguments: object, before: str) -> str:
    """Run code that must raise an EnsembedError within 300 MB; return the message. `before` is not measured."""
    program = _CODE.format(before=textwrap.dedent(before), code=textwrap.indent(textwrap.dedent(code), "    "))
    child = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert child.returncode == 0, child.stderr[-2000:]
    outcome, megabytes = json.loads(child.stdout)
    assert outcome != "nothing was refused"
    assert megabytes < 300, f"{megabytes:.0f} MB for: {outcome}"
    return str(outcome)
