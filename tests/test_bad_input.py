"""Every bad input: exit status 2, one line on stderr that names the thing and the value, nothing on stdout."""

from __future__ import annotations

import gzip
import os

import pytest
from cli_run import document, lengths, mooncake, run, timed

from experiments.setup import MOST_BLOCKS

GOOD = [(20, 5), (30, 6)]
CSV = "prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,"


def complaint(capsys, *arguments):
    """The one line, without the program's name in front."""
    said = run(capsys, "compare", *arguments)
    assert said.status == 2, said.err
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.endswith("\n")
    assert "Traceback" not in said.err
    assert said.err.startswith("pagedsim compare: error: ")
    return said.err.removeprefix("pagedsim compare: error: ").rstrip("\n")


@pytest.fixture
def good(tmp_path):
    return lengths(tmp_path, GOOD, "good.csv")


# ---------------------------------------------------------------------- traces
@pytest.mark.parametrize(("content", "says"), [
    (b"", "bad: the file is empty"),
    (b"\n \n", "bad: the file is empty"),
    (CSV.encode(), "bad:1: a header, and no rows after it"),
    (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "bad:3: not a text file"),
    (b"\x7fELF\x02\x01\x01" + bytes(64), "bad:1: not a text file"),
    (b"\xff\xfe\x00\x00", "bad:1: "),
    (CSV.encode() + b"1,2\n3,\xff\n", "bad:3: not text in UTF-8: byte 0xff"),
    (gzip.compress(CSV.encode() + b"1,2\n", mtime=0)[:-9], "bad:2: the gzip data is cut short here"),
    (b"prompt_tokens,answer\n1,2\n", "bad:1: column 'output_tokens': missing; the columns are 'prompt_tokens', 'answer'"),
    (b"TIMESTAMP,ContextTokens\n1,2\n", "bad:1: column 'GeneratedTokens': missing"),
    (b"a,b\n1,2\n", "bad:1: unknown trace format: the columns are 'a', 'b'"),
    (CSV.encode() + b"1,2\n3,-4\n", "bad:3: column 'output_tokens': '-4' is negative"),
    (CSV.encode() + b"1,2\n-3,4\n", "bad:3: column 'prompt_tokens': '-3' is negative"),
    (CSV.encode() + b"1,2\n3,4.5\n", "bad:3: column 'output_tokens': '4.5' is not a whole number"),
    (CSV.encode() + b"1,2\n3,many\n", "bad:3: column 'output_tokens': 'many' is not a whole number"),
    (CSV.encode() + b"1,2\n3,\n", "bad:3: column 'output_tokens': '' is not a whole number"),
    (CSV.encode() + b"1,2\nnan,4\n", "bad:3: column 'prompt_tokens': 'nan' is not a whole number"),
    (CSV.encode() + b"1,2\n99999999999999999999,4\n", "bad:3: column 'prompt_tokens': '99999999999999999999' is more than"),
    (CSV.encode() + b"1,2\n3\n", "bad:3: column 'output_tokens': missing"),
    (CSV.encode() + b"0,2\n3,0\n", "bad: no request is left of 2 rows"),
    (AZURE.encode() + b"374,-44\n", "bad:2: column 'GeneratedTokens': '-44' is negative"),
    (AZURE.encode() + b"3.5,44\n", "bad:2: column 'ContextTokens': '3.5' is not a whole number"),
    (b'{"timestamp": 0, "input_length": 5, "output_length": 2}\n{"timestamp": 0, "input_length": 5, "output_length": 2, '
     b'"hash_ids": [0]}\n', "bad:2: column 'hash_ids': is here, but not in the first row"),
    (b'{"timestamp": 0, "input_length": 5, "output_length": 2, "hash_ids": [0]}\n'
     b'{"timestamp": 0, "input_length": 5, "output_length": 2}\n', "bad:2: column 'hash_ids': missing"),
    (b'{"timestamp": 0, "input_length": -5, "output_length": 2, "hash_ids": [0]}\n', "bad:1: column 'input_length': -5 is"),
    (b'{"timestamp": 0, "input_length": 5,\n', "bad:1: malformed JSON"),
])
def test_a_bad_trace_names_file_line_and_value(capsys, tmp_path, content, says):
    path = tmp_path / "bad"
    path.write_bytes(content)
    assert complaint(capsys, path).startswith(f"{tmp_path}/{says}")


