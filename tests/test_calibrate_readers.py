"""Tables, benchmark results, server logs and metrics pages: real lines of many versions, every start-up log, bad input."""

import gzip
import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
import zstandard
from fuzz.mutations import damaged
from served import MODEL, benchmark, log_lines, metrics, requests, serve, server, start_up
from served import Journal as Steps
from small import LONG

from experiments.calibration import described
from experiments.calibration.log_doubts import doubts
from experiments.calibration.measured import open_measured, read_all
from experiments.calibration.server_log import ServerLog
from workloads.request import InputError, Trace

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data" / "server_startup_logs.jsonl").open()]
V0 = ("INFO {} Avg prompt throughput: {} tokens/s, Avg generation throughput: {} tokens/s, Running: {} reqs, Swapped: 0 reqs, "
      "Pending: {} reqs, GPU KV cache usage: {}%, CPU KV cache usage: {}")
V1 = ("{}Avg prompt throughput: {} tokens/s, Avg generation throughput: {} tokens/s, Running: {} reqs, Waiting: {} reqs, "
      "GPU KV cache usage: {}%, Prefix cache hit rate: {}%{}")


def read(tmp_path, text, name="measured", lengths=None, seed=0):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_all([open_measured(str(path))], lengths, seed)


def log_of(tmp_path, *lines):
    return read(tmp_path, "\n".join(lines) + "\n").log


def refused(tmp_path, text, **more):
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(tmp_path), "")


# ---------------------------------------------------------------------- periodic lines as real servers printed them
def v1(before, prompt, generated, running, waiting, usage, hit, after="", preemptions=None):
    """A line of the second engine, and what is in it."""
    return (V1.format(before, prompt, generated, running, waiting, usage, hit, after),
            (float(prompt), float(generated), running, waiting, float(usage), float(hit), preemptions, 0))


def v0(before, prompt, generated, running, waiting, usage, cpu):
    return (V0.format(before, prompt, generated, running, waiting, usage, cpu),
            (float(prompt), float(generated), running, waiting, float(usage), None, None, 0))


REAL = {
    "0.3, vllm#3094": v0("02-28 21:48:18 metrics.py:161]", "0.0", "44.9", 2, 3, "82.1", "0.0%"),
    "0.6, vllm#12314": v0("01-22 18:27:20 metrics.py:449]", "0.0", "41.7", 1, 0, "2.0", "0.0%."),
    "0.10, vllm#25780": v1("INFO 09-26 11:20:52 [loggers.py:127] Engine 000: ", "6102.8", "1221.7", 259, 535, "82.2", "32.2"),
    "0.11, vllm#27569": v1("(APIServer pid=3322894) INFO 10-27 11:21:50 [loggers.py:208] Engine 000: ", "10.3", "11.2", 1, 0,
                           "0.1", "0.0", ", External prefix cache hit rate: 50.0%"),
    "0.20, genesis-vllm-patches#24": v1("(APIServer pid=92107) INFO 05-08 16:21:55 [loggers.py:271] Engine 000: ", "0.0", "28.4",
                                        0, 0, "0.0", "0.0", ", MM cache hit rate: 0.0%"),
    "0.20, vllm#43295": v1("(APIServer pid=3646) INFO 05-19 10:13:11 [loggers.py:271] Engine 000: ", "0.0", "1055.3", 18, 43,
                           "95.9", "0.0"),
    "0.2x, sendnn-inference#1030": v1("(APIServer pid=5150) INFO 07-14 21:36:42 [loggers.py:273] Engine 000: ", "4.0", "5.6", 1,
                                      0, "3.0", "48.4"),
    "Kubernetes, tt-inference-server#3359": v1("2026-05-12T08:01:49.332184394Z (APIServer pid=1) INFO 05-12 08:01:49 "
                                               "[loggers.py:271] Engine 000: ", "0.0", "7.2", 9, 1, "68.8", "0.0"),
}
NEWEST = v1("(APIServer pid=1) INFO 09-01 00:00:01 [loggers.py:310] Engine 003: ", "1.5", "2.5", 7, 9, "99.9", "12.3", "", 4)
REAL["newest fields"] = NEWEST[0].replace("GPU KV", "Deferred: 2 reqs, Preemptions: 4, GPU KV"), NEWEST[1]


@pytest.mark.parametrize("which", REAL)
def test_real_periodic_lines(tmp_path, which):
    line, wanted = REAL[which]
    sample, = log_of(tmp_path, "Loading safetensors checkpoint shards: 100%", line).samples
    assert (sample.prompt_tokens_per_s, sample.generation_tokens_per_s, sample.running, sample.waiting, sample.usage_percent,
            sample.hit_percent, sample.preemptions, sample.swapped) == wanted
    assert sample.line == 2 and sample.engine == (3 if which == "newest fields" else 0)


def test_the_first_engine_says_its_hit_rate_on_a_line_of_its_own(tmp_path):
    """vllm#18674."""
    log = log_of(tmp_path, v0("05-25 06:50:29 [metrics.py:486]", "0.0", "15.5", 1, 0, "0.0", "0.1%.")[0],
                 "INFO 05-25 06:50:29 [metrics.py:502] Prefix cache hit rate: GPU: 12.50%, CPU: 90.00%")
    assert [sample.hit_percent for sample in log.samples] == [12.5]


