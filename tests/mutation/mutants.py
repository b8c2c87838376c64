"""What mutmut knows, asked inside the copy of the sources: ``mutants names FILE ...`` or ``mutants lines NAME ...``, as JSON."""

import json
import sys
from pathlib import Path

from mutmut.mutation.diff_apply import find_mutant, get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name


def names(patterns):
    """File -> the names of its mutants."""
    found = {pattern: list(Path().glob(pattern)) for pattern in patterns}
    if not all(found.values()):
        raise SystemExit(f"no such file: {', '.join(pattern for pattern, paths in found.items() if not paths)}")
    files = sorted({path for paths in found.values() for path in paths})
    return {str(path): [get_mutant_name(path, name) for name in mutate_file_contents(str(path), path.read_text()).mutant_names]
            for path in files}


def lines(mutants):
    """Mutant -> one line: file, function and the lines it changes."""
    return {name: described(find_mutant(name).path, name, get_diff_for_mutant(name)) for name in mutants}


def described(path, name, diff):
    function = name.rpartition(".")[2].split("__mutmut_")[0].removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    changed = [line for line in diff.splitlines() if line[:1] in "+-" and not line.startswith(("+++", "---"))]
    was, became = (" / ".join(line[1:].strip() for line in changed if line[0] == sign) for sign in "-+")
    return f"{path} {function}: {was} => {became}"


if __name__ == "__main__":
    print(json.dumps({"names": names, "lines": lines}[sys.argv[1]](sys.argv[2:])))