def test_paths(capsys, tmp_path, good):
    assert complaint(capsys, tmp_path / "nowhere.csv") == f"{tmp_path}/nowhere.csv: no such file or directory"
    assert complaint(capsys, tmp_path) .startswith(f"{tmp_path}: is a directory, and holds no ")
    assert complaint(capsys, "") == "'': no such file or directory"
    assert "two\\nlines" in complaint(capsys, "two\nlines")
    assert complaint(capsys, good, "--format", "mooncake").startswith(f"{good}:1: ")
    assert "'parquet'" in complaint(capsys, good, "--format", "parquet")
    assert "--format" in complaint(capsys, "--format", "azure")
    assert "unrecognized arguments: second.csv" in complaint(capsys, good, "second.csv")


def test_nothing_left_to_replay(capsys, good):
    assert complaint(capsys, good, "--max-total-tokens", 3) == f"{good}: no request is left: over --max-total-tokens (2)"


# ---------------------------------------------------------------------- flags
WHOLE = ("--limit", "--max-total-tokens", "--block-size", "--max-model-len", "--tensor-parallel-size", "--max-num-seqs",
         "--max-num-batched-tokens", "--num-gpu-blocks-override", "--seed", "--long-prefill-token-threshold")
NUMBERS = ("--rate", "--think-time", "--gpu-memory-utilization", "--available-kv-gib", "--watermark")


@pytest.mark.parametrize("flag", WHOLE)
@pytest.mark.parametrize("value", ["-1", "1.5", "nan", "inf", "many", "", "99999999999999999999", "9" * 5000])
def test_whole_numbers(capsys, good, flag, value):
    message = complaint(capsys, good, f"{flag}={value}")
    assert message.startswith(f"argument {flag}")
    assert value[:20] in message


@pytest.mark.parametrize("flag", NUMBERS)
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "-inf", "many", "", "1e400"])
def test_numbers(capsys, good, flag, value):
    message = complaint(capsys, good, f"{flag}={value}")
    assert message.startswith(f"argument {flag}")
    assert repr(value) in message


@pytest.mark.parametrize(("arguments", "names"), [
    (["--gpu-memory-utilization", "0"], ["--gpu-memory-utilization", "'0'"]),
    (["--gpu-memory-utilization", "1.01"], ["--gpu-memory-utilization", "'1.01'"]),
    (["--watermark", "1"], ["--watermark", "'1'"]),
    (["--rate", "0"], ["--rate", "'0'"]),
    (["--rate", "1e-300"], ["--rate", "1e-300"]),
    (["--limit", "0"], ["--limit", "0"]),
    (["--block-size", "0"], ["--block-size", "0"]),
    (["--max-model-len", "1"], ["--max-model-len", "1"]),
    (["--allocator", "slab"], ["--allocator", "'slab'", "contiguous-max", "paged-prefix"]),
    (["--placement", "worst-fit"], ["--placement", "'worst-fit'", "best-fit"]),
    (["--step-time", "constant:"], ["--step-time", "'constant:'"]),
    (["--step-time", "constant:-5ms"], ["--step-time", "'constant:-5ms'"]),
    (["--step-time", "constant:nanms"], ["--step-time", "'constant:nanms'"]),
    (["--step-time", "constant:0us"], ["--step-time", "'constant:0us'"]),
    (["--step-time", "sundial"], ["--step-time", "'sundial'"]),
    (["--dtype", "float12"], ["--dtype", "'float12'", "bfloat16"]),
    (["--kv-cache-dtype", "float12"], ["--kv-cache-dtype", "'float12'", "fp8"]),
    (["--model", "gpt-99-xxl"], ["gpt-99-xxl"]),
    (["--model", ""], ["model", "empty"]),
    (["--gpu", "Z9000"], ["Z9000"]),
    (["--gpu", "0GB"], ["'0GB'"]),
    (["--gpu", "-5GB"], ["--gpu"]),
    (["--gpu", "nanGB"], ["nanGB"]),
    (["--gpu", "1GB"], ["Llama-2-13b"]),
    (["--colour"], ["--colour"]),
    (["--limit"], ["--limit"]),
])
def test_bad_values(capsys, good, arguments, names):
    message = complaint(capsys, good, *arguments)
    for name in names:
        assert name in message


