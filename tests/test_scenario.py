"""Scenarios: what a TOML file says, the grid it makes, and one line for whatever is wrong with it."""

import pytest
from cli_run import run

from experiments.whatif.options import parse
from experiments.whatif.points import grid, make_point
from experiments.whatif.scenario import read_scenario
from experiments.whatif.search_spec import read_promise
from experiments.whatif.values import read_values
from workloads.request import InputError


def scenario(folder, text, name="what-if.toml"):
    path = folder / name
    path.write_text(text)
    return read_scenario(str(path))


def test_a_whole_scenario(tmp_path):
    made = scenario(tmp_path, """
model = "Llama-3.1-8B"
gpu = "H100-80GB"
max_model_len = 8192
allocators = ["paged", "paged-prefix"]
seeds = 3
warm-up = "10%"
confidence = 0.9

[sweep]
rate = [1, 2]
kv-cache-dtype = ["auto", "fp8"]

[baseline]
rate = 2
""")
    assert made.options == {"model": "Llama-3.1-8B", "gpu": "H100-80GB", "max-model-len": 8192}
    assert [(knob.name, knob.values) for knob in made.knobs] == [("rate", (1, 2)), ("kv-cache-dtype", ("auto", "fp8"))]
    assert (made.allocators, made.seeds, made.warm_up, made.confidence) == (("paged", "paged-prefix"), (0, 1, 2), "10%", 0.9)
    assert made.baseline == {"rate": 2, "kv-cache-dtype": "auto"}
    points = grid(made)
    assert len(points) == 2 * 2 * 2 * 3
    assert [(p.knobs, p.allocator, p.seed) for p in points[:4]] == [
        ((("rate", 1), ("kv-cache-dtype", "auto")), "paged", 0), ((("rate", 1), ("kv-cache-dtype", "auto")), "paged", 1),
        ((("rate", 1), ("kv-cache-dtype", "auto")), "paged", 2), ((("rate", 1), ("kv-cache-dtype", "auto")), "paged-prefix", 0)]
    options = parse(points[-1].arguments)
    assert (options.model, options.rate, options.kv_cache_dtype, options.max_model_len, options.allocator, options.seed) == (
        "Llama-3.1-8B", 2.0, "fp8", 8192, ["paged-prefix"], 2)


def test_every_knob_of_the_issue_reaches_its_option(tmp_path):
    knobs = {"rate": (2, "rate"), "max-model-len": (4096, "max_model_len"), "kv-cache-dtype": ("fp8", "kv_cache_dtype"),
             "block-size": (32, "block_size"), "pool": (500, "num_gpu_blocks_override"), "tp": (2, "tensor_parallel_size"),
             "max-num-seqs": (64, "max_num_seqs"), "prefix-caching": (False, "enable_prefix_caching"),
             "policy": ("priority", "scheduling_policy")}
    for knob, (value, field) in knobs.items():
        text = f'"{value}"' if isinstance(value, str) else str(value).lower()
        made = scenario(tmp_path, f"seeds = [5]\n[sweep]\n{knob} = [{text}]\n")
        point, = grid(made)
        assert getattr(parse(point.arguments), field) == value
    assert [p.seed for p in grid(scenario(tmp_path, "[sweep]\nseed = [4, 7]"))] == [4, 7]
    assert [p.allocator for p in grid(scenario(tmp_path, "[sweep]\nallocator = ['token', 'paged']"))] == ["token", "paged"]


def test_without_prefix_caching_paged_prefix_is_paged(tmp_path):
    made = scenario(tmp_path, "[sweep]\nenable-prefix-caching = [true, false]")
    with_, without = grid(made)
    assert (with_.allocator, parse(with_.arguments).allocator) == ("paged-prefix", ["paged-prefix"])
    assert (without.allocator, parse(without.arguments).allocator) == ("paged-prefix", ["paged"])


