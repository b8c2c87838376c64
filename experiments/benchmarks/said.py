"""How a measured process tells what it did: its last line of output is JSON. Peers run this too, so it imports nothing else."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

MIB = 1 << 20


def peak_mib() -> float:
    """Peak resident memory of this process so far, in MiB.

    Linux keeps it in /proc for the program alone; what wait4 says may be that of the parent before the program began.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (MIB if sys.platform == "darwin" else 1024)


def say(row: dict[str, Any]) -> None:
    """Print the last line."""
    print(json.dumps(row | {"peak_mib": peak_mib()}))


def said(output: str) -> dict[str, Any]:
    """What a process said; nothing where the last line is not JSON.

    >>> said('a report\\n{"peak_mib": 31.5}\\n'), said("done"), said("")
    ({'peak_mib': 31.5}, {}, {})
    """
    try:
        row = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        return {}
    return row if isinstance(row, dict) else {}
