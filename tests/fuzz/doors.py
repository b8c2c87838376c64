"""Every door: where a file, or text that somebody typed or pasted, comes in. A door makes an input out of random numbers.

A new format, file or option is a line in one of the lists here, in `material` or in `grammars`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from random import Random
from typing import NamedTuple

from experiments.cli import main
from workloads.readers import ALIASES, READERS
from workloads.writers import WRITERS

from . import grammars as made
from . import material as good
from .inputs import Input, Special
from .material import MODEL, POOL, TRACE
from .mutations import mutated, packed
from .places import options, places


class Door(NamedTuple):
    """``weight`` is its share of the inputs."""

    weight: int
    make: Callable[[Random], Input]


READING = (*[()] * 20, ("--strict",), ("--incremental-turns",), ("--hash-block-size", "3"), ("--session-rate", "0.5"),
           ("--window", "0:600"), ("--columns", "prompt=a,output=b"), ("--rate", "3"))


# ---------------------------------------------------------------------- traces
def _about(draw: Random, path: str) -> list[str]:
    """A command that reads a trace, made so that it ends soon."""
    reading = [*draw.choice(READING), *(("--format", draw.choice((*READERS, *ALIASES))) if draw.random() < 0.1 else ())]
    roll = draw.random()
    if roll < 0.82:
        to = draw.choice((["o.csv"], ["o.csv"], ["o.jsonl", "--to", draw.choice(list(WRITERS))], ["-"]))
        return ["trace", "convert", path, *to, *reading]
    if roll < 0.88:
        return ["trace", "info", path, *reading]
    if roll < 0.93:
        how = draw.choice((["cut", path, "o.csv", "--to", "5"], ["scale", path, "o.csv", "--speed", "3"],
                           ["merge", path, "t", "o.csv"], ["sample", path, "o.csv", "--fraction", "0.5"]))
        return ["trace", *how, *([] if "--rate" in reading else reading)]
    if roll < 0.992:
        return ["compare", path, "-q", "--json", "-", *POOL, *reading]
    if roll < 0.996:
        return ["prefix", path, "-q", "--json", "-", *POOL, *reading]
    return ["view", path, "-q", "--html", "o.html", *POOL, *reading]


def traces(draw: Random) -> Input:
    """A good trace, damaged, perhaps packed; or what lies beside it."""
    name, data, beside = draw.choice(good.traces())
    files: good.Files = {"t": TRACE, **beside, name: packed(draw, mutated(draw, data))}
    if beside and draw.random() < 0.5:
        other = draw.choice(sorted(beside))
        content = beside[other]
        assert isinstance(content, bytes)
        files |= {name: data, other: packed(draw, mutated(draw, content))}
    return Input(tuple(_about(draw, name)), files)


def made_traces(draw: Random) -> Input:
    """A trace that mixes the columns of all formats."""
    data = packed(draw, draw.choice((made.table, made.records))(draw))
    if draw.random() < 0.1:
        return Input(tuple(_about(draw, "-")), {"t": TRACE}, stdin=data)
    return Input(tuple(_about(draw, "x")), {"t": TRACE, "x": data})


def folders(draw: Random) -> Input:
    """A folder of ServeGen or kv-cache-tester with one file damaged."""
    files: good.Files = {**draw.choice(good.folders())}
    name = draw.choice(sorted(files))
    content = files[name]
    assert isinstance(content, bytes)
    files[name] = packed(draw, mutated(draw, content))
    if draw.random() < 0.1:
        del files[name]
    words = _about(draw, draw.choice(("f", "f", name)))
    if words[0] != "trace":                            # half a million requests are drawn sooner than served
        words += ["--limit", "60"]
    return Input(tuple(words), {"t": TRACE, **files})


# ---------------------------------------------------------------------- models and commands of servers
def configs(draw: Random) -> Input:
    """A config.json, damaged or made up."""
    data = mutated(draw, draw.choice(good.configs())) if draw.random() < 0.6 else made.config(draw)
    more = draw.choice(((), ("-tp", "8"), ("-pp", "3"), ("--mtp-layers", "1"), ("--kv-cache-dtype", "fp8"),
                        ("-ep", "-dp", "4")))
    files: good.Files = {"config.json": data, "t": TRACE}
    if draw.random() < 0.15:
        return Input(("compare", "t", "-q", "--json", "-", "--model", "config.json", "--gpu", "H200", *more), files)
    sized = draw.choice((("--gpu", "H200"), ("--gpu", "80GB"), ("--available-kv-gib", "20"), POOL))
    shown = ("--json", "-") if draw.random() < 0.9 else ()
    return Input(("plan", "-q", *shown, "--model", draw.choice(("config.json", ".")), *sized, *more), files)


def serve_lines(draw: Random) -> Input:
    """A pasted server command: a real one damaged, or one out of vLLM's options."""
    text = made.serve(draw) if draw.random() < 0.5 else mutated(draw, draw.choice(good.SERVE_LINES).encode()).decode("utf-8",
                                                                                                                     "replace")
    pasted = [text] if draw.random() < 0.5 else text.split(" ")
    gpu = draw.choice((("--gpu", "H100"), ("--gpu", "H100"), ("--gpu", "H200"), ()))
    return Input(("plan", "-q", "--json", "-", *gpu, "--", *pasted))