def test_colours_docker_objects_and_bytes_that_are_no_text(tmp_path):
    line = REAL["0.20, vllm#43295"][0]
    colour = line.replace("INFO", "\x1b[32mINFO\x1b[0m").replace("Running: ", "Running: \x1b[1m")
    docker = json.dumps({"log": "\x1b[32m" + line + "\n", "stream": "stderr", "time": "2026-05-19T10:13:11.5Z"})
    data = b"\xff\xfe not text \x1b[K\r\n" + "\n".join((line, colour)).encode() + b"\n"
    assert [sample.running for sample in read(tmp_path, data[2:]).log.samples] == [18, 18]
    sample, = read(tmp_path, docker + "\n").log.samples
    assert sample.running == 18 and sample.time_s % 60 == 11.5


def test_times_are_those_of_all_lines_and_go_over_new_year(tmp_path):
    line = REAL["0.20, vllm#43295"][0]
    kubernetes = REAL["Kubernetes, tt-inference-server#3359"][0]
    later = kubernetes.replace("08:01:49.332184394Z", "08:01:59.333184394Z")
    times = [sample.time_s for sample in log_of(tmp_path, kubernetes, later).samples]
    assert round(times[1] - times[0], 6) == 10.001
    mixed = [sample.time_s for sample in log_of(tmp_path, kubernetes, line).samples]
    assert mixed[1] - mixed[0] == ((7 * 24 + 2) * 60 + 11) * 60 + 22          # vLLM's own, to the second
    year = log_of(tmp_path, line.replace("05-19 10:13:11", "12-31 23:59:55"), line.replace("05-19 10:13:11", "01-01 00:00:05"))
    assert [b.time_s - a.time_s for a, b in zip(year.samples, year.samples[1:], strict=False)] == [10.0]
    bare = log_of(tmp_path, line.partition("loggers.py:271] ")[2], line)
    assert [sample.time_s for sample in bare.samples] == [None, None] and "no times" in bare.notes[0]
    east = log_of(tmp_path, kubernetes.replace("394Z", "394+02:00"), kubernetes)
    assert east.samples[1].time_s - east.samples[0].time_s == 7200 and not east.notes
    swapped = log_of(tmp_path, later, kubernetes)
    assert [sample.line for sample in swapped.samples] == [2, 1]
    doubt, = doubts(swapped)
    assert doubt.startswith("warning: the time goes back at 1 of the lines, first at line 2: two logs in one file, or a clock")
    assert list(doubts(log_of(tmp_path, kubernetes, later))) == []


def test_torn_lines_are_passed_over_and_counted(tmp_path):
    line = REAL["0.20, vllm#43295"][0]
    log = log_of(tmp_path, line, line.replace("Running: 18 reqs", "Running: 18 $INFO"), line.replace("1055.3", "nan"))
    assert len(log.samples) == 1 and log.notes == (
        "warning: 2 periodic lines passed over: torn, or without a field",)


@pytest.mark.parametrize("torn", ["%, Prefix cache hit rate", "Prefix cache hit rate", "0.0%", " reqs, Waiting", "Running: 18",
                                  "Avg generation", "prompt throughput"])
def test_a_log_that_ends_within_a_periodic_line(tmp_path, torn):
    """Cut before each of these: a line without its hit rate, or any other field, is no sample, and is named."""
    line = REAL["0.20, vllm#43295"][0]
    log = read(tmp_path, line + "\n" + line[:line.rindex(torn)]).log
    assert len(log.samples) == 1 and log.samples[0].hit_percent == 0.0
    assert log.notes == ("warning: the file ends in the middle of line 2, a periodic one: it is passed over",)
    whole = read(tmp_path, line + "\n" + line).log
    assert len(whole.samples) == 2 and whole.notes == ()


def test_the_first_engine_ends_its_lines_without_a_hit_rate(tmp_path):
    line = v0("05-25 06:50:29 [metrics.py:486]", "0.0", "15.5", 1, 0, "0.0", "0.1%.")[0]
    alone = "INFO 05-25 06:50:29 [metrics.py:502] Prefix cache hit rate: GPU: 12.50%, CPU: 90.00%"
    log = read(tmp_path, f"{line}\n{alone}\n{line}").log
    assert [sample.hit_percent for sample in log.samples] == [12.5, None] and log.notes == ()
    assert list(doubts(log)) == ["warning: 1 periodic line of 2 without a prefix cache hit rate: it is not compared"]


# ---------------------------------------------------------------------- doubtful logs
def later(seconds, pid="3646", before=""):
    return before + REAL["0.20, vllm#43295"][0].replace("10:13:11", f"10:{13 + seconds // 60}:{seconds % 60:02}").replace(
        "pid=3646", f"pid={pid}")