def test_a_baseline_outside_of_the_grid_is_run_too(tmp_path):
    points = grid(scenario(tmp_path, "[sweep]\nrate = [2, 4]\n[baseline]\nrate = 1"))
    assert [dict(point.knobs) for point in points] == [{"rate": 1}, {"rate": 2}, {"rate": 4}]
    points = grid(scenario(tmp_path, "[sweep]\nrate = [2, 4]\n[baseline]\nrate = 4.0"))
    assert [dict(point.knobs) for point in points] == [{"rate": 2}, {"rate": 4}]


def test_traffic_is_a_recipe_and_its_keys_are_knobs(tmp_path):
    made = scenario(tmp_path, """
seeds = [8]
[traffic]
requests = 10
arrivals = "poisson:rate=2"
prompt = 100
output = 10
prefix = {kind = "system", tokens = 64}
[sweep]
traffic.prefix.tokens = [64, 128]
rate = [3]
""")
    points = grid(made)
    assert [knob.name for knob in made.knobs] == ["traffic.prefix.tokens", "rate"]
    assert [dict(point.changes) for point in points] == [{"prefix.tokens": 64, "seed": 8, "arrivals.rate": 3},
                                                         {"prefix.tokens": 128, "seed": 8, "arrivals.rate": 3}]
    assert all(not any(word.startswith("--rate") for word in point.arguments) for point in points)


