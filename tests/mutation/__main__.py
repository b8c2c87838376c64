"""Mutation testing of ``sim``, run apart: ``python -m tests.mutation [TARGET ...]``. See README.md beside this file.

A target's files are mutated in a copy of the sources. Its own tests are asked first, then wider ones about what those let live.
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.mutation.judged import judged
from tests.mutation.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("sim", "workloads", "experiments", "tests", "docs", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml")
KILLED, ENDLESS = (1, 3), (24, -24, 36, 152, 255, -9)
HARMLESS = ("equivalent", "speed")
HEAD = ("| file | mutants | killed | by its own tests | by wider tests | endless | score | survivors | of them harmless |\n"
        "|---|---|---|---|---|---|---|---|---|")
MEMORY_BYTES = 6 << 30
"""A mutant that allocates without end fails instead of taking the machine along."""


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Which small changes of sim no test notices.")
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutation", help="where the copies and logs go")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--sample", type=int, help="of each file only so many mutants, drawn with --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="ask only about survivors not judged, and what changed")
    parser.add_argument("--fast-only", action="store_true", help="ask only the tests about the target")
    args = parser.parse_args()
    for name in args.targets or TARGETS:
        folder = args.folder.resolve() / name
        copy_sources(folder, args.again)
        results = run(folder, TARGETS[name], args)
        print(report(folder, results), flush=True)


def copy_sources(folder, again=False):
    """A fresh copy of everything; ``again`` keeps what mutmut found out, but for the survivors not judged."""
    open_ones = not_judged(folder) if again else set()
    for path in folder.glob("*"):
        if not (again and path.name == "mutants"):
            (shutil.rmtree if path.is_dir() else Path.unlink)(path)
    folder.mkdir(parents=True, exist_ok=True)
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        path = ROOT / name
        (shutil.copytree(path, folder / name, ignore=unwanted) if path.is_dir() else shutil.copy(path, folder / name))
    (folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    for meta in (folder / "mutants" / "sim").rglob("*.py.meta"):
        known = json.loads(meta.read_text(encoding="utf-8"))
        codes = known["exit_code_by_key"]
        codes.update({name: None for name in codes if name in open_ones})
        meta.write_text(json.dumps(known), encoding="utf-8")


def not_judged(folder):
    """Survivors of the last run that `judged.txt` does not know."""
    alive = [name for codes in exit_codes(folder, []).values() for name, code in codes.items() if way(code, False) == "alive"]
    verdicts = judged()
    return {name for name, line in asked(folder, "lines", alive).items() if line not in verdicts}


def run(folder, target, args):
    """File -> mutant -> (exit code, whether only the wider tests decided)."""
    configure(folder, target, target.fast, target.chosen)
    names = sampled(folder, target, args) if args.sample else []
    mutmut(folder, ["run", "--max-children", str(args.processes), *names], "fast.log")
    first = exit_codes(folder, names)
    alive = [name for codes in first.values() for name, code in codes.items() if way(code, False) == "alive"]
    if alive and target.wide and not args.fast_only:
        configure(folder, target, target.wide)
        (folder / "mutants" / "mutmut-stats.json").unlink()
        mutmut(folder, ["run", "--max-children", str(args.processes), *alive], "wide.log")
    last = exit_codes(folder, names)
    return {path: {name: (code, name in alive) for name, code in codes.items()} for path, codes in last.items()}


def configure(folder, target, tests, chosen=""):
    """mutmut's settings; the time allowed is generous, since the machine may be doing something else as well."""
    settings = {"source_paths": ["sim"], "only_mutate": target.files, "also_copy": [name for name in COPIED if name != "tests"],
                "pytest_add_cli_args": ["-p", "no:cacheprovider", "-p", "tests.mutation.plugin",
                                        *(["-k", chosen] if chosen else [])],
                "pytest_add_cli_args_test_selection": tests, "timeout_multiplier": ["4"], "timeout_constant": ["3"],
                "track_dependencies": ["false"], "use_git_change_detection": ["false"]}
    lines = [f"{key} =\n" + "".join(f"    {value}\n" for value in values) for key, values in settings.items()]
    (folder / "setup.cfg").write_text("[mutmut]\n" + "".join(lines), encoding="utf-8")


def sampled(folder, target, args):
    """The mutants of each file, so many of them drawn; the files one after the other, each with the same seed."""
    return [name for names in asked(folder, "names", target.files).values()
            for name in random.Random(args.seed).sample(names, min(args.sample, len(names)))]


def asked(folder, what, arguments):
    """See `mutants`."""
    said = subprocess.run([sys.executable, "-m", "tests.mutation.mutants", what, *arguments], cwd=folder, check=True,
                          env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True)
    return json.loads(said.stdout.splitlines()[-1])


def mutmut(folder, arguments, log):
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", "import sys; from mutmut.__main__ import cli; sys.exit(cli())", *arguments]
    with open(folder / log, "w", encoding="utf-8") as out:
        subprocess.run(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, check=True,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)))


def exit_codes(folder, names):
    """File -> mutant -> exit code of the tests; of a sample only its mutants."""
    found, wanted = {}, set(names)
    for meta in sorted((folder / "mutants" / "sim").rglob("*.py.meta")):
        codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
        chosen = {name: code for name, code in codes.items() if not wanted or name in wanted}
        if chosen:
            found[meta.relative_to(folder / "mutants").as_posix().removesuffix(".meta")] = chosen
    return found


def report(folder, results):
    """A line of the table for each file, then the survivors, those not judged yet marked."""
    verdicts, rows, survivors = judged(), [], []
    endless = [name for codes in results.values() for name, (code, _) in codes.items() if code in ENDLESS]
    (folder / "endless.txt").write_text("\n".join(asked(folder, "lines", endless).values()), encoding="utf-8")
    for path, codes in results.items():
        ways = Counter(way(code, wide) for code, wide in codes.values())
        alive = asked(folder, "lines", [name for name, (code, wide) in codes.items() if way(code, wide) == "alive"]).values()
        killed, no_matter = len(codes) - len(alive), sum(verdicts.get(one, "").startswith(HARMLESS) for one in alive)
        rows.append(f"| `{path}` | {len(codes)} | {killed} | {ways['own']} | {ways['wider']} | {ways['endless']} "
                    f"| {killed / len(codes):.1%} | {len(alive)} | {no_matter} |")
        survivors += [one if one in verdicts else f"NOT JUDGED {one}" for one in alive]
    text = "\n".join([HEAD, *rows, "", *survivors])
    (folder / "report.md").write_text(text + "\n", encoding="utf-8")
    return text


def way(code, wide):
    """How a mutant ended."""
    if code in ENDLESS:
        return "endless"
    return ("wider" if wide else "own") if code in KILLED else "alive"


if __name__ == "__main__":
    main()
