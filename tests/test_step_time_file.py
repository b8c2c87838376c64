"""The file of a step time: written and read back, taken by the commands, every fault on one line."""

from random import Random

import pytest
from cli_run import document, lengths, run
from fuzz.mutations import damaged
from small import LONG

from experiments.step_time_file import EFFICIENCIES, read_step_time, step_time_text
from workloads.request import InputError

NUMBERS = dict(zip(EFFICIENCIES, (0.62, 0.37, 3500.0), strict=True))
HERE = {"model": "meta-llama/Meta-Llama-3.1-8B", "gpu": "H100-80GB", "tensor_parallel_size": 1}
ROOFLINE = 'kind = "roofline"\nbandwidth_efficiency = {}\nflops_efficiency = {}\noverhead_us = {}\n'
SERVER = ("--model", "Llama-3.1-8B", "--gpu", "H100", "--max-model-len", 2048, "--allocator", "paged")


def written(tmp_path, text, name="server.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_what_is_written_is_read(tmp_path):
    odd = {**HERE, "measured": ['a "quoted"\tname.csv', "\x7fé"], "ttft_error": 0.125}
    text = step_time_text(NUMBERS, odd, ["one\nline", "two"])
    found = read_step_time(str(written(tmp_path, text)))
    assert (found.kind, found.numbers, dict(found.fitted)) == ("roofline", NUMBERS, odd)
    assert text.startswith("# one line\n# two\nkind")


def test_compare_takes_it_and_says_where_the_numbers_come_from(tmp_path, capsys):
    trace = lengths(tmp_path, [(1000, 50)] * 3)
    path = written(tmp_path, step_time_text(NUMBERS, HERE, []))
    made = document(capsys, trace, *SERVER, "--step-time", path)
    clock = made["config"]["step_time"]
    assert "x 0.62, prefill over 989 TFLOP/s x 0.37, 3.5 ms a step)" in clock
    assert clock.endswith(f", from {path}, fitted to meta-llama/Meta-Llama-3.1-8B, H100-80GB")
    plain = document(capsys, trace, *SERVER)
    assert plain["config"]["step_time"].endswith("1 ms a step)")
    assert made["scenarios"][0]["latency_s"]["tpot"]["mean"] > 1.4 * plain["scenarios"][0]["latency_s"]["tpot"]["mean"]
    assert not any("fitted to" in note for note in made["config"]["notes"])


def test_another_model_gpu_or_number_of_gpus_is_said(tmp_path, capsys):
    trace = lengths(tmp_path, [(100, 5)])
    path = written(tmp_path, step_time_text(NUMBERS, {**HERE, "gpu": "L4", "tensor_parallel_size": 2}, []))
    notes = document(capsys, trace, *SERVER, "--step-time", path)["config"]["notes"]
    assert f"--step-time {path}: fitted to gpu L4, not H100-80GB; tensor_parallel_size 2, not 1" in notes


def test_a_constant(tmp_path, capsys):
    trace = lengths(tmp_path, [(100, 5)])
    path = written(tmp_path, 'kind = "constant"\nus = 18000\n')
    made = document(capsys, trace, "--num-gpu-blocks-override", 100, "--step-time", path, "--allocator", "paged")
    assert made["config"]["step_time"] == f"constant 18 ms, from {path}"
    assert made["scenarios"][0]["latency_s"]["tpot"]["mean"] == 0.018


@pytest.mark.parametrize(("text", "said"), [
    ("kind = roofline\n", "server.toml:1: no TOML"), ('a = 1\nb = "x\n', "server.toml:2: no TOML"),
    ("us = 5\n", "server.toml:1: no kind: one of 'roofline', 'constant' is wanted"),
    ('\nkind = "table"\n', "server.toml:2: kind = 'table': one of 'roofline', 'constant' is wanted"),
    ('kind = "constant"\n\nuss = 5\n', "server.toml:3: unknown key 'uss': a constant has 'us'"),
    ('kind = "constant"\n', "server.toml:1: no us: a constant needs it"),
    ('kind = "constant"\nus = 0\n', "server.toml:2: us = 0: a number above 0.5"),
    ('kind = "constant"\nus = true\n', "server.toml:2: us = True: a number above"),
    ('kind = "constant"\nus = nan\n', "server.toml:2: us = nan: a number above"),
    (ROOFLINE.format(0.5, -1, 1), "server.toml:3: flops_efficiency = -1"),
    (ROOFLINE.format("inf", 1, 1), "server.toml:2: bandwidth_efficiency = inf"),
    (ROOFLINE.format(1, 1, -1), "server.toml:4: overhead_us = -1"),
    ('kind = "constant"\nus = 5\nfitted = 3\n', "server.toml:3: fitted = 3: a table is wanted"),
    ('kind = "constant"\nus = 5\n[fitted]\ngpu = [1]\n', "server.toml:4: gpu = [1]: a text, a number or a list of texts"),
    ("a = " + "[" * 5000, "no TOML"), ("kind = " + "9" * 5000, "no TOML"), ("", "the file is empty"), ("\0", "not a text file"),
    ('kind = "constant"\nus = 5\n' + "#" * (1 << 20), "longer than 1 MiB")])
def test_faults_are_one_line(tmp_path, text, said):
    with pytest.raises(InputError) as caught:
        read_step_time(str(written(tmp_path, text)))
    assert said in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_fuzz(tmp_path):
    """Thousands of damaged files: a step time, or one line."""
    draw, path, done, said = Random(9), tmp_path / "fuzzed.toml", 0, []
    for _ in range(1000 * LONG):
        path.write_bytes(damaged(draw, step_time_text(NUMBERS, HERE, ["fitted"]).encode()))
        try:
            read_step_time(str(path))
            done += 1
        except InputError as error:
            said.append(str(error))
    assert done > 50 and len(said) > 50 and all("\n" not in message and len(message) < 500 for message in said)


def test_zero_overhead_is_a_number():
    assert "overhead_us = 0.0" in step_time_text({**NUMBERS, "overhead_us": 0.0}, {}, [])


@pytest.mark.parametrize(("more", "said"), [
    (("--step-time", "fast"), "--step-time 'fast': roofline, constant:20ms (us, ms or s), or a file"),
    (("--step-time", "no-such.toml"), "no-such.toml: no such file"),
    (("--step-time", "constant:x"), "--step-time 'constant:x': constant:20ms (us, ms or s) is wanted")])
def test_words_that_are_no_step_time(tmp_path, capsys, more, said):
    said_by = run(capsys, "compare", lengths(tmp_path, [(100, 5)]), *SERVER, *more)
    assert said_by.status == 2 and said in said_by.err and said_by.err.count("\n") == 1


def test_a_roofline_in_a_file_needs_a_gpu_too(tmp_path, capsys):
    path = written(tmp_path, step_time_text(NUMBERS, HERE, []))
    said = run(capsys, "compare", lengths(tmp_path, [(100, 5)]), "--num-gpu-blocks-override", 100, "--step-time", path)
    assert said.status == 2 and "is a roofline: it needs a --model and a --gpu of the catalogue" in said.err