def test_a_clock_that_goes_back_is_said(tmp_path):
    """Twice: at lines 3 and 5. Lines of two engines may come in any order."""
    log = log_of(tmp_path, *(later(seconds) for seconds in (20, 30, 10, 40, 35)))
    doubt, = doubts(log)
    assert doubt.startswith("warning: the time goes back at 2 of the lines, first at line 3: two logs in one file, or a clock")
    two = log_of(tmp_path, later(20), later(19).replace("Engine 000", "Engine 001"), later(30))
    assert list(doubts(two)) == ["warning: lines of 2 engines are mixed (0, 1): --engine N takes one"]
    assert list(doubts(two.of_engine(0))) == []
    second = (later(seconds).replace("Engine 000", "Engine 001") for seconds in (50, 45))
    assert "goes back at 1 of the lines, first at line 3" in next(doubts(log_of(tmp_path, later(20), *second)))


@pytest.mark.parametrize(("first", "second", "names"), [
    (later(10), later(15, "77"), "'pid=3646', 'pid=77'"),
    (later(10, before="vllm-1  | "), later(15, before="vllm-2  | "), "'vllm-1 pid=3646', 'vllm-2 pid=3646'"),
    (later(10, before="[pod/a/vllm] "), later(15, before="[pod/b/vllm] "), "'pod/a/vllm pid=3646', 'pod/b/vllm pid=3646'")])
def test_lines_of_two_servers_are_said(tmp_path, first, second, names):
    doubt, = doubts(log_of(tmp_path, first, second, first.replace("10:13:10", "10:13:20")))
    assert doubt == (f"warning: the periodic lines come from 2 servers ({names}): several in one log, or one that was started "
                     "again; a comparison wants the lines of one")


def test_a_start_up_in_the_middle_is_said(tmp_path):
    size = "GPU KV cache size: 48,000 tokens"
    assert list(doubts(log_of(tmp_path, size, later(10), later(20)))) == []
    doubt, = doubts(log_of(tmp_path, size, later(10), later(20), size, later(30)))
    assert doubt.startswith("warning: line 4 is of a start-up and comes after periodic lines: several servers in one log")


def test_a_log_without_periodic_lines_says_what_to_turn_on(tmp_path):
    doubt, = doubts(log_of(tmp_path, "GPU KV cache size: 48,000 tokens"))
    assert doubt.startswith("warning: no periodic line is in it")
    assert "--disable-log-stats" in doubt and "VLLM_LOGGING_LEVEL" in doubt


# ---------------------------------------------------------------------- start-up lines
def printed(row):
    """A row of facts as a server of its time printed it."""
    lines = []
    if "weights_gib" in row:
        lines.append(f"INFO 01-02 03:04:05 model_runner.py:1099] Loading model weights took {row['weights_gib']:.4f} GB"
                     if "V0" in row.get("note", "") else
                     f"(EngineCore_DP0 pid=9) INFO 01-02 03:04:05 [gpu_model_runner.py:2653] Model loading took "
                     f"{row['weights_gib']:.4f} GiB memory and 3.1 seconds")
    if row.get("available_kv_gib", -1) > 0:
        lines.append("INFO 01-02 03:04:05 worker.py:266] model weights take 1.00GiB; the rest of the memory reserved for KV "
                     f"Cache is {row['available_kv_gib']:.2f}GiB." if "num_gpu_blocks" in row else
                     f"(Worker_TP0 pid=7) INFO 01-02 03:04:05 [gpu_worker.py:349] Available KV cache memory: "
                     f"{row['available_kv_gib']:.2f} GiB")
    if "num_gpu_blocks" in row:
        device = "GPU" if "num_cpu_blocks" in row else "cuda"
        lines.append(f"INFO 01-02 03:04:05 [executor_base.py:110] # {device} blocks: {row['num_gpu_blocks']}, # CPU blocks: "
                     f"{row.get('num_cpu_blocks', 0)}")
    if "kv_tokens" in row:
        lines.append(f"(EngineCore pid=7) INFO 01-02 03:04:05 [kv_cache_utils.py:1229] GPU KV cache size: {row['kv_tokens']:,} "
                     "tokens")
    if "max_concurrency" in row and "max_model_len" in row:
        lines.append(f"(EngineCore pid=7) INFO 01-02 03:04:05 [kv_cache_utils.py:1234] Maximum concurrency for "
                     f"{row['max_model_len']:,} tokens per request: {row['max_concurrency']:.2f}x")
    return lines


def test_every_start_up_log_is_read_back(tmp_path):
    count = 0
    for row in ROWS:
        lines = printed(row)
        if not lines:
            continue
        facts = log_of(tmp_path, *lines).facts
        for name, key in (("available_kv_gib", "available_gib"), ("num_gpu_blocks",) * 2, ("kv_tokens",) * 2,
                          ("max_concurrency",) * 2, ("weights_gib",) * 2):
            said = key in facts
            assert said == (name in row and not (name == "available_kv_gib" and row[name] <= 0)
                            and not (name == "max_concurrency" and "max_model_len" not in row)), (row["id"], name)
            if said:
                assert facts[key] == (row[name],), row["id"]
                count += 1
    assert count > 200