def servers(draw: Random) -> Input:
    """What `pagedsim calibrate` takes, damaged or made up."""
    name = draw.choice(sorted(good.servers()))
    data = packed(draw, mutated(draw, good.servers()[name]) if draw.random() < 0.85 else
                  draw.choice((made.table, made.records))(draw))
    more = draw.choice(((), MODEL, (*MODEL, "--trace", "t"), (*MODEL, "--trace", "t", "--fit"), (*MODEL, "--elapsed", "40"),
                        (*MODEL, "--offset", "3", "--trace", "t"), ("--gpu", "H100"))) if name in ("log", "blocks", "page",
                                                                                                   "docker") \
        else draw.choice(((), (*MODEL, "--trace", "t"), ("--gpu", "H100"), ("--gpu", "H100"), ("--offset", "1")))
    if draw.random() < 0.03:                           # a whole fit takes a second
        more = MODEL
    return Input(("calibrate", "x", "-q", "--json", "-", *more), {"x": data, "t": TRACE})


def step_times(draw: Random) -> Input:
    """A step-time file, damaged or made up."""
    data = mutated(draw, draw.choice(good.STEP_TIMES)) if draw.random() < 0.6 else made.tables(
        draw, ("us", "bandwidth_efficiency", "flops_efficiency", "overhead_us"), ("fitted",))
    if draw.random() < 0.9:
        data = draw.choice((b'kind = "constant"\n', b'kind = "roofline"\n')) + data
    more = draw.choice((POOL, (*MODEL, "--max-model-len", "4096")))
    return Input(("compare", "t", "-q", "--json", "-", "--allocator", "paged", "--step-time", "x.toml", *more),
                 {"x.toml": packed(draw, data), "t": TRACE})


# ---------------------------------------------------------------------- scenarios, recipes, results, cases
def scenarios(draw: Random) -> Input:
    """A scenario; some of the small ones are run."""
    files: good.Files = {"t.csv": TRACE}
    if draw.random() < 0.08:
        files["s.toml"] = _short(draw)
        return Input(("sweep", "s.toml", "--jobs", "1", "--no-figures", "-q", "--json", "-"), files, may_fail=True)
    keys = ("seeds", "allocators", "warm-up", "confidence", "trace", "rate", "pool", "model", "gpu", "keep", "largest", "from",
            "to",
            "speed", "max-num-seqs", "traffic.prompt", "resolution", "x", *(name[2:] for name, _ in made.options_of("compare")))
    files["s.toml"] = mutated(draw, draw.choice((*good.SCENARIOS, good.SMALL_SCENARIO))) if draw.random() < 0.6 else \
        made.tables(draw, keys, ("sweep", "search", "baseline", "traffic"))
    return Input(("sweep", "s.toml", "--dry-run"), files)


def _short(draw: Random) -> bytes:
    """A scenario that is run, with as few points as it had: thousands of them would end too, but not soon."""
    made_of = mutated(draw, good.SMALL_SCENARIO)
    return made_of if b"seeds = 2\n" in made_of and b"requests = 8\n" in made_of else good.SMALL_SCENARIO