def test_a_trace_is_looked_for_beside_the_scenario_first(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder in ("a", "b"):
        (tmp_path / folder / "t.csv").write_text("prompt_tokens,output_tokens\n1,1\n")
    monkeypatch.chdir(tmp_path / "b")
    made = scenario(tmp_path / "a", "trace = 't.csv'")
    assert grid(made)[0].trace == str(tmp_path / "a" / "t.csv")
    (tmp_path / "a" / "t.csv").unlink()
    assert grid(made)[0].trace == "t.csv"


@pytest.mark.parametrize(("value", "values"), [
    ({"from": 1, "to": 4, "step": 1}, (1, 2, 3, 4)),
    ({"from": 1, "to": 2, "step": 0.25}, (1.0, 1.25, 1.5, 1.75, 2.0)),
    ({"from": 0.1, "to": 0.7, "step": 0.2}, (0.1, 0.3, 0.5, 0.7)),
    ({"from": 8, "to": 1, "step": -3}, (8, 5, 2)),
    ({"from": 16, "to": 256, "steps": 5, "scale": "log"}, (16, 32, 64, 128, 256)),
    ({"from": 0.5, "to": 8, "steps": 3, "scale": "log"}, (0.5, 2.0, 8)),
    ({"from": 1, "to": 2, "steps": 3}, (1, 2)),        # whole ends: 1.5 is rounded to 2, which is there
    ([1, "a", True, 2.5], (1, "a", True, 2.5)),
    ([1, True], (1, True)),
])
def test_values(value, values):
    made = read_values(value)
    assert made == values and [type(one) for one in made] == [type(one) for one in values]


WRONG = {
    "max-model-len = 1": ":1: max-model-len: at least 2",
    "block-siz = 16": ":1: block-siz: unknown key 'block-siz': did you mean block-size",
    "model = 'no-such-model-anywhere'": "unknown model",
    "json = 'x'": ":1: json: unknown key",
    "seeds = 0": ":1: seeds: how many",
    "seeds = [1, -1]": ":1: seeds: how many",
    "allocators = ['malloc']": ":1: allocators: unknown allocator 'malloc'",
    "seeds = [3, 1, 3]": ":1: seeds: 3 comes twice",
    "allocators = ['paged', 'token', 'paged']": ":1: allocators: 'paged' comes twice",
    "[sweep]\nseed = [4, 4]": ":2: sweep.seed: 4 comes twice",
    "[sweep]\nallocator = ['paged', 'paged']": ":2: sweep.allocator: 'paged' comes twice",
    "[search]\nfewest = 'gpus'\nkeep = 'ttft p99 <= 1 s'\ndata-parallel-size = [1, 2, 1]": "data-parallel-size: 1 comes twice",
    "allocators = []": ":1: allocators: a list",
    "confidence = 1.5": ":1: confidence: a share",
    "warm-up = 'soon'": ":1: warm-up: ",
    "sweep = 3": ":1: sweep: a table [sweep]",
    "\n[sweep]\n\nrate = []": ":4: sweep.rate: there is no value",
    "[sweep]\nrate = [1, 1.0]": ":2: sweep.rate: 1.0 comes twice",
    "[sweep]\nrate = 2": ":2: sweep.rate: a list such as",
    "[sweep]\nrate = {from = 1, to = 2}": ":2: sweep.rate: a range needs",
    "[sweep]\nrate = {from = 1, to = 2, step = 0}": ":2: sweep.rate: a step of 0",
    "[sweep]\nrate = {from = 0, to = 2, steps = 3, scale = 'log'}": ":2: sweep.rate: a logarithmic",
    "[sweep]\nrate = {from = 1, to = 2, steps = 100000}": ":2: sweep.rate: a range of 100,000",
    "[sweep]\nrate = [1, [2]]": ":2: sweep.rate: a number, a text or true or false",
    "[sweep]\nrate = [nan]": ":2: sweep.rate: a number, a text",
    "rate = 2\n[sweep]\nrate = [1]": ":3: sweep.rate: said above",
    "[sweep]\ntp = [1]\ntensor-parallel-size = [2]": "comes twice, under two names",
    "[sweep]\nblock-size = [16, true]": ":2: sweep.block-size: true is no value",
    "[sweep]\nsaturate = ['yes']": ":2: sweep.saturate: true or false",
    "[sweep]\nspeed = [1]\n[baseline]\nrate = 1": ":4: baseline.rate: not among the knobs",
    "[sweep]\ntraffic.arrivals.rate = [1]": "there is no table [traffic]",
    "trace = 'a'\n[traffic]\nrequests = 3": "a trace is named as well",
    "[search]\nlargest = 'rate'": ":1: search: keep: METRIC STATISTIC <= TIME",
    "[search]\nlargest = 'luck'\nkeep = 'ttft p99 <= 1 s'": ":1: search: largest = 'luck'",
    "[search]\nkeep = 'ttft p99 <= 1 s'": ":1: search: one of largest",
    "[search]\nlargest = 'rate'\nkeep = 'ttft p98 <= 1 s'": "'p98'",
    "rate = [1": ":1: no TOML: ",
    "a = 1\na = 2": ":2: no TOML: ",
}


@pytest.mark.parametrize("text", WRONG)
def test_one_line_for_what_is_wrong(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "what-if.toml").write_text(text)
    said = run(capsys, "sweep", "what-if.toml", "-q")
    assert said.status == 2 and said.out == ""
    assert said.err.count("\n") == 1 and said.err.startswith("pagedsim sweep: error: ") and "what-if.toml" in said.err
    assert WRONG[text] in said.err


def test_promises():
    assert (read_promise("ttft p99 < 1500ms").metric, read_promise("ttft p99 < 1500ms").most) == ("ttft_p99_s", 1.5)
    assert str(read_promise("tpot_mean <= 50 ms")) == "tpot mean <= 0.05 s"
    for wrong in ("ttft <= 3 s", "ttft p99 >= 3 s", "ttft p99 <= 3", "ttft p99 <= 3 h", "", "ttft p99 <= 1.2.3 s", 3):
        with pytest.raises(InputError, match=r"wanted|one of|no number"):
            read_promise(wrong)


def test_same_seed_same_words_but_for_the_knob(tmp_path):
    """Common random numbers: what is drawn depends on the seed alone."""
    made = scenario(tmp_path, "seeds = 2\n[sweep]\nrate = [1, 2]")
    a, b = (make_point(made, (("rate", rate),), "paged", 1) for rate in (1, 2))
    assert [w for w in a.arguments if "rate" not in w] == [w for w in b.arguments if "rate" not in w]