def test_real_start_up_lines(tmp_path):
    """vllm#28228 (0.11) and vllm#30515 (0.17): several workers, the smallest decides; the newest put two things on one line."""
    core = "(EngineCore_DP0 pid=26283) INFO 11-06 10:51:48 [kv_cache_utils.py:1229] "
    log = log_of(tmp_path, "(Worker_TP0 pid=26347) INFO 11-06 10:51:48 [gpu_worker.py:349] Available KV cache memory: 2.30 GiB",
                 "(Worker_TP1 pid=26348) INFO 11-06 10:51:48 [gpu_worker.py:349] Available KV cache memory: 2.41 GiB",
                 core + "GPU KV cache size: 75,840 tokens", core + "Maximum concurrency for 120,000 tokens per request: 2.48x",
                 "(EngineCore_DP0 pid=387) INFO 03-08 16:44:28 [gpu_model_runner.py:5651] Estimated CUDA graph memory: 0.26 GiB "
                 "total")
    assert log.facts == {"available_gib": (2.3, 2.41), "kv_tokens": (75840.0,), "max_model_len": (120000.0,),
                         "max_concurrency": (2.48,), "estimated_graphs_gib": (0.26,)}
    one = log_of(tmp_path, core + "GPU KV cache size: 48,000 tokens, Maximum concurrency for 4,096 tokens per request: 11.72x")
    assert one.facts == {"kv_tokens": (48000.0,), "max_model_len": (4096.0,), "max_concurrency": (11.72,)}


def test_the_configuration_becomes_options(tmp_path):
    """Settings of vllm-omni#749 (0.12) and club-3090#91 (0.20.1), shortened."""
    config = ("(EngineCore_DP0 pid=9) INFO 01-12 06:49:14 [core.py:93] Initializing a V1 LLM engine (v0.12.0) with config: "
              "model='meta-llama/Llama-3.1-8B-Instruct', speculative_config=None, tokenizer='x', skip_tokenizer_init=False, "
              "dtype=torch.float16, max_seq_len=65536, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, "
              "quantization=None, enforce_eager=True, kv_cache_dtype=fp8_e5m2, seed=0, enable_prefix_caching=False, "
              "chunked_prefill_enabled=True")
    arguments = ("(APIServer pid=1) INFO 05-06 22:27:57 [utils.py:233] non-default args: {'host': '0.0.0.0', 'dtype': 'float16', "
                 "'max_model_len': 65536, 'served_model_name': ['mine'], 'tensor_parallel_size': 2, "
                 "'max_num_batched_tokens': 8192, 'gpu_memory_utilization': 0.85, 'max_num_seqs': 2, 'speculative_config': "
                 "{'method': 'mtp'}}")
    log, notes = log_of(tmp_path, arguments, config), []
    words = described.words_of_log(log, notes)
    assert words == ["--model=meta-llama/Llama-3.1-8B-Instruct", "--vllm-version=0.12.0", "--max-model-len=65536",
                     "--tensor-parallel-size=2", "--pipeline-parallel-size=1", "--max-num-seqs=2",
                     "--max-num-batched-tokens=8192", "--no-enable-prefix-caching", "--enable-chunked-prefill", "--enforce-eager",
                     "--gpu-memory-utilization=0.85",
                     "--dtype=float16", "--kv-cache-dtype=fp8_e5m2"]
    assert described.given(words, ["log", "-tp", "4", "--enable-prefix-caching"])[1] == ["--tensor-parallel-size=2",
                                                                                         "--no-enable-prefix-caching"]
    pool = ["--num-gpu-blocks-override=9"]
    assert described.given(pool, ["page", "--available-kv-gib", "3"]) == ([], pool)
    assert described.given(pool, ["page", "--gpu=L4"]) == (pool, [])
    odd = ServerLog("x", (), settings={"model": "/data/nobody-knows-this", "quantization": "auto_round", "kv_cache_dtype": "x9",
                                       "tensor_parallel_size": "0x2", "data_parallel_size": "8"}, version="9.9.dev")
    notes = []
    assert described.words_of_log(odd, notes) == [] or described.words_of_log(odd, []) == ["--vllm-version=9.9.dev"]
    assert any("nobody-knows-this" in note for note in notes) and any("several replicas" in note for note in notes)


