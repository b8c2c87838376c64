"""Scenario files that nobody meant: mutated and grown ones end in a scenario or in one line, never in anything else."""

import os
import random

import pytest

from experiments.sweep import checked_grid
from experiments.whatif.scenario import read_scenario
from workloads.request import InputError

SEEDS = ["""model = "Llama-3.1-8B"
gpu = "L4"
max-model-len = 4096
seeds = 2
allocators = ["paged", "paged-prefix"]
warm-up = "10%"
confidence = 0.9
[sweep]
rate = {from = 1, to = 4, step = 0.5}
kv-cache-dtype = ["auto", "fp8"]
prefix-caching = [true, false]
[baseline]
rate = 2
[search]
largest = "max-num-seqs"
keep = ["ttft p99 <= 2 s", "preemptions <= 0"]
from = 2
to = 64
resolution = 0.1
""", """seeds = [1, 2]
pool = 500
[traffic]
requests = 10
arrivals = "poisson:rate=2"
prompt = {kind = "constant", value = 100}
output = 10
prefix = "system:tokens=64"
[sweep]
traffic.prefix.tokens = [64, 128]
max-num-seqs = {from = 2, to = 64, steps = 3, scale = "log"}
[search]
fewest = "gpus"
keep = "e2e mean <= 3 min"
tensor-parallel-size = [1, 2]
"""]
WORDS = ["rate", "[sweep]", "[search]", "{from = 1, to = 1e300, step = 1}", "{from = 1, to = 2, steps = 3}", "[]", "[[1]]",
         "nan", "inf", "-1", "0", "1e999", "99999999999999999999999999", "true", "\"\"", "'\\u0000'", "1979-05-27T07:32:00Z",
         "[sweep.rate]", "=", ".",
         "traffic", "seeds", "trace", "\"-\"", "speed", "keep", "{}", "[baseline]", "0x1F", "'''", "\n",
         "[1, 1.0, true]", "\"x\" = 1"]
COUNT = 1500 * int(os.environ.get("PAGEDSIM_LONG", "1"))


def mutate(draw, text):
    for _ in range(draw.randint(1, 4)):
        lines = text.split("\n")
        at = draw.randrange(len(lines))
        kind = draw.randrange(6)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, draw.choice(lines))
        elif kind == 2 and "=" in lines[at]:
            lines[at] = lines[at].split("=")[0] + "= " + draw.choice(WORDS)
        elif kind == 3:
            lines[at] = draw.choice(WORDS) + " = " + draw.choice(WORDS)
        elif kind == 4 and lines[at]:
            place = draw.randrange(len(lines[at]))
            other = chr(draw.choice([0, 34, 39, 61, 91, 93, 123, 125, 233, 0x1F600]))
            lines[at] = lines[at][:place] + other + lines[at][place + 1:]
        else:
            lines[at] = lines[at][: draw.randrange(len(lines[at]) + 1)]
        text = "\n".join(lines)
    return text


def complaint_about(path):
    """The one line; None where the scenario can be run."""
    try:
        checked_grid(read_scenario(str(path)))
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("block", range(3))
def test_mutated_scenarios(block, tmp_path):
    draw = random.Random(block)
    path = tmp_path / "s.toml"
    good = 0
    for _ in range(COUNT // 3):
        text = mutate(draw, draw.choice(SEEDS))
        path.write_text(text, encoding="utf-8")
        said = complaint_about(path)
        assert said is None or (said and "\n" not in said), text
        good += said is None
    assert good >= COUNT // 100


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "s.toml"
    for data in (b"\xff\xfe", b"\x00" * 100, b"a = 1\r\n", b"a = " + b"[" * 5000, b"a = " + b"9" * 5000, b"x" * 2_000_000):
        path.write_bytes(data)
        with pytest.raises(InputError) as caught:
            read_scenario(str(path))
        assert "\n" not in str(caught.value)
