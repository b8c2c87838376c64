"""Record cases from the real vLLM scheduler and block pool, or check recorded ones. See README.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from workload import dump_case, load_case


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", type=Path, metavar="CASE.json", help="cases to record")
    parser.add_argument("-o", "--out-dir", type=Path, help="folder to write to (default: each case is rewritten in its place)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a recorded result is not what vLLM does now")
    return parser


def difference(old: object, new: object, where: str = "result") -> str | None:
    """Name the first place where two JSON values differ, None if they are equal."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        pairs = [(f"{where}.{key}", old[key], new[key]) for key in old]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(f"{where}[{index}]", *both) for index, both in enumerate(zip(old, new, strict=True))]
    else:
        # True == 1 and 1 == 1.0 in Python, but not as JSON.
        equal = type(old) is type(new) and old == new
        return None if equal else f"{where}: recorded {str(old)[:80]}, now {str(new)[:80]}"
    return next((found for pair in pairs if (found := difference(pair[1], pair[2], pair[0]))), None)


def handle(path: Path, out_dir: Path | None, check: bool) -> bool:
    """Record or check one case; tell whether all is well."""
    from drive import record

    case = load_case(path)
    new = record(case)
    if check:
        found = difference(case.get("result"), new["result"])
        print(f"{path.name}: {found or 'equal'}")
        return found is None
    target = path if out_dir is None else out_dir / path.name
    target.write_text(dump_case(new), encoding="utf-8")
    outcome = new["result"]
    print(f"{target}: {outcome['outcome']} after {outcome['steps']} steps, {outcome['preemptions']} preemptions")
    return True


def main() -> int:
    """Run the command line."""
    args = arguments().parse_args()
    if args.out_dir is not None:
        args.out_dir.mkdir(parents=True, exist_ok=True)
    results = [handle(path, args.out_dir, args.check) for path in args.cases]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