# ---------------------------------------------------------------------- metrics pages
PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="zai-org/GLM-4.5"}} 3.0
vllm:num_requests_waiting{{engine="0",model_name="zai-org/GLM-4.5"}} 1.0
{usage}{{engine="0",model_name="zai-org/GLM-4.5"}} 0.25
{queries}{{engine="0",model_name="zai-org/GLM-4.5"}} 3.2e+01
{hits}{{engine="0",model_name="zai-org/GLM-4.5"}} 16.0
vllm:prefix_cache_queries_created{{engine="0",model_name="zai-org/GLM-4.5"}} 1.7537953269352946e+09
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="zai-org/GLM-4.5"}} 5.0
vllm:request_success_total{{engine="0",finished_reason="length",model_name="zai-org/GLM-4.5"}} 2.0
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf",model_name="zai-org/GLM-4.5"}} 7.0
vllm:time_to_first_token_seconds_count{{engine="0",model_name="zai-org/GLM-4.5"}} 7.0
vllm:time_to_first_token_seconds_sum{{engine="0",model_name="zai-org/GLM-4.5"}} 1.75 1700000000000
{tpot}_count{{engine="0"}} 4.0
{tpot}_sum{{engine="0"}} 0.5
vllm:cache_config_info{{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="1001",odd="a\\"}}, b"}} 1.0
"""
NAMES = {"old": ("vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_hits_total",
                 "vllm:time_per_output_token_seconds"),
         "new": ("vllm:kv_cache_usage_perc", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
                 "vllm:request_time_per_output_token_seconds")}


@pytest.mark.parametrize("age", NAMES)
def test_pages_of_old_and_new_versions(tmp_path, age):
    """Names as in production-stack#617 (0.10.0) and today."""
    names = dict(zip(("usage", "queries", "hits", "tpot"), NAMES[age], strict=True))
    page = read(tmp_path, PAGE.format(**names)).page
    engine = page.together()
    assert engine.values == {"running": 3, "waiting": 1, "usage": 0.25, "query_tokens": 32, "hit_tokens": 16, "succeeded": 7}
    assert engine.totals["ttft"].mean == 0.25 and engine.totals["itl" if age == "old" else "tpot"].mean == 0.125
    assert engine.pool["num_gpu_blocks"] == "1001" and engine.pool["odd"] == 'a"}, b' and page.models == ("zai-org/GLM-4.5",)


def test_engines_of_a_page_are_summed_or_one_is_taken(tmp_path):
    text = "".join(f'vllm:num_requests_running{{engine="{e}"}} {n}\nvllm:kv_cache_usage_perc{{engine="{e}"}} {u}\n'
                   for e, n, u in ((0, 3, 0.5), (1, 4, 0.25)))
    page = read(tmp_path, text).page
    assert page.together().values == {"running": 7, "usage": 0.375}
    assert page.of_engine(1).together().values == {"running": 4, "usage": 0.25}
    with pytest.raises(InputError, match="no engine 2; those of 0, 1 are there"):
        page.of_engine(2)


@pytest.mark.parametrize(("line", "said"), [
    ('vllm:kv_cache_usage_perc{engine="0"} 1.5', "/measured:1: kv_cache_usage_perc: '1.5' is above 1"),
    ('vllm:num_requests_running{engine="0"} -1', "/measured:1: num_requests_running: '-1' is not a number of at least 0"),
    ('vllm:num_requests_running{engine="0"} NaN', "'NaN' is not a number"), ("vllm:num_requests_running", "no metric"),
    ('vllm:num_requests_running{engine="0} 1', "no label"), ('vllm:some_other_thing{} 1', "no metric of a vLLM server"),
    ('vllm:num_requests_running{engine="0"} +Inf', "'+Inf' is not a number")])
def test_bad_pages(tmp_path, line, said):
    assert said in refused(tmp_path, line + "\n")


@pytest.mark.parametrize("rest", ['vllm:num_requests_waiting{engine="0"} 1', "vllm:num_requests_wai", "# HELP vllm:num_req"])
def test_a_page_that_is_cut_off(tmp_path, rest):
    """17 may have been 175: what has no line end is passed over and named."""
    page = read(tmp_path, f'vllm:num_requests_running{{engine="0"}} 3\n{rest}').page
    assert page.together().values == {"running": 3}
    assert page.notes == (f"warning: the page is cut off in line 2, which has no end: {rest!r}; it is passed over, and what may "
                          "have followed is missing",)
    assert read(tmp_path, 'vllm:num_requests_running{engine="0"} 3\n').page.notes == ()
    assert page.of_engine(0).notes == page.notes


# ---------------------------------------------------------------------- tables
def test_a_table(tmp_path):
    other, = read(tmp_path, "prompt_tokens,output_tokens,ttft_ms,tpot_s\n100,20,50,0.0095\n").cases
    assert [t.seconds.tolist() for t in other.targets] == [[0.05], [0.0095]] and other.most_in_flight == 1
    text = "prompt_tokens,output_tokens,ttft_s,tpot_ms,concurrency\n100,20,0.05,9.5,1\n200,1,0.5,9,4\n"
    one, two = read(tmp_path, text).cases
    assert [(t.metric, t.statistic) for t in one.targets] == [("ttft", "mean"), ("tpot", "mean")]
    assert [t.seconds.tolist() for t in one.targets] == [[0.05], [0.0095]]
    assert (len(one.trace), one.most_in_flight, len(two.trace), two.most_in_flight) == (1, 1, 16, 4)
    assert [t.metric for t in two.targets] == ["ttft"]                        # one token: no time after it
    assert two.trace.prompt_tokens.tolist() == [200] * 16 and not two.trace.arrival_us.any()


