"""Run the README's examples with the `pagedsim` that is on the path: readme_examples.py README.md EMPTY_FOLDER.

Each block in order. Traces that are the reader's own are handed: a few rows in the same format. What is not run is said, with the
reason. Exit status 1 where a command fails.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

NOT_RUN = {
    "pip install -q .": "the installation, which has just been done from the wheel",
    "pip install -q '.[test]'": "the tests, which are run by themselves",
    "--dask": "wants three machines",
    "dask ": "wants three machines",
}
ROW = '{{"timestamp": {0}, "input_length": 1000, "output_length": 9, "hash_ids": [1, {0}]}}\n'
HANDED = {
    "conversation_trace.jsonl": "".join(ROW.format(i) for i in range(2, 22)),
    "sharegpt_lengths.csv.gz": "prompt_tokens,output_tokens\n" + "200,300\n" * 60,
    "last_week.csv": "ts,tokens_in,tokens_out,user\n1000,374,44,ann\n5300,396,109,bob\n5400,879,55,ann\n",
}


def commands(kind: str, block: str) -> list[str]:
    """What is typed of a block; a Python block is one command."""
    if kind == "console":
        return re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    return block.splitlines() if kind == "sh" else []


def files_of(block: str) -> dict[str, str]:
    """The tables that the README gives names to, the scenario with fewer requests, for time."""
    if "[sweep]" in block:
        return {"what-if.toml": block.replace("seeds = 3", "seeds = 2\nlimit = 40")}
    return {"chat.toml": block}


def main() -> int:
    readme, folder = Path(sys.argv[1]), Path(sys.argv[2])
    text = readme.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shutil.copytree(readme.parent / "tests" / "data" / "golden", folder / "tests" / "data" / "golden")
    for kind, block in blocks:
        for name, content in (files_of(block) if kind == "toml" else {}).items():
            (folder / name).write_text(content)
    for name, content in HANDED.items():
        (folder / name).write_text(content)
    (folder / "example.py").write_text("".join(block for kind, block in blocks if kind == "python"))
    typed = [command for kind, block in blocks for command in commands(kind, block)] + ["python example.py"]
    results = [run(command, folder) for command in typed]
    print(f"{results.count(True)} run, {results.count(None)} not run, {results.count(False)} failed")
    return 1 if False in results or results.count(True) < 20 else 0


def run(command: str, folder: Path) -> bool | None:
    """Whether it ended well; None if it was not run."""
    if reason := next((why for words, why in NOT_RUN.items() if words in command), None):
        print(f"  not run: {command}: {reason}")
        return None
    started = time.perf_counter()
    done = subprocess.run(command, shell=True, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    print(f"  {'ok' if done.returncode == 0 else 'FAILED'} {time.perf_counter() - started:5.1f} s  {command}", flush=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:])
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
