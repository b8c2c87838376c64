"""One-line bugs planted in a copy of the source, one at a time: the recorded cases must catch each.

The copy is replayed by its own `conform` command. Each bug names the rule of docs/rules.md that it breaks.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "data" / "golden"
BUGS = {
    "rule 5: front and end swapped": ("sim/memory/block_pool.py", "self._queue.append(walk[front:])",
                                      "self._queue.push_front(walk[front:])"),
    "rule 5: the walk is not reversed": ("sim/memory/block_pool.py", "walk = table[::-1]", "walk = table.copy()"),
    "rule 6: the newest copy, not the first": ("sim/memory/prefix_index.py", "new = self._hash_of[there] != hashes",
                                               "new = there != blocks"),
    "rule 11: without the last token": ("sim/memory/paged.py", "self._findable(request, tokens - 1)",
                                        "self._findable(request, tokens)"),
    "rule 17: hits that lie free are not counted": ("sim/memory/paged.py", "or self.pool.lying_free(found) <= room", "or True"),
    "rule 18: cached a step late": ("sim/memory/paged.py", "known, self._findable(request, tokens))",
                                    "known, self._findable(request, tokens - self.block_size))"),
    "rule 20: freed in order of arrival": ("sim/scheduler.py", "for place in done:", "for place in sorted(done, key=batch.row):"),
    "rule 23: the first, not the last running": ("sim/running.py", "return len(self.running) - 1", "return 0"),
    "rule 24: admissions after a preemption": ("sim/scheduler.py", "        if step.preempted:  ", "        if False:  "),
    "rule 27: no gate": ("sim/scheduler.py", "self.config.reserve_full_isl", "False"),
    "rule 31: the victim goes to the back": ("sim/waiting.py", "self._queue.appendleft(request)", "self._queue.append(request)"),
}
CASES = [str(path) for path in sorted(GOLDEN.glob("*.json"))
         if not path.stem.startswith(("large", "capacity", "async", "hybrid", "sliding", "ext", "priority"))]


def planted(tmp_path, change=None):
    """A copy of the packages, with one line changed: (file, right line, wrong line)."""
    for package in ("sim", "workloads", "experiments"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    if change is not None:
        file, right, wrong = change
        text = (tmp_path / file).read_text(encoding="utf-8")
        assert text.count(right) == 1, f"{file} has this line {text.count(right)} times: {right}"
        (tmp_path / file).write_text(text.replace(right, wrong), encoding="utf-8")
    return tmp_path


def conform(folder):
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-m", "experiments.cli", "conform", "-q", *CASES], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=300, check=False)


def test_the_copy_without_a_bug_conforms(tmp_path):
    said = conform(planted(tmp_path))
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(tmp_path, bug):
    said = conform(planted(tmp_path, BUGS[bug]))
    crashed = "Traceback" in said.stderr               # a broken invariant that raises is caught too
    assert said.returncode == 1 and ("first difference" in said.stdout or crashed), said.stdout[-300:] + said.stderr[-300:]