@pytest.mark.parametrize(("text", "said"), [
    ("prompt_tokens,output_tokens,ttft_ms\n1,2,-3\n", "/measured:2: column 'ttft_ms': '-3' is not a number above 0"),
    ("prompt_tokens,output_tokens,ttft_ms\n1,2,nan\n", "'nan' is not a number above 0"),
    ("prompt_tokens,output_tokens,ttft_ms\n1,2,0\n", "'0' is not a number above 0"),
    ("prompt_tokens,output_tokens,ttft_ms\n1,2,1e300\n", "is over 1e+06 seconds"),
    ("prompt_tokens,output_tokens,ttft_ms\n0,2,3\n", "/measured:2: column 'prompt_tokens': '0'"),
    ("prompt_tokens,output_tokens,ttft_ms\n", "/measured:1: a header, and no rows after it"),
    ("prompt_tokens,ttft_ms\n1,2\n", "column 'output_tokens': missing"),
    ("prompt_tokens,output_tokens,ttft_ms,ttft_s\n1,2,3,4\n", "ttft_ms stands there too: one of them"),
    ("prompt_tokens,output_tokens,ttft_ms,gpu\n1,2,3,4\n", "column 'gpu': unknown"),
    ("prompt_tokens,output_tokens,ttft\n1,2,3\n", "/measured:1: a table of measurements has other columns: found "
     "'prompt_tokens', 'output_tokens', 'ttft'; wanted 'prompt_tokens', 'output_tokens', 'ttft_s', 'ttft_ms', 'tpot_s', "
     "'tpot_ms', 'concurrency'; perhaps 'ttft' as 'ttft_ms' or 'ttft_s'"),
    ("prompt_tokens,output_tokens,TTFT (ms)\n1,2,3\n", "; perhaps 'TTFT (ms)' as 'ttft_ms'"),
    ("prompt_tokens,output_tokens,mean_ttft\n1,2,3\n", "; perhaps 'mean_ttft' as 'ttft_ms' or 'ttft_s'"),
    ("input_len,output_len,Mean TTFT (ms),Mean TPOT (ms),p99_ttft_ms\n1,2,3,4,5\n", "; perhaps 'input_len' as 'prompt_tokens', "
     "'output_len' as 'output_tokens', 'Mean TTFT (ms)' as 'ttft_ms', 'Mean TPOT (ms)' as 'tpot_ms'"),
    ("prompt_tokens,output_tokens,ttft_ms,max_concurrency\n1,2,3,4\n", "; perhaps 'max_concurrency' as 'concurrency'"),
    ("prompt_tokens,output_tokens,ttft_ms,conc\n1,2,3,4\n", "; perhaps 'conc' as 'concurrency'"),
    ("prompt_tokens,output_tokens,ttft_ms,max_conc\n1,2,3,4\n", "; perhaps 'max_conc' as 'concurrency'"),
    ("prompt,output,ttft_ms\n1,2,3\n", "; perhaps 'prompt' as 'prompt_tokens', 'output' as 'output_tokens'"),
    ("prompt_tokens,output_tokens,ttft_ms,con\n1,2,3,4\n", "column 'con': unknown; the columns of a table"),
    ("prompt_tokens,output_tokens,ttft_ms,ttft\n1,2,3,4\n", "column 'ttft': unknown; the columns of a table"),
    ("prompt_tokens,output_tokens,ttft_ms,p99_ttft_ms\n1,2,3,4\n", "column 'p99_ttft_ms': unknown; the columns of a table"),
    ("prompt_tokens,output_tokens,ttft_ms,concurrency\n1,2,3,0\n", "'0' is not a whole number from 1 to 4096"),
    ("prompt_tokens,output_tokens,ttft_ms,concurrency\n1,2,3,9999\n", "'9999' is not a whole number from 1 to 4096")])
def test_bad_tables(tmp_path, text, said):
    assert said in refused(tmp_path, text)


# ---------------------------------------------------------------------- benchmark results
DETAIL = {"request_rate": "inf", "max_concurrency": None, "completed": 3, "total_input_tokens": 60, "total_output_tokens": 13,
          "input_lens": [10, 20, 30], "output_lens": [3, 1, 9], "ttfts": [0.5, 0.25, 1.0],
          "itls": [[0.1, 0.2], [], [0.05] * 8], "start_times": [7.5, 7.25, 9.0]}


def test_detailed_results(tmp_path):
    case, = read(tmp_path, json.dumps(DETAIL)).cases
    assert case.trace.prompt_tokens.tolist() == [20, 10, 30] and case.trace.arrival_us.tolist() == [0, 250_000, 1_750_000]
    by_name = {(t.metric, t.statistic): (t.seconds.tolist(), t.fitted) for t in case.targets}
    assert by_name["ttft", "median"] == ([0.5], True) and by_name["ttft", "p99"][1] is False
    assert by_name["tpot", "mean"] == ([pytest.approx((0.15 + 0.05) / 2)], True)             # nothing after a single token


def test_latencies_where_the_file_has_them(tmp_path):
    case, = read(tmp_path, json.dumps(DETAIL | {"latencies": [0.9, 0.25, 2.0]})).cases
    assert next(t for t in case.targets if (t.metric, t.statistic) == ("tpot", "mean")).seconds == [(0.4 / 2 + 1.0 / 8) / 2]