def test_limits_against_each_other(capsys, good):
    pool = ("--num-gpu-blocks-override", 100)
    message = complaint(capsys, good, *pool, "--max-num-batched-tokens", 100, "--max-num-seqs", 200)
    assert "max_num_batched_tokens (100)" in message
    assert "max_num_seqs (200)" in message
    message = complaint(capsys, good, *pool, "--no-enable-chunked-prefill", "--max-num-batched-tokens", 256, "--max-num-seqs", 8,
                        "--max-model-len", 1000)
    assert "max_num_batched_tokens (256)" in message
    assert "max_model_len (1000)" in message
    assert "--step-time roofline" in complaint(capsys, good, *pool, "--step-time", "roofline")


def test_rate_is_for_traces_without_times(capsys, tmp_path):
    trace = timed(tmp_path, [(0, 5, 3)])
    assert complaint(capsys, trace, "--rate", 2) == f"{trace} has its own arrival times: --rate is for traces without"


# ---------------------------------------------------------------------- the pool
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_pool_smaller_than_one_request(capsys, good, blocks):
    message = complaint(capsys, good, "--num-gpu-blocks-override", blocks)
    assert f"the pool of {blocks} blocks of 16" in message
    assert f"{good} needs (24)" in message
    message = complaint(capsys, good, "--num-gpu-blocks-override", blocks, "--max-model-len", 400)
    assert "max_model_len 400" in message


def test_a_budget_smaller_than_one_request(capsys, good):
    message = complaint(capsys, good, "--model", "opt-13b", "--available-kv-gib", 0.001)
    assert "max_model_len 2,048" in message


@pytest.mark.parametrize("arguments", [
    ["--num-gpu-blocks-override", MOST_BLOCKS + 1],
    ["--num-gpu-blocks-override", 2**53],
    ["--num-gpu-blocks-override", 1000, "--block-size", 2**53],
    ["--model", "opt-13b", "--available-kv-gib", 1e9],
])
def test_a_pool_too_large_to_simulate(capsys, good, arguments):
    assert "too large" in complaint(capsys, good, *arguments)


def test_a_pool_that_does_not_fit_in_memory(capsys, good, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr("experiments.serving.Engine.run", full)
    assert "contiguous-max: 100 blocks of 16 slots" in complaint(capsys, good, "--num-gpu-blocks-override", 100)


# ---------------------------------------------------------------------- outputs
@pytest.mark.parametrize(("flag", "name"), [("--json", "x.json"), ("--requests", "x.csv"), ("--plot", "x.png")])
def test_what_cannot_be_written_is_said_before_the_work(capsys, tmp_path, good, monkeypatch, flag, name):
    monkeypatch.setattr("experiments.compare.prepare", lambda _: pytest.fail("worked first"))
    target = tmp_path / "nowhere" / name
    assert complaint(capsys, good, flag, target) == f"{target}: cannot write: No such file or directory"
    folder = tmp_path / f"folder{name}"
    folder.mkdir()
    assert complaint(capsys, good, flag, folder) == f"{folder}: cannot write: Is a directory"
    assert complaint(capsys, good, flag, good / name) == f"{good}/{name}: cannot write: Not a directory"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([folder.name, good.name])


@pytest.mark.parametrize("flag", ["--json", "--requests"])
def test_an_empty_file_name(capsys, good, flag):
    assert complaint(capsys, good, flag, "") == "'': cannot write: no file name"


@pytest.mark.parametrize("name", ["x.jpg", "x", "png", ".png", ""])
def test_pictures_we_do_not_draw(capsys, good, name):
    assert complaint(capsys, good, "--plot", name).endswith("a picture ends in .png, .svg, .pdf")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk(capsys, good):
    assert complaint(capsys, good, "--json", "/dev/full", "-q") == "/dev/full: cannot write: No space left on device"


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="needs /dev/null")
def test_a_device_is_written_to_and_not_replaced(capsys, good):
    assert run(capsys, "compare", good, "--json", "/dev/null", "-q").status == 0
    assert not os.path.isfile("/dev/null")


