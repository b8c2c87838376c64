"""Two doors of every command: its options with any values, and names that lead to no plain file."""

from __future__ import annotations

from random import Random

from . import grammars as made
from . import material as good
from .inputs import Input, Special
from .material import MODEL, POOL, TRACE, TURNS

PIECES: good.Files = {"t": TRACE, "m": TURNS, "s.toml": good.SMALL_SCENARIO, "r.toml": good.RECIPES[1],
                     "k.toml": good.STEP_TIMES[1]}
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("compare", "t", "-q", "--json", "-", *POOL), ("compare", "m", "-q", "--json", "-", *POOL),
    ("plan", "-q", "--json", "-", *MODEL),
    ("plan", "-q"), ("prefix", "m", "-q", "--json", "-", *POOL), ("view", "t", "-q", "--html", "o.html", *POOL),
    ("calibrate", "x", "-q", "--json", "-"), ("conform", "x.json", "-q"), ("quiz", "-q"), ("trace", "info", "m"),
    ("trace", "convert", "t", "o.csv"), ("trace", "synth", "r.toml", "o.csv"), ("trace", "cut", "t", "o.csv"),
    ("trace", "scale", "t", "o.csv"), ("trace", "merge", "t", "m", "o.csv"), ("trace", "sample", "m", "o.csv"),
    ("sweep", "s.toml", "--dry-run"))
NEVER = ("--dask", "--out", "--jobs", "--plot", "--html")       # other machines, folders, processes; pictures take long
READS = (("trace", "convert", "?", "o.csv"), ("trace", "info", "?"), ("compare", "?", "-q", *POOL),
         ("prefix", "?", "-q", *POOL),
         ("view", "?", "-q", *POOL, "--html", "o.html"), ("plan", "--model", "?", "--gpu", "H100"),
         ("plan", "--model", "?/config.json"),
         ("plan", *POOL, "--max-model-len", "99", "--gpu-hour", "2", "--throughput-from", "?"), ("calibrate", "?", *MODEL),
         ("calibrate", "x", *MODEL, "--trace", "?"), ("compare", "t", "-q", *POOL, "--step-time", "?.toml"),
         ("compare", "t", "-q", *POOL, "--step-time", "?"), ("compare", "t", "-q", *POOL, "--warm-trace", "?"),
         ("conform", "?"), ("conform", "x.json", "--totals", "?", "--run", "0"), ("sweep", "?", "--dry-run"),
         ("sweep", "?", "--resume", "-q"),
         ("trace", "synth", "?"), ("trace", "merge", "?", "t", "o.csv"), ("reproduce", "fig2", "-q", "--trace", "?", "--limit",
                                                                          "2"))
WRITES = (("compare", "t", "-q", *POOL, "--json", "?"), ("compare", "t", "-q", *POOL, "--requests", "?"),
          ("compare", "t", "-q", *POOL, "--html", "?"), ("compare", "t", "-q", *POOL, "--chrome-trace", "?"),
          ("trace", "convert", "t", "?"), ("trace", "synth", "r.toml", "?"), ("plan", "-q", *MODEL, "--json", "?"),
          ("view", "t", "-q", *POOL, "--html", "?"), ("quiz", "-q", "--html", "?"), ("conform", "x.json", "-q", "--json", "?"),
          ("sweep", "s.toml", "-q", "--jobs", "1", "--no-figures", "--out", "?"), ("prefix", "m", "-q", *POOL, "--json", "?"))
NAMES = ("", "nowhere", "nowhere/x", "t/x", "a\nb", "a\0b", "\ud800", "\udcff", "x" * 300, "x" * 5000, "-x", "~", "?", "é",
         "\u202e.csv")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/stdin", "/proc/self/mem", "/proc/self/cmdline",
           "/dev/tty")


def options(draw: Random) -> Input:
    """Any options of any command with any values, beside files that are good."""
    command = draw.choice(COMMANDS)
    name = command[:2] if command[0] == "trace" else command[:1]
    files: good.Files = {**PIECES, "x": good.servers()["log"], "x.json": good.cases()[0]}
    return Input((*command, *made.words(draw, name, never=NEVER)), files, may_fail=command[0] == "conform")


def places(draw: Random) -> Input:
    """A name that leads to no plain file, read or written by every option that takes a file."""
    files: good.Files = {**PIECES, "x": good.servers()["table"], "x.json": good.cases()[0]}
    writes = draw.random() < 0.25
    if draw.random() < 0.5:
        name = draw.choice((*NAMES, "/dev/null", "/dev/full") if writes else (*NAMES, *DEVICES))
    else:
        name = "odd"
        files["odd"] = draw.choice((
            Special("folder"), Special("link", "odd"), Special("link", "nowhere"), Special("link", "t"), Special("link", "."),
            Special("locked", data=TRACE), b"", *(() if writes else (
                Special("pipe", data=draw.choice((b"", TRACE, TURNS, good.cases()[0], good.RECIPES[0], b"{" * 99,
                                                  good.STEP_TIMES[1]))),
                Special("link", "/dev/zero")))))
    command = draw.choice(WRITES if writes else READS)
    stdin = draw.choice((b"", TRACE, good.RECIPES[1]))
    words = tuple(word.replace("?", name) if word.startswith("?") else word for word in command)
    return Input(words, files, stdin=stdin, may_fail=True)