def test_failed_requests_are_left_out_and_counted(tmp_path):
    case, = read(tmp_path, json.dumps(DETAIL | {"ttfts": [0.5, 0.0, 1.0], "output_lens": [3, 0, 9]})).cases
    assert case.trace.prompt_tokens.tolist() == [10, 30]
    assert "left out, since they failed or generated nothing: 1 of 3 requests" in case.notes
    assert "no request got an answer" in refused(tmp_path, json.dumps(DETAIL | {"ttfts": [0, 0, 0]}))


def test_when_requests_are_sent(tmp_path):
    """Recorded, less what they waited for a place; all in line at once; drawn, the last at requests / rate."""
    limited = DETAIL | {"request_rate": 2.0, "max_concurrency": 2, "queue_times": [0.5, 0.0, 1.0]}
    case, = read(tmp_path, json.dumps(limited)).cases
    assert case.trace.arrival_us.tolist() == [0, 250_000, 1_000_000] and case.most_in_flight == 2
    case, = read(tmp_path, json.dumps(DETAIL | {"max_concurrency": 2})).cases
    assert case.trace.arrival_us.tolist() == [0, 0, 0] and case.trace.prompt_tokens.tolist() == [10, 20, 30]
    without = {k: v for k, v in DETAIL.items() if k != "start_times"} | {"request_rate": 0.5}
    (case,), (again,) = (read(tmp_path, json.dumps(without)).cases for _ in range(2))
    other, = read(tmp_path, json.dumps(without), seed=1).cases
    lasts = [read(tmp_path, json.dumps(without), seed=seed).cases[0].trace.arrival_us[-1] for seed in range(20)]
    assert min(lasts) > 0 and max(lasts) < 6_000_000 and case.trace.arrival_us[0] == 0       # 3 requests / 0.5 a second
    even, = read(tmp_path, json.dumps(without | {"burstiness": "inf"})).cases
    assert even.trace.arrival_us.tolist() == [0, 2_000_000, 4_000_000]
    assert np.array_equal(case.trace.arrival_us, again.trace.arrival_us) and not np.array_equal(
        case.trace.arrival_us, other.trace.arrival_us)


def test_summaries_stand_for_equal_requests_or_take_a_trace(tmp_path):
    summary = {"completed": 4, "total_input_tokens": 402, "total_output_tokens": 40, "mean_ttft_ms": 50.0, "median_ttft_ms": 40.0,
               "p99_ttft_ms": 90.0, "mean_tpot_ms": 10.0}
    case, = read(tmp_path, json.dumps(summary)).cases
    assert case.trace.prompt_tokens.tolist() == [100] * 4 and [t.statistic for t in case.targets] == ["mean", "mean"]
    assert any("no request_rate" in note for note in case.notes)
    lengths = Trace("mine", np.arange(1, 7), np.full(6, 10))
    case, = read(tmp_path, json.dumps(summary), lengths=lengths).cases
    assert case.trace.prompt_tokens.tolist() == [1, 2, 3, 4]
    assert [(t.statistic, t.fitted) for t in case.targets if t.metric == "ttft"] == [
        ("mean", True), ("median", True), ("p99", False)]
    with pytest.raises(InputError, match="4 requests completed, and mine has only 3"):
        read(tmp_path, json.dumps(summary), lengths=Trace("mine", np.arange(1, 4), np.full(3, 10)))


def test_several_results_in_one_file(tmp_path):
    assert len(read(tmp_path, json.dumps(DETAIL) + "\n" + json.dumps(DETAIL) + "\n").cases) == 2


SUMMARY = {"completed": 4, "total_input_tokens": 402, "total_output_tokens": 40, "mean_ttft_ms": 50.0}


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_of_results(tmp_path, indent):
    """On one line or on many; each is called by its number."""
    one, two = read(tmp_path, json.dumps([DETAIL, SUMMARY], indent=indent)).cases
    assert len(one.trace) == 3 and two.trace.prompt_tokens.tolist() == [100] * 4
    assert ", result 1: 3 requests, all at once" in one.label and ", result 2: 4 requests" in two.label
    message = refused(tmp_path, json.dumps([SUMMARY, DETAIL | {"ttfts": [0.5, -1, 1]}], indent=indent))
    assert f":{1 if indent is None else 8}: result 2: entry 1: column 'ttfts': -1 is negative" in message


@pytest.mark.parametrize(("text", "said"), [
    (json.dumps(SUMMARY, indent=1)[:-10], "/measured:5: malformed JSON"),
    (json.dumps(SUMMARY | {"date": "2026"}, indent=1)[:-4], "/measured:6: malformed JSON"),
    ('{\n "date": "2026",\n "backend": "vl',                                   # no key yet that says what it is
     "/measured:3: malformed JSON: cut off in the string that begins at character 13: "),
    ('[\n {"date": "2026",\n "backend": "vl', "/measured:3: malformed JSON: cut off in the string that begins at character 13: "),
    ("[\n" + json.dumps(SUMMARY), "/measured:2: malformed JSON: cut off where , is wanted"),
    (json.dumps([SUMMARY, SUMMARY], indent=1)[:-20], "/measured:12: malformed JSON"),
    (json.dumps([SUMMARY, 3]), "/measured:1: not a JSON object: 3"), ("[]", "/measured:1: not a JSON object: []"),
    (json.dumps(SUMMARY) + "\n" + json.dumps(SUMMARY)[:-9], "/measured:2: malformed JSON")])
