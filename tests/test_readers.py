"""Readers give the right numbers: published statistics of real traces, and every quirk in small files."""

from __future__ import annotations

import doctest
import gzip
import importlib
import os
import pkgutil
import threading
from pathlib import Path

import numpy as np
import pytest

import workloads.readers
from workloads.readers import READERS, read_trace

SHARED = Path(os.environ.get("PAGEDSIM_SHARED", Path(__file__).resolve().parents[1] / ".." / "shared"))

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109"
)
MOONCAKE = (
    '{"timestamp": 0, "input_length": 513, "output_length": 7, "hash_ids": [0, 1]}\n'
    '{"timestamp": 3000, "input_length": 512, "output_length": 8, "hash_ids": [0]}\n'
)


def shared(name: str) -> Path:
    path = SHARED / "traces" / name
    if not path.exists():
        pytest.skip(f"no trace {name} (set PAGEDSIM_SHARED)")
    return path


def write(folder: Path, text: str | bytes, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def three(column: np.ndarray) -> tuple[float, float, float]:
    """Mean, median and p99 as the README of the traces prints them."""
    return float(column.mean()), float(np.median(column)), float(np.percentile(column, 99))


# name, requests, mean / median / p99 of prompts and outputs, seconds from first to last arrival
STATISTICS = [
    ("azure-2023/AzureLLMInferenceTrace_conv.csv", 19366, (1154.7, 1020, 4142), (211.13, 129, 601), 3501.7),
    ("mooncake/conversation_trace.jsonl", 12031, (12035.1, 6909, 85400.4), (342.62, 350, 1118.5), 3537.0),
    ("vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz", 84226, (295.6, 40, 3369.8), (358.02, 275, 1466), None),
    (
        "vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
        28257,
        (2588.08, 2730, 3933.4),
        (291.43, 167, 3271.3),
        None,
    ),
    ("vidur/splitwise_conv.csv", 19366, (1154.7, 1020, 4142), (211.13, 129, 601), 3501.7),
]


@pytest.mark.parametrize(("name", "requests", "prompt", "output", "duration_s"), STATISTICS)
def test_statistics_of_real_traces(name, requests, prompt, output, duration_s):
    trace = read_trace(shared(name))
    assert len(trace) == requests
    assert three(trace.prompt_tokens) == pytest.approx(prompt, abs=0.051)
    assert three(trace.output_tokens) == pytest.approx(output, abs=0.051)
    assert (trace.arrival_us is None) == (duration_s is None)
    assert trace.duration_s == pytest.approx(duration_s or 0, abs=0.051)
    assert dict(trace.dropped) == {}


def test_azure_and_its_vidur_copy_agree():
    azure = read_trace(shared("azure-2023/AzureLLMInferenceTrace_conv.csv"))
    vidur = read_trace(shared("vidur/splitwise_conv.csv"))
    assert np.array_equal(azure.prompt_tokens, vidur.prompt_tokens)
    assert np.array_equal(azure.output_tokens, vidur.output_tokens)
    assert np.abs(azure.arrival_us - vidur.arrival_us).max() <= 1


def test_mooncake_ids_of_the_real_trace():
    trace = read_trace(shared("mooncake/conversation_trace.jsonl"))
    assert len(trace.content.ids) == 288_500
    assert len(np.unique(trace.content.ids)) == 182_790
    assert len(np.unique(trace.arrival_us)) == 1180


def test_azure_2023(tmp_path):
    trace = read_trace(write(tmp_path, AZURE))
    assert trace.prompt_tokens.tolist() == [374, 396]
    assert trace.output_tokens.tolist() == [44, 109]
    assert trace.arrival_us.tolist() == [0, 4_314_579]
    assert trace.content is None


def test_azure_2024_mixed_digits_offset_and_extra_column(tmp_path):
    text = (
        "NumImages,GeneratedTokens,TIMESTAMP,ContextTokens\n"
        "0,5,2024-05-10 00:00:00.009930+00:00,2399\n"
        "0,6,2024-05-10 00:00:01+00:00,10\n"
        "1,7,2024-05-10 01:00:02.5+01:00,11\n\n\n"
    )
    trace = read_trace(write(tmp_path, text))
    assert trace.arrival_us.tolist() == [0, 990_070, 2_490_070]
    assert trace.prompt_tokens.tolist() == [2399, 10, 11]
    assert trace.output_tokens.tolist() == [5, 6, 7]


def test_rows_are_sorted_stably_and_time_starts_at_the_least(tmp_path):
    rows = "3.0,1,1\n1.0,2,1\n3.0,3,1\n1.0,4,1\n"
    trace = read_trace(write(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens\n" + rows))
    assert trace.prompt_tokens.tolist() == [2, 4, 1, 3]
    assert trace.arrival_us.tolist() == [0, 0, 2_000_000, 2_000_000]


def test_many_equal_stamps_keep_file_order(tmp_path):
    rows = [(n * 7 % 3, n + 1) for n in range(500)]  # long enough for an unstable sort to show
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{t}.5,{p},1\n" for t, p in rows)
    assert read_trace(write(tmp_path, text)).prompt_tokens.tolist() == [p for _, p in sorted(rows)]


def test_mooncake(tmp_path):
    trace = read_trace(write(tmp_path, MOONCAKE.replace("\n", "\r\n") + "\n"))
    assert trace.arrival_us.tolist() == [0, 3_000_000]
    assert trace.content.span_tokens == 512
    assert trace.content.ids.tolist() == [0, 1, 0]
    assert trace.content.starts.tolist() == [0, 2, 3]
    assert not trace.content.cover_output


def test_mooncake_sorts_ids_along_with_rows(tmp_path):
    trace = read_trace(write(tmp_path, "".join(reversed(MOONCAKE.splitlines(keepends=True)))))
    assert trace.content.ids.tolist() == [0, 1, 0]
    assert trace.output_tokens.tolist() == [7, 8]


def test_vidur_without_times(tmp_path):
    text = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.85185185185185\n"
    trace = read_trace(write(tmp_path, text))
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), trace.arrival_us) == ([3772], [54], None)


def test_zero_lengths_are_dropped_and_counted_once(tmp_path):
    trace = read_trace(write(tmp_path, "prompt_tokens,output_tokens\n0,5\n3,0\n0,0\n4,6\n"))
    assert dict(trace.dropped) == {"zero_prompt": 2, "zero_output": 1}
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([4], [6])


def test_zero_lengths_take_their_ids_and_times_with_them(tmp_path):
    text = '{"timestamp": 1, "input_length": 9, "output_length": 0, "hash_ids": [9]}\n' + MOONCAKE
    trace = read_trace(write(tmp_path, text.replace('"timestamp": 0', '"timestamp": 2')))
    assert dict(trace.dropped) == {"zero_output": 1}
    assert trace.content.ids.tolist() == [0, 1, 0]
    assert trace.arrival_us.tolist() == [0, 2_998_000]  # from the first request that is left


@pytest.mark.parametrize("text", [AZURE, MOONCAKE], ids=["azure", "mooncake"])
@pytest.mark.parametrize("wrap", ["gzip", "mark", "blank lines", "gzip in two members"])
def test_the_wrapping_changes_nothing(tmp_path, text, wrap):
    plain = read_trace(write(tmp_path, text))
    data = text.encode()
    wrapped = {
        "gzip": gzip.compress(data),
        "mark": b"\xef\xbb\xbf" + data,
        "blank lines": b"\n\r\n" + data.replace(b"\n", b"\n\n") + b"\n\n",
        "gzip in two members": gzip.compress(data[:50]) + gzip.compress(data[50:]),
    }[wrap]
    other = read_trace(write(tmp_path, wrapped, "misleading.parquet"))
    for name in ("prompt_tokens", "output_tokens", "arrival_us"):
        assert np.array_equal(getattr(plain, name), getattr(other, name))


def test_quotes_and_spaces(tmp_path):
    text = '"prompt_tokens", output_tokens ,"a, note"\n"374", 44 ,"say ""hi"", please"\n8,66,\n'
    trace = read_trace(write(tmp_path, text))
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([374, 8], [44, 66])


def test_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("workloads.readers.source.BLOCK_BYTES", 64)
    rows = [(n + 1, n * n % 97 + 1) for n in range(500)]
    body = "".join(f"{p},{o}\r\n" for p, o in rows)
    trace = read_trace(write(tmp_path, "prompt_tokens,output_tokens\r\n" + body))
    assert list(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)) == rows


def test_the_source_is_the_path_as_given(tmp_path, monkeypatch):
    write(tmp_path, AZURE, "a.csv")
    monkeypatch.chdir(tmp_path)
    assert read_trace("./a.csv").source == "./a.csv"
    assert read_trace(Path("a.csv")).source == "a.csv"


def test_a_pipe_is_read_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(MOONCAKE))
    writer.start()
    assert len(read_trace(pipe)) == 2
    writer.join()


def test_the_format_can_be_forced(tmp_path):
    text = "prompt_tokens,output_tokens,num_prefill_tokens,num_decode_tokens\n1,2,3,4\n"
    path = write(tmp_path, text)
    assert read_trace(path, format="lengths").prompt_tokens.tolist() == [1]
    assert read_trace(path, format="vidur").prompt_tokens.tolist() == [3]


def test_every_reader_is_listed_under_its_own_name():
    assert {name: reader.name for name, reader in READERS.items()} == {name: name for name in READERS}


def test_doctests():
    for module in pkgutil.iter_modules(workloads.readers.__path__, "workloads.readers."):
        assert doctest.testmod(importlib.import_module(module.name)).failed == 0, module.name
    assert doctest.testmod(workloads.readers).failed == 0
