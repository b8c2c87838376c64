"""Every handed file opens by content alone, and gives the numbers that the README of the traces gives for it.

Rows count as they stand in the files, zero lengths and all; numbers agree as far as they are printed there.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter

import numpy as np
import pytest
from cli_run import SHARED

from sim.caching.endless import known_prefixes
from workloads.readers import _sniff, read_rows, read_trace
from workloads.readers.kv_cache_tester import Sessions
from workloads.readers.source import open_source
from workloads.request import Trace

TRACES = SHARED / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces are not here (set PAGEDSIM_SHARED)")

# name, format, rows, in and out (mean, median, p99), duration, rate, share of blocks found: with a last partial one, and without
STATISTICS = [
    ("azure-2023/AzureLLMInferenceTrace_conv.csv", "azure", 19366, "1154.7 1020 4142", "211.13 129 601", "3501.7 5.53", ""),
    ("mooncake/conversation_trace.jsonl", "mooncake", 12031, "12035.1 6909 85400.4", "342.62 350 1118.5", "3537.0 3.401",
     "0.3664 0.3819"),
    ("vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz", "csv", 84226, "295.6 40 3369.8", "358.02 275 1466", "", ""),
    ("vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv", "vidur", 28257, "2588.08 2730 3933.4",
     "291.43 167 3271.3", "", ""),
    ("vidur/splitwise_conv.csv", "vidur", 19366, "1154.7 1020 4142", "211.13 129 601", "3501.7 5.53", ""),
    ("etalon/sharegpt_8k_filtered_stats_llama2_tokenizer.csv", "vidur", 30731, "2340.03 1730 7433.7", "438.71 415 998", "", ""),
    ("burstgpt/BurstGPT_1.first400.csv", "burstgpt", 400, "520.47 314 1958", "276.53 229.5 1421.2", "37269.0 0.0107", ""),
    ("ragpulse/0_trace.jsonl", "ragpulse", 7106, "2943.58 3139.5 5438.3", "283.24 234 891", "604603.0 0.0118", ""),
    ("kv-cache-tester/requests.csv.gz", "kv-cache-tester-table", 36864, "133472 110251 526074", "452.3 228 3685.7", "", ""),
    ("lmcache-agent/magagent.cl100k.blk16.jsonl.gz", "lmcache-agent", 746, "1991.56 1044 10265", "585.85 331.5 10000",
     "6448.6 0.1157", "0.8422 0.8427"),
    ("lmcache-agent/taubench.cl100k.blk16.jsonl.gz", "lmcache-agent", 471, "165.36 102 771.6", "22.27 0 195.3", "180.9 2.603",
     "0.8387 0.8600"),
    ("llmservingsim/sharegpt-llama-3.1-8b-300-sps10.blk16.jsonl.gz", "mooncake", 300, "857.46 731.5 2765.2", "652.51 632 784.1",
     "29.1 10.3", "0.0753 0.0765"),
    ("servegen-offline/trace_a.first93.jsonl", "servegen-offline", 93, "333.19 292 871.6", "", "", "0.4642 0.4857"),
    ("servegen-offline/trace_b.first126.jsonl", "servegen-offline", 126, "76.3 76 95", "", "", "0.5433 0.6654"),
    ("servegen-offline/trace_d.first100.jsonl", "servegen-offline", 100, "87.5 52 412.9", "1893.15 1541 6144", "", ""),
    ("apex/llama_lmsys_025.lengths.csv", "apex", 1024, "61.67 17 586.2", "162.11 117 532.6", "4197.1 0.244", ""),
    ("apex/llama_creation_025.lengths.csv", "apex", 512, "307.74 309 565.8", "1144.31 1106.5 2340.7", "2082.3 0.2459", ""),
    ("apex/llama_summarization_025.lengths.csv", "apex", 1302, "2753.06 2943 4075", "170.52 161.5 357", "5183.6 0.2512", ""),
    ("vtc-arena/real_trace.lengths.csv", "vtc-arena", 1500, "136.27 40 902.3", "256.2 211 785", "600.0 2.5", ""),
    ("alpaca-demo/alpaca_en_demo.cl100k.lengths.csv", "csv", 999, "18.17 14 82.0", "143.75 103 493.1", "", ""),
    ("splitwise-sim/test_trace.csv", "splitwise-sim", 3, "", "", "", ""),
]
FILES = {row[0]: row for row in STATISTICS}
SERVEGEN = sorted(path.relative_to(TRACES).as_posix() for path in TRACES.glob("servegen/*/*/chunk-*"))
SESSIONS = sorted(path.relative_to(TRACES).as_posix() for path in TRACES.glob("kv-cache-tester/raw/*.json.gz"))
SIDES = sorted(path.relative_to(TRACES).as_posix() for path in TRACES.glob("ragpulse/[1-5]_*.jsonl"))


def agrees(value, printed):
    """Whether a number rounds to the printed one; one printed with a trailing zero or none has at least so many digits."""
    digits = len(printed.partition(".")[2])
    return abs(value - float(printed)) <= 0.5 * 10.0**-digits * 1.0001


def in_file_order(rows):
    """A trace for counting what prompts share: all rows as they stand."""
    ones = np.ones(len(rows), np.int64)
    return Trace(rows.path, np.maximum(rows.prompt_tokens, 1), ones, content=rows.content)


def shares(rows):
    """Blocks of the leading run of ids that were there before, of all: with a last partial one, and whole ones only."""
    known, seen, span = [], set(), rows.content.span_tokens
    for first, last in zip(rows.content.starts[:-1].tolist(), rows.content.starts[1:].tolist(), strict=True):
        ids = rows.content.ids[first:last].tolist()
        known.append(next((i for i, one in enumerate(ids) if one not in seen), len(ids)))
        seen.update(ids)
    found, full = np.array(known), rows.prompt_tokens // span
    return found.sum() / len(rows.content.ids), np.minimum(found, full).sum() / full.sum()


@pytest.mark.parametrize("name", FILES)
def test_statistics(name):
    _, format, n, prompt, output, times, hits = FILES[name]
    assert _sniff(open_source(str(TRACES / name))) == format
    rows = read_rows(TRACES / name)
    assert len(rows) == n
    for column, printed in ((rows.prompt_tokens, prompt), (rows.output_tokens, output)):
        for value, text in zip((np.mean, np.median, lambda c: np.percentile(c, 99)), printed.split(), strict=False):
            assert agrees(value(column), text), (value(column), text)
    assert (rows.output_tokens is None) == (name.startswith("servegen-offline") and "_d." not in name)
    arrival = rows.arrivals_us()
    if times:
        duration, rate = times.split()
        assert agrees(np.ptp(arrival) / 1e6, duration)
        assert agrees(n / (np.ptp(arrival) / 1e6), rate) or agrees((n - 1) / (np.ptp(arrival) / 1e6), rate)
    assert (rows.content is not None) == bool(hits) or name.startswith("ragpulse")
    if hits:
        ceil, full = hits.split()
        assert [agrees(value, text) for value, text in zip(shares(rows), (ceil, full), strict=True)] == [True, True]
        assert agrees(known_prefixes(in_file_order(rows)).ceil().of_blocks, ceil)


@pytest.mark.parametrize("name", [*FILES, *SIDES])
def test_every_table_and_list_can_be_replayed(name):
    trace = read_trace(TRACES / name)
    rows = read_rows(TRACES / name)
    assert len(trace) + sum(trace.dropped.values()) == len(rows)


def test_dropped_rows_are_counted():
    counts = {name: dict(read_trace(TRACES / name).dropped) for name in FILES}
    assert {name: count for name, count in counts.items() if count} == {
        "burstgpt/BurstGPT_1.first400.csv": {"zero_prompt": 17},
        "kv-cache-tester/requests.csv.gz": {"zero_output": 27},
        "lmcache-agent/magagent.cl100k.blk16.jsonl.gz": {"zero_prompt": 53},
        "lmcache-agent/taubench.cl100k.blk16.jsonl.gz": {"zero_output": 283}}


def test_ids_and_unique_ids():
    for name, total, unique in (("mooncake/conversation_trace.jsonl", 288_500, 182_790),
                                ("lmcache-agent/magagent.cl100k.blk16.jsonl.gz", 93_173, 14_705),
                                ("lmcache-agent/taubench.cl100k.blk16.jsonl.gz", 5_078, 819),
                                ("llmservingsim/sharegpt-llama-3.1-8b-300-sps10.blk16.jsonl.gz", 16_225, 15_003),
                                ("servegen-offline/trace_a.first93.jsonl", 1_982, 1_062),
                                ("servegen-offline/trace_b.first126.jsonl", 670, 306)):
        ids = read_rows(TRACES / name).content.ids
        assert (len(ids), len(np.unique(ids))) == (total, unique)


def test_mooncake_stamps_and_repeated_rows():
    rows = read_rows(TRACES / "mooncake/conversation_trace.jsonl")
    arrival = rows.arrivals_us()
    stamps, counts = np.unique(arrival, return_counts=True)
    assert (len(stamps), counts.max()) == (1180, 28)
    assert (np.diff(stamps).min(), np.diff(stamps).max()) == (2_997_000, 3_003_000)
    seen, again = set(), 0
    for part in np.split(rows.content.ids, rows.content.starts[1:-1]):
        again += part[-1] in seen                      # ids are chained: the last one there, all there
        seen.update(part.tolist())
    assert again == 118


def test_largest_requests():
    def largest(name):
        rows = read_rows(TRACES / name)
        return (rows.prompt_tokens + rows.output_tokens).max(), rows.prompt_tokens.max(), rows.output_tokens.max()

    assert largest("vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv")[0] == 4096
    assert largest("etalon/sharegpt_8k_filtered_stats_llama2_tokenizer.csv")[::2] == (8149, 1024)
    assert largest("vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz")[1:] == (162_307, 33_344)
    assert largest("azure-2023/AzureLLMInferenceTrace_conv.csv")[1:] == (14_050, 1000)
    assert largest("vtc-arena/real_trace.lengths.csv")[1:] == (1021, 977)


def test_the_papers_set_of_sharegpt():
    rows = read_rows(TRACES / "vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz")
    total = rows.prompt_tokens + rows.output_tokens
    for kept, n, means in ((total <= 2048, 79_731, ("161.31", "337.99")), (total < 2048, 79_725, ("161.18", "338.00"))):
        assert kept.sum() == n
        assert agrees(rows.prompt_tokens[kept].mean(), means[0]) and agrees(rows.output_tokens[kept].mean(), means[1])


def test_vidurs_copy_of_azure():
    azure = read_rows(TRACES / "azure-2023/AzureLLMInferenceTrace_conv.csv")
    copy = read_rows(TRACES / "vidur/splitwise_conv.csv")
    assert np.array_equal(azure.prompt_tokens, copy.prompt_tokens)
    assert np.array_equal(azure.output_tokens, copy.output_tokens)
    assert np.abs(azure.arrivals_us() - copy.arrivals_us()).max() <= 1


# ---------------------------------------------------------------------- RAGPulse
def test_ragpulse_reuse_of_prefixes():
    rows = read_rows(TRACES / "ragpulse/0_trace.jsonl")
    assert np.flatnonzero(np.diff(rows.arrivals_us()) < 0).tolist() == [3799]
    sizes = {}
    parts = (("sys_prompt", "1_sys_prompt", "sys_prompt_id"), ("passages_ids", "2_passages", "passage_id"),
             ("history", "3_history", "history_id"), ("web_search", "5_web_search", "web_search_id"),
             ("user_input", "4_user_input", "user_input_id"))
    for part, file, key in parts:
        found = map(json.loads, filter(None, (TRACES / f"ragpulse/{file}.jsonl").read_text().split("\n")))
        sizes[part] = {row[key]: row["token_length"] for row in found}
    seen, hit, total = set(), [], 0
    for row in map(json.loads, filter(None, (TRACES / "ragpulse/0_trace.jsonl").read_text().split("\n"))):
        chain, known, run = (), 0, True
        for part, _, _ in parts:
            for one in row["hash_ids"].get(part, ()):
                chain = (*chain, (part, one))
                run = run and chain in seen
                known += sizes[part][one] if run else 0
                total += sizes[part][one]
                seen.add(chain)
        hit.append(known)
    assert agrees(sum(hit) / total, "0.315")           # of the tokens of components
    assert 6 * len(rows) <= rows.prompt_tokens.sum() - total <= 12 * len(rows)
    ours = known_prefixes(in_file_order(rows)).tokens  # whole spans of 16 only
    assert np.all(ours <= np.array(hit)) and np.all(ours > np.array(hit) - 32)


@pytest.mark.parametrize("name", SIDES)
def test_ragpulse_by_a_side_file(name):
    rows, other = read_rows(TRACES / "ragpulse/0_trace.jsonl"), read_rows(TRACES / name)
    assert np.array_equal(rows.prompt_tokens, other.prompt_tokens) and rows.content.same(other.content)


# ---------------------------------------------------------------------- kv-cache-tester
def requests_of(found):
    for row in found["requests"]:
        yield from requests_of(row) if row["type"] == "subagent" else [row]


@pytest.mark.parametrize("name", SESSIONS)
def test_every_session(name):
    assert _sniff(open_source(str(TRACES / name))) == "kv-cache-tester"
    rows = read_rows(TRACES / name)
    found = json.loads(gzip.decompress((TRACES / name).read_bytes()))
    requests = list(requests_of(found))
    assert Counter(zip(rows.prompt_tokens.tolist(), rows.output_tokens.tolist(), strict=True)) == Counter(
        (row["in"], row["out"]) for row in requests)
    assert np.array_equal(np.diff(rows.content.starts), rows.prompt_tokens // 64)
    assert rows.content.span_tokens == found["block_size"] == 64
    assert np.all(np.diff(rows.arrivals_us()) >= 0)
    assert rows.besides["session"].max() + 1 == 1 + json.dumps(found).count('"subagent"')


def test_the_table_and_the_sessions_agree():
    table = read_rows(TRACES / "kv-cache-tester/requests.csv.gz")
    totals = {}
    names = gzip.decompress((TRACES / "kv-cache-tester/requests.csv.gz").read_bytes()).decode().split("\n")[1:-1]
    for text, prompt, output in zip(names, table.prompt_tokens.tolist(), table.output_tokens.tolist(), strict=True):
        totals.setdefault(text.split(",")[0], []).append((prompt, output))
    compared = 0
    for name in SESSIONS:
        sessions = Sessions()
        sessions.add(open_source(str(TRACES / name)))
        key = next((key for key in totals if key.endswith(name[-12:-8])), None)
        if key is not None:
            compared += 1
            assert sorted(totals[key]) == sorted(zip(sessions.prompt, sessions.output, strict=True))
    assert compared == len(SESSIONS) == 65


def test_the_folder_of_sessions():
    rows = read_rows(TRACES / "kv-cache-tester/raw")
    single = [read_rows(TRACES / name) for name in SESSIONS]
    assert np.array_equal(rows.prompt_tokens, np.concatenate([one.prompt_tokens for one in single]))
    assert len(np.unique(rows.content.ids)) == sum(len(np.unique(one.content.ids)) for one in single)


# ---------------------------------------------------------------------- ServeGen
@pytest.mark.parametrize("name", SERVEGEN)
def test_every_servegen_file(name):
    path = TRACES / name
    assert _sniff(open_source(str(path))) == "servegen"
    rows = read_rows(path)
    assert len(rows) > 0
    trace = path.with_name(path.name.replace("dataset.json", "trace.csv"))
    rates = [float(text.split(",")[1]) for text in gzip.decompress(trace.read_bytes()).decode().split()]
    assert f"they make {sum(rates) * 600:,.0f} requests in all" in rows.notes[0]


@pytest.mark.parametrize("folder", ["language/m-small", "language/m-mid", "language/m-large", "reason/deepseek-r1",
                                    "multimodal/mm-image"])
def test_servegen_folders(folder):
    rows = read_rows(TRACES / "servegen" / folder)
    assert rows.notes[0].startswith("4 clients drawn from 0 to 600 s")
    rates = sum(float(gzip.decompress(path.read_bytes()).decode().split()[0].split(",")[1])
                for path in (TRACES / "servegen" / folder).glob("*trace.csv.gz"))
    assert len(rows) == pytest.approx(rates * 600, rel=0.15)


def test_nothing_was_handed_that_is_not_tested():
    handed = {path.relative_to(TRACES).as_posix() for path in TRACES.rglob("*") if path.is_file()} - {"README.md", "SHA256SUMS"}
    assert (len(SERVEGEN), len(SESSIONS), len(SIDES)) == (40, 65, 5)
    assert handed == {*FILES, *SERVEGEN, *SESSIONS, *SIDES}
