"""What fuzzing found, each kind of fault by a name. `test_fuzz.py` looks for more."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_run import document, lengths, run

from experiments import crosscheck
from experiments.benchmarks import __main__ as benchmarks
from experiments.conformance.cases import read_case
from sim.models.model_config import MOST_LAYERS, load_model
from workloads.request import InputError
from workloads.toml_text import load
from workloads.whole_file import bytes_of

POOL = ("--num-gpu-blocks-override", 1000)


def complaint(capsys, *arguments):
    """The one line."""
    said = run(capsys, *arguments)
    assert (said.status, said.out) == (2, ""), said.err
    assert said.err.count("\n") == 1
    assert said.err[:-1].isprintable()
    return said.err.partition(": error: ")[2][:-1]


@pytest.fixture
def trace(tmp_path):
    return lengths(tmp_path, [(20, 5), (30, 6)])


# ---------------------------------------------------------------------- names of files
@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
@pytest.mark.parametrize("option", ["--json", "--requests", "--chrome-trace"])
def test_names_that_no_file_can_have_are_not_written(capsys, trace, name, option):
    assert "cannot write: no name of a file: " in complaint(capsys, "compare", trace, *POOL, option, name)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300, "x" * 5000])
@pytest.mark.parametrize("words", [("compare", "?"), ("calibrate", "?", "--out", "x.toml"), ("conform", "?"),
                                   ("plan", "--model", "?"),
                                   ("plan", "--model", "?/config.json"), ("trace", "info", "?"), ("sweep", "?"),
                                   ("trace", "synth", "?")])
def test_names_that_no_file_can_have_are_not_read(capsys, tmp_path, monkeypatch, words, name):
    monkeypatch.chdir(tmp_path)
    assert "standard output" not in complaint(capsys, *(word.replace("?", name) for word in words))


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300])
def test_names_that_no_folder_can_have(capsys, tmp_path, name):
    scenario = tmp_path / "s.toml"
    scenario.write_text("num-gpu-blocks-override = 60\n[traffic]\nrequests = 2\nprompt = 9\noutput = 3\n"
                        "arrivals = 'all-at-once'\n")
    assert "folder" in complaint(capsys, "sweep", scenario, "--jobs", 1, "--out", name)


def test_letters_that_change_a_line_are_escaped(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "\\u202e" in complaint(capsys, "conform", "\u202ex")
    assert "\\x1b[2J" in complaint(capsys, "compare", "--allocator", "\x1b[2J")
    assert "a\\x00b" in complaint(capsys, "plan", *POOL, "--max-model-len", 99, "--throughput-from", "a\0b")


# ---------------------------------------------------------------------- files without end
@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs /dev/zero")
@pytest.mark.parametrize(("limit", "words"), [
    ("experiments.conformance.cases.LARGEST_MIB", ("conform", "?")), ("experiments.planning.cost.LARGEST_MIB", ("plan", *POOL,
                                                                                                "--max-model-len", 99,
                                                          "--gpu-hour", 1, "--throughput-from", "?")),
    ("sim.models.model_config.LARGEST_MIB", ("plan", "--gpu", "L4", "--model", "?.json"))])
def test_a_file_without_end_is_read_up_to_a_limit(capsys, tmp_path, monkeypatch, limit, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(limit, 1)
    for name in ("endless", "endless.json"):
        os.symlink("/dev/zero", name)
    said = complaint(capsys, *(str(word).replace("?", "endless") for word in words))
    assert said.endswith(": longer than 1 MiB")


def test_a_whole_file_up_to_its_limit(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(1 << 20))
    assert len(bytes_of(path, 1)) == 1 << 20
    path.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(InputError, match=r"x: longer than 1 MiB\Z"):
        bytes_of(path, 1)
    with pytest.raises(InputError, match=r": is a directory\Z"):
        read_case(str(tmp_path))


def test_a_result_of_the_benchmarks_that_is_nested_without_end(capsys, tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[" * 100_000)
    assert benchmarks.main(["--from", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"experiments.benchmarks: error: {path}: no JSON: ")
    assert said.count("\n") == 1


# ---------------------------------------------------------------------- numbers
@pytest.mark.parametrize("text", ["9" * 400 + "k", "9" * 400 + ".5g", "9" * 309 + "t"])
def test_a_number_that_no_float_holds(capsys, trace, text):
    assert complaint(capsys, "compare", trace, f"--max-num-seqs={text}").startswith(
        f"argument --max-num-seqs: a whole number is wanted, not '{text[:20]}")


@pytest.mark.parametrize(("option", "value"), [("--throughput", "5e-324"), ("--price-output", "5e-324")])
def test_a_price_so_small_that_costs_have_no_end(capsys, option, value):
    words = {"--prompt-tokens": "1", "--output-tokens": "1", "--price-input": "0", "--price-output": "1", "--gpu-hour": "1e9",
             "--throughput": "5", option: value}
    said = complaint(capsys, "plan", *POOL, "--max-model-len", 99, *(word for pair in words.items() for word in pair))
    assert said == "a price or a throughput is so small that what follows from it is over 1e308"


def test_more_layers_than_any_model_has(tmp_path):
    path = tmp_path / "config.json"
    shape = '{"model_type": "llama", "num_hidden_layers": %d, "num_attention_heads": 8, "hidden_size": 64}'
    path.write_text(shape % MOST_LAYERS)
    assert load_model(path).layers == MOST_LAYERS
    path.write_text(shape % (MOST_LAYERS + 1))
    with pytest.raises(InputError, match=f"num_hidden_layers is {MOST_LAYERS + 1}, more than {MOST_LAYERS}"):
        load_model(path)


@pytest.mark.parametrize("ends", ["from = 1, to = {}, steps = 3", "from = -{}, to = 1, step = 1", "from = {}, to = 1, steps = 2"])
@pytest.mark.parametrize("number", ["9" * 400, "1e300", "nan"])
def test_a_range_to_where_there_are_no_floats(capsys, tmp_path, ends, number):
    path = tmp_path / "s.toml"
    path.write_text(f"[sweep]\nrate = {{{ends.format(number)}}}\n")
    assert " of a range must be a number up to 1e+18, not " in complaint(capsys, "sweep", path, "--dry-run")


@pytest.mark.parametrize("factor", ["9" * 400, "1e300", "NaN", "-1"])
def test_a_factor_of_positions_that_is_no_float(tmp_path, factor):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 64, '
                    f'"rope_scaling": {{"rope_type": "yarn", "factor": {factor}}}}}')
    with pytest.raises(InputError, match="rope_scaling has factor "):
        load_model(path)


@pytest.mark.parametrize("spec", ["diurnal:rate=5e-324", "poisson:rate=5e-324", "on-off:rate=1,on_s=5e-324,off_s=1",
                                  "diurnal:rate=1,period_s=5e-324", "gamma:rate=1e-310"])
def test_arrivals_past_the_end_of_all_clocks(capsys, trace, spec):
    assert complaint(capsys, "compare", trace, *POOL, "--synth-arrivals", spec).startswith("--synth-arrivals")


@pytest.mark.parametrize("words", [("compare", "t", "--format=--"), ("trace", "cut", "t", "o", "--format=--"),
                                   ("compare", "t", "--seed=--"), ("plan", "--model=--")])
def test_a_value_that_is_two_dashes(capsys, words):
    option = next(word for word in words if word.endswith("=--"))
    assert complaint(capsys, *words).startswith(f"argument {option[:-3]}: expected one argument")


def test_long_words_of_a_pasted_command_are_shortened(capsys):
    for words in (["x" * 5000], ["vllm", "serve", "a", "x" * 5000], ["vllm", "serve", "a", "--model", "x" * 5000],
                  ["vllm", "serve", "a", "--max-model-len", "x" * 5000]):
        assert len(complaint(capsys, "plan", "--gpu", "H100", "--", *words)) < 400


# ---------------------------------------------------------------------- recorded cases
def case_of(tmp_path, **changes):
    """A recorded case of one request, with other fields."""
    case = {"config": {"num_blocks": 20, "detail": "none"}, "requests": [{"id": "a", "prompt": [["s", 40]], "output": 9}],
            "result": {"steps": 9}}
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case | changes))
    return path


def test_a_replay_goes_no_further_than_what_was_recorded(capsys, tmp_path, monkeypatch):
    assert run(capsys, "conform", case_of(tmp_path)).status == 0
    endless = [{"id": "a", "prompt": [["s", 40]], "output": 100_000}]
    for result in ({"steps": 9}, {"steps": 10**12, "step_rows": [[8, 1, 0, 1, 16, 16, 0]]}):
        said = run(capsys, "conform", case_of(tmp_path, requests=endless, result={**result, "outcome": "finished"}))
        assert said.status == 1
        assert "outcome: expected finished, got longer than recorded" in said.out
        assert "got 10\n" in said.out
    monkeypatch.setattr("experiments.conformance.diff.UNSAID", 50)
    said = run(capsys, "conform", case_of(tmp_path, requests=endless, result={"outcome": "finished"}))
    assert "got longer than recorded" in said.out


@pytest.mark.parametrize(("changes", "says"), [({"layers": [["full", 10**9, {}]]}, "1000000000 layers, more than 512"),
                                               ({"max_model_len": 0}, "layout 0 cannot be used: ZeroDivisionError")])
def test_layouts_that_no_model_has(capsys, tmp_path, changes, says):
    layout = {"name": "x", "layers": [["full", 2, {"block_size": 16, "num_kv_heads": 8, "head_size": 128}]], "dtype_bytes": 2,
              "available_bytes": 1 << 30, "max_model_len": 100, "max_num_batched_tokens": 100}
    path = tmp_path / "case.json"
    path.write_text(json.dumps({"cases": [layout | changes]}))
    assert says in complaint(capsys, "conform", path)


def test_a_long_key_of_a_case_is_shortened(capsys, tmp_path):
    assert len(complaint(capsys, "conform", case_of(tmp_path, config={"x" * 5000: 1}))) < 400


# ---------------------------------------------------------------------- traces
def test_servegen_windows_that_draw_nobody(capsys, tmp_path):
    (tmp_path / "chunk-7-trace.csv").write_text("0,0.05,1.0,Gamma,0.05,4294967296\n")
    (tmp_path / "chunk-7-dataset.json").write_text('{"0": {"input_tokens": "{5: 1}", "output_tokens": "{7: 1}"}}')
    assert complaint(capsys, "compare", tmp_path, *POOL) == f"{tmp_path}: no request from 0 to 600 s (--window START:STOP)"


# ---------------------------------------------------------------------- pools
@pytest.mark.parametrize("allocator", ["paged-prefix", "paged-reserve", "contiguous-max", "token"])
def test_a_probe_of_a_large_pool_is_no_longer_than_a_run(capsys, trace, monkeypatch, allocator):
    monkeypatch.setattr(crosscheck, "MOST_PROBED", 50)
    for blocks in (40, 2000):
        checks = document(capsys, trace, "--num-gpu-blocks-override", blocks, "--allocator", allocator)["crosscheck"]
        probe = next(check for check in checks if check["name"].startswith("probe"))
        assert probe["simulated"] == probe["analytic"]
        assert probe["name"].endswith(" blocks") == (blocks == 2000)
        assert blocks == 40 or 50 <= probe["simulated"] <= 55


def test_what_a_hundred_thousand_more_found(capsys, tmp_path):
    endless = "9" * 3000
    scenario = tmp_path / "s.toml"
    lines = ['model = "Llama-3.1-8B"', 'gpu = "L4"', "max-model-len = 64", "[traffic]", "requests = 2", "prompt = 3",
             "output = 2", 'arrivals = "poisson:rate=2"', "[sweep]", "max-num-seqs = [2, 4]", "[search]",
             'largest = "max-num-seqs"', 'keep = ["ttft p99 <= 2 s"]', f"from = {endless[:400]}", "to = 64"]
    scenario.write_text("\n".join(lines))
    said = run(capsys, "sweep", scenario, "--dry-run")
    assert said.status == 2 and ": search: from: a number above 0 is wanted, not 9999" in said.err and len(said.err) < 300
    scenario.write_text(f"num-{endless} = 1\n")        # a word is told as it stands, but not without end
    said = run(capsys, "sweep", scenario, "--dry-run")
    assert said.status == 2 and "999...999" in said.err and len(said.err) < 600
    late = tmp_path / "late.csv"
    late.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n9223372025,9,1\n0,9,1\n")
    said = run(capsys, "trace", "convert", late, tmp_path / "o.csv", "--to", "azure")
    assert said.status == 2 and said.err.count("\n") == 1 and "later than a calendar time" in said.err and "name" not in said.err
    said = run(capsys, "plan", "--model", "Llama-3.1-8B", "--gpu", "L4", "--pipeline-parallel-size", str(1 << 53))
    assert said.status == 2 and "at most 1,024 is wanted" in said.err


@pytest.mark.parametrize("key", ["a." * 500 + "b = 1", "[" + "a." * 90000 + "b]", "x = {" + ' "a" . ' * 65 + "b = 1}"])
@pytest.mark.parametrize("command", [("sweep", "d.toml"), ("trace", "synth", "d.toml", "o.csv"),
                                     ("compare", "--num-gpu-blocks-override", "99", "--step-time", "d.toml")])
def test_a_key_of_many_parts_is_refused_before_it_takes_memory(capsys, tmp_path, monkeypatch, command, key):
    monkeypatch.chdir(tmp_path)
    Path("d.toml").write_text(f"# sevens, etc.\n{key}\n")
    said = run(capsys, *command, "-q")
    assert said.status == 2 and said.err.count("\n") == 1 and "d.toml:2: no TOML: a key of more than 64 parts" in said.err


def test_a_text_with_many_dots_is_no_key():
    text = "x = '" + "a." * 40 + "' # " + "one. " * 30 + "\ny.z = [" + "1.5, " * 200 + "]\n"
    assert load(text, "a.toml")["y"]["z"] == [1.5] * 200
    with pytest.raises(InputError, match=r"a.toml: no TOML: nested too deep\Z"):
        load("x = " + "[" * 5000, "a.toml")