def recipes(draw: Random) -> Input:
    """A recipe, damaged or made up, and changes to it."""
    keys = ("requests", "seed", "arrivals", "prompt", "output", "prefix", "lengths", "x")
    data = mutated(draw, draw.choice(good.RECIPES)) if draw.random() < 0.7 else made.tables(draw, keys, keys[2:])
    changed = draw.choice((made.number(draw), made.spec(draw, "prompt")))
    changes = ("--set", f"{draw.choice(keys)}{draw.choice(('', '.kind', '.rate', '.a.b'))}={changed}")
    return Input(("trace", "synth", "r.toml", *(("o.csv",) if draw.random() < 0.7 else ()),
                  *(changes if draw.random() < 0.2 else ()),
                  "--requests", "50"), {"r.toml": data})


def specs(draw: Random) -> Input:
    """Generators in their short form, for a trace that lacks something."""
    which = draw.choice(("--synth-prefix", "--synth-output", "--synth-arrivals"))
    return Input(("compare", "t", "-q", "--json", "-", "--allocator", "paged", which, made.spec(draw, which), *POOL),
                 {"t": b"prompt_tokens,output_tokens\n21,5\n80,6\n"})


def cases(draw: Random) -> Input:
    """A recorded case, damaged or made up."""
    data = mutated(draw, draw.choice(good.cases())) if draw.random() < 0.7 else made.case(draw)
    files = {"x.json": data, "large.json": good.LARGE}
    more = draw.choice(((), (), (), ("--jump",), ("--totals", "large.json", "--run", "0")))
    if draw.random() < 0.1:
        files, more = {"x.json": draw.choice(good.cases()), "large.json": mutated(draw, good.LARGE)}, ("--totals", "large.json",
                                                                                                       "--run", "0")
    return Input(("conform", "x.json", "-q", *more), files, may_fail=True)


def results(draw: Random) -> Input:
    """A result of `pagedsim compare --json` that `pagedsim plan` reads back."""
    data = mutated(draw, draw.choice((_result(), b'{"scenarios": [{"throughput": {"total_tokens_per_s": 1500.5}}]}')))
    return Input(("plan", "-q", "--json", "-", *POOL, "--max-model-len", "4096", "--gpu-hour", "2", "--throughput-from",
                  "x.json"),
                 {"x.json": data})


def stores(draw: Random) -> Input:
    """The folder of a sweep, its store damaged, and the sweep gone on with."""
    files: good.Files = {**_swept()}
    name = draw.choice(sorted(files))
    content = files[name]
    assert isinstance(content, bytes)
    files[name] = mutated(draw, content)
    if draw.random() < 0.1:
        files["s.results/.lock"] = draw.choice((b"x", b"SQLite format 3\0", Special("folder")))
    scenario = _short(draw) if draw.random() < 0.1 else good.SMALL_SCENARIO
    return Input(("sweep", "s.toml", "--jobs", "1", "--no-figures", "-q", draw.choice(("--resume", "--retry")), "--json", "-"),
                 {"s.toml": scenario, **files}, may_fail=True)


@cache
def _result() -> bytes:
    return _ran(("compare", "t", "-q", "--json", "o.json", *POOL, "--allocator", "paged"), {"t": TRACE})["o.json"]


@cache
def _swept() -> dict[str, bytes]:
    found = _ran(("sweep", "s.toml", "--out", "s.results", "--jobs", "1", "--no-figures", "-q"),
                 {"s.toml": good.SMALL_SCENARIO})
    return {name: data for name, data in found.items() if name.startswith("s.results/") and "/." not in name}


def _ran(arguments: Sequence[str], files: dict[str, bytes]) -> dict[str, bytes]:
    """What a command leaves in the folder it is given."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        words = [str(Path(folder, word)) if word in files or word in ("o.json", "s.results") else word for word in arguments]
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            assert main(words) == 0
        return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}



DOORS: dict[str, Door] = {
    "traces": Door(40, traces), "made-traces": Door(30, made_traces), "folders": Door(1, folders), "configs": Door(2, configs),
    "serve-lines": Door(1, serve_lines), "servers": Door(3, servers), "step-times": Door(3, step_times),
    "scenarios": Door(8, scenarios), "recipes": Door(6, recipes), "specs": Door(4, specs), "cases": Door(16, cases),
    "results": Door(7, results), "stores": Door(1, stores), "options": Door(2, options), "places": Door(1, places)}


def made_input(seed: int, door: str, number: int) -> Input:
    """The input of a number, the same every time."""
    return DOORS[door].make(Random(f"{seed}/{door}/{number}"))
