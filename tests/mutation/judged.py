"""Survivors judged: `judged.txt` gives for each the verdict above it, so that a new run says which are not judged yet.

A mutant is known by the lines it changes, not by a number, and so stays known when the file around it changes.
"""

from pathlib import Path

FILE = Path(__file__).with_name("judged.txt")


def judged():
    """Survivor -> verdict; a verdict stands on a line that begins with ``==`` above the survivors it is about."""
    found, verdict = {}, ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("=="):
            verdict = line.strip("= ")
        elif line.strip() and not line.startswith("#"):
            found[line.strip()] = verdict
    return found