def test_where_cut_off_json_breaks(tmp_path, text, said):
    assert said in refused(tmp_path, text)


@pytest.mark.parametrize(("change", "said"), [
    ({"ttfts": [0.5, 0.25]}, "column 'ttfts': 2 entries, but 3 of input_lens"),
    ({"itls": [[0.1], [], "x"]}, "entry 2: column 'itls'"),
    ({"ttfts": [0.5, -1, 1]}, "entry 1: column 'ttfts': -1 is negative"), ({"ttfts": [0.5, True, 1]}, "True is not a number"),
    ({"request_rate": 0}, "column 'request_rate': 0 is not above 0"), ({"request_rate": "fast"}, "'fast' is not a number"),
    ({"max_concurrency": 0}, "column 'max_concurrency': 0 is not a whole number"), ({"itls": None}, "column 'itls': missing"),
    ({"input_lens": []}, "entries, but 0 of input_lens"), ({"output_lens": [1, 2, 10**400]}, "is more than 2147483648 tokens"),
    ({"ttfts": [0.5, 0.25, 10**400]}, "is too large")])
def test_bad_results(tmp_path, change, said):
    assert said in refused(tmp_path, json.dumps(DETAIL | change))


# ---------------------------------------------------------------------- anything
@pytest.mark.parametrize(("text", "said"), [
    ("", "the file is empty"), ("\x00\x01\x02" * 50, "not a text file"), ("hello\nworld\n", "no measurement that is known"),
    ("a,b,c\n1,2,3\n", "no measurement that is known"), ('{"a": 1}', "no measurement that is known"),
    ("[1, 2, 3]", "not a JSON object: [1, 2, 3]"), (json.dumps(DETAIL)[:-20], "malformed JSON"),
    ('{"completed": 3, "total_input_tokens": NaN}', "NaN is not a number"), ("x" * 100_000, "no measurement that is known"),
    ("prompt_tokens,output_tokens\n1,2\n", "no measurement that is known")])
def test_what_is_no_measurement_is_said_in_one_line(tmp_path, text, said):
    message = refused(tmp_path, text)
    assert said in message and len(message) < 700


def test_packed_files_and_a_log_whose_first_line_comes_late(tmp_path):
    line = REAL["0.20, vllm#43295"][0] + "\n"
    for pack in (gzip.compress, zstandard.compress):
        assert len(read(tmp_path, pack(line.encode())).log.samples) == 1
    noise = "".join(f"INFO: 127.0.0.1:{i} - GET /health 200 OK\n" for i in range(60_000))
    assert [sample.line for sample in read(tmp_path, noise + line).log.samples] == [60_001]
    assert len(read(tmp_path, "x" * 3_000_000 + "\n" + line).log.samples) == 1


def served_files():
    trace, config, journal = requests(12, 4, 20.0), server(), Steps()
    run, ttft, tpot = serve(trace, config, observers=[journal])
    end = int(run.log.finished_us.max())
    return {
        "log": start_up() + "\n".join(log_lines(journal, 3000, 100_000, end, 500_000)) + "\n",
        "page": metrics(run, ttft, tpot), "detailed": json.dumps(benchmark(trace, config, rate=20.0)),
        "summary": json.dumps(benchmark(trace, config, detailed=False)),
        "list": json.dumps([benchmark(trace, config, rate=20.0), benchmark(trace, config, detailed=False)], indent=1),
        "table": "prompt_tokens,output_tokens,ttft_ms,tpot_ms,concurrency\n" + "100,20,30.5,9.25,4\n" * 5}


FILES = served_files()
FUZZED = 500 * LONG


@pytest.mark.parametrize("name", FILES)
def test_fuzz(tmp_path, name):
    """Thousands of damaged files: cases, a log, a page, or one line."""
    draw = Random(name)
    done, said = 0, []
    for number in range(FUZZED):
        data = damaged(draw, FILES[name].encode())
        if number % 10 == 0:
            data = damaged(draw, (gzip.compress, zstandard.compress)[number // 10 % 2](data))
        path = tmp_path / "fuzzed"
        path.write_bytes(data)
        try:
            found = read_all([open_measured(str(path))], None, 0)
            done += 1
            if found.log is not None:
                described.words_of_log(found.log, [])
                said += doubts(found.log)
            if found.page is not None:
                described.words_of_page(found.page, [])
        except InputError as error:
            said.append(str(error))
    assert done and said and all("\n" not in message and len(message) < 1500 for message in said)


def test_the_model_of_these_tests_is_known():
    assert MODEL in "meta-llama/Llama-3.1-8B-Instruct"