# ---------------------------------------------------------------------- requests that can never fit: an answer, no error
def test_who_never_fits_is_rejected_by_each_allocator_for_itself(capsys, tmp_path):
    # 20 slots: (9, 8) ends with 16 states and reserves 32 by powers of two; (17, 4) fills all 20; (21, 4) fits nowhere
    trace = mooncake(tmp_path, [(0, 5, 3, [1]), (0, 9, 8, [2]), (0, 17, 4, [3]), (0, 21, 4, [4]), (9, 6, 1, [1])])
    found = document(capsys, trace, "--block-size", 4, "--num-gpu-blocks-override", 6, "--max-model-len", 16,
                     "--allocator", "contiguous-max", "--allocator", "contiguous-pow2", "--allocator", "contiguous-oracle",
                     "--allocator", "paged")
    longer = {"prompt_not_below_max_model_len": 2}
    assert [s["requests"]["rejected"] for s in found["scenarios"]] == [longer, longer, longer, longer]
    found = document(capsys, trace, "--block-size", 4, "--num-gpu-blocks-override", 6, "--max-model-len", 20,
                     "--allocator", "contiguous-max", "--allocator", "contiguous-pow2", "--allocator", "contiguous-oracle",
                     "--allocator", "paged")
    rejected = {s["allocator"]: s["requests"] for s in found["scenarios"]}
    long = "prompt_not_below_max_model_len"
    assert rejected["contiguous-max"]["rejected"] == {long: 1, "larger_than_pool": 4}      # 20 rounds up to 32
    assert rejected["contiguous-pow2"]["rejected"] == {long: 1, "larger_than_pool": 2}     # 9 + 8 and 17 + 3: over 16
    assert rejected["contiguous-oracle"]["rejected"] == {long: 1, "larger_than_pool": 1}   # 9 + 8 - 1 = 16 fits, 19 does not
    assert rejected["paged"]["rejected"] == {long: 1}
    for requests in rejected.values():
        assert requests["arrived"] == 5
        assert requests["completed"] + requests["unfinished"] + sum(requests["rejected"].values()) == 5


def test_rejections_and_different_sets_are_said(capsys, tmp_path):
    trace = timed(tmp_path, [(0, 5, 3), (0, 17, 3), (0, 90, 3)])
    said = run(capsys, "compare", trace, "--block-size", 4, "--num-gpu-blocks-override", 6, "--max-model-len", 20,
               "--placement", "first-fit", "--allocator", "contiguous-max", "--allocator", "contiguous-pow2")
    assert said.status == 0
    assert "1 of 3 requests rejected at arrival: prompt not below max_model_len\n" in said.out
    said = run(capsys, "compare", trace, "--block-size", 4, "--num-gpu-blocks-override", 6, "--max-model-len", 20,
               "--allocator", "contiguous-pow2", "--allocator", "paged")
    assert "1 of 3 requests rejected at arrival: larger than the pool (contiguous-pow2)\n" in said.out
    assert "the allocators did not serve the same requests" in said.out


def test_nobody_fits_and_it_ends(capsys, tmp_path):
    trace = timed(tmp_path, [(0, 25, 3), (1, 30, 3)])
    found = document(capsys, trace, "--block-size", 4, "--num-gpu-blocks-override", 6, "--max-model-len", 20)
    for s in found["scenarios"]:
        assert s["requests"]["completed"] == 0
        assert sum(s["requests"]["rejected"].values()) == 2
        assert s["window_us"] == [0, 0]


ODD = "no\x1b[31m.json"


@pytest.mark.parametrize("words", [
    ("compare", ODD), ("prefix", ODD), ("trace", "info", ODD), ("trace", "synth", ODD), ("sweep", ODD), ("conform", ODD),
    ("calibrate", ODD), ("compare", "--step-time", ODD + ".toml"), ("plan", "--model", ODD, "--gpu", "H100"),
    ("plan", "--model", "opt-125m", "--gpu", "H100", "--gpu-hour", "1", "--throughput-from", ODD)])
def test_a_file_that_is_not_there_is_said_in_one_way(capsys, words):
    said = run(capsys, *words)
    named = repr(ODD + ".toml" if "--step-time" in words else ODD)
    assert (said.status, said.out) == (2, "") and said.err.endswith(f" error: {named}: no such file or directory\n")
