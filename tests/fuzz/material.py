"""Good files to begin with: the real ones of the shared folder, cut short, and the small samples of the tests."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import served
from cli_run import SHARED
from format_samples import SAMPLES, lines

from experiments.step_time_file import step_time_text
from sim.models.model_names import catalogue

from .inputs import Special

LINES, LONGEST = 30, 24_000                            # what is kept of a real file
DATA = Path(__file__).resolve().parents[1] / "data"
Files = dict[str, bytes | Special]


class Good(NamedTuple):
    """A good file: its name, its content, and what lies beside it."""

    name: str
    data: bytes
    beside: Files


@cache
def traces() -> list[Good]:
    """Every public format, and every real file of the shared folder."""
    found = [Good(sample.file if sample.file != "no-name" else f"{sample.name}.x", sample.text.encode(),
                  {name: text.encode() for name, text in sample.beside.items()}) for sample in SAMPLES]
    for path in sorted((SHARED / "traces").rglob("*")):
        if path.is_file() and path.suffix not in (".md", "") and not {"servegen", "ragpulse"} & set(path.parts):
            head = _head(path)
            if head is not None:
                found.append(Good(path.name.removesuffix(".gz"), head, {}))
    return found


def _head(path: Path) -> bytes | None:
    """The first lines; a document as it is where it is short, else None."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data = file.read(8 * LONGEST)
    if data.startswith((b"[", b"{\n")) or data.count(b"\n") < 2:
        return data if len(data) < LONGEST else None
    rows = data.split(b"\n")[:LINES]
    while len(rows) > 2 and sum(map(len, rows)) > LONGEST:
        rows.pop()
    return b"\n".join(rows) + b"\n"


@cache
def folders() -> list[Files]:
    """ServeGen's and kv-cache-tester's folders: small ones, and the beginnings of real ones."""
    session = next(sample.text for sample in SAMPLES if sample.name == "kv-session").encode()
    tables = {"0": {"input_tokens": "{100: 0.25, 300: 0.75}", "output_tokens": "{7: 1.0}"},
              "43200": {"input_tokens": "{5: 1}", "output_tokens": "{2: 0.5, 4: 0.5}"}}
    windows = b"0,0.05,1.0,Gamma,0.5,20.0\n600,0,0,,0,0\n1200,0.02,1.0,Weibull,1.0,50.0\n"
    found: list[Files] = [{"f/trace_0001.json": session, "f/trace_0002.json": session},
                          {"f/chunk-7-trace.csv": windows, "f/chunk-7-dataset.json": json.dumps(tables).encode()}]
    for path in sorted((SHARED / "traces" / "servegen").rglob("*-trace.csv.gz"))[:6]:
        rows = b"\n".join(gzip.decompress(path.read_bytes()).split(b"\n")[:4])
        found.append({"f/chunk-7-trace.csv": rows, "f/chunk-7-dataset.json": json.dumps(tables).encode()})
    return found


@cache
def configs() -> list[bytes]:
    """config.json of real models, and records of the catalogue under the same names."""
    shared = SHARED / "facts" / "model_configs.json"
    records = json.loads(shared.read_text()) if shared.exists() else catalogue()["models"]
    return [json.dumps(record).encode() for record in records.values() if len(json.dumps(record)) < LONGEST]


@cache
def cases() -> list[bytes]:
    """Cases recorded from the real scheduler: short ones."""
    paths = [*sorted((DATA / "golden").glob("*.json")), *sorted((SHARED / "golden").glob("*.json"))]
    return [path.read_bytes() for path in paths if path.stat().st_size < 7_000]


@cache
def servers() -> dict[str, bytes]:
    """What `pagedsim calibrate` takes: tables, results of a benchmark, logs, metrics pages, lengths."""
    trace, config = served.requests(12, rate=4.0), served.server()
    journal = served.Journal()
    run, ttft, tpot = served.serve(trace, config, observers=[journal])
    log = served.start_up() + "\n".join(served.log_lines(journal, served.BLOCKS, 0, 40_000_000)) + "\n"
    rows = [json.loads(row) for row in (DATA / "server_startup_logs.jsonl").read_text().splitlines()]
    printed = "".join(f"INFO 01-01 00:00:0{n % 10} # GPU blocks: {row['num_gpu_blocks']}, # CPU blocks: 2048\n"
                      for n, row in enumerate(rows) if "num_gpu_blocks" in row)
    table = "prompt_tokens,output_tokens,ttft_ms,tpot_ms,concurrency\n1024,128,61.5,9.8,1\n64,16,48.0,14.1,4\n"
    return {"table": table.encode(), "bench": json.dumps(served.benchmark(trace, config)).encode(),
            "totals": json.dumps(served.benchmark(trace, config, detailed=False)).encode(), "log": log.encode(),
            "blocks": printed.encode(), "page": served.metrics(run, ttft, tpot).encode(),
            "docker": lines(*({"log": line + "\n", "stream": "stderr"} for line in log.splitlines()[:9])).encode()}


POOL = ("--num-gpu-blocks-override", "1000")
MODEL = ("--model", "Llama-3.1-8B", "--gpu", "H100")
TRACE = b"arrived_at,num_prefill_tokens,num_decode_tokens\n0,20,5\n0.5,30,6\n1,40,3\n"
TURNS = b'{"timestamp": 0, "input_length": 33, "output_length": 7, "hash_ids": [5, 6, 7], "session_id": "a"}\n' \
    b'{"timestamp": 900, "input_length": 48, "output_length": 8, "hash_ids": [5, 6, 8], "session_id": "a"}\n'
LARGE = b"""{"runs": [{"workload": "w", "config": {"num_blocks": 50, "max_num_seqs": 8},
                        "totals": {"steps": 9, "outcome": "finished"}}]}"""
STEP_TIMES = (step_time_text({"bandwidth_efficiency": 0.5, "flops_efficiency": 0.25, "overhead_us": 9.0},
                             {"gpu": "L4", "model": "Llama-3.1-8B", "ttft_error": 0.3, "from": ["a.csv"]}, ["fitted"]).encode(),
              b'kind = "constant"\nus = 18000\n')
SCENARIOS = (b"""model = "Llama-3.1-8B"
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
""", b"""seeds = [1, 2]
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
""")
SMALL_SCENARIO = b"""num-gpu-blocks-override = 60
max-model-len = 512
warm-up = "none"
seeds = 2
[traffic]
requests = 8
arrivals = "poisson:rate=2"
prompt = 100
output = 10
[sweep]
max-num-seqs = [2, 4]
"""
RECIPES = (b"""requests = 40
seed = 3
arrivals = {kind = "gamma", rate = 2.0, burstiness = 0.5}
prompt = {kind = "profile", name = "sharegpt"}
output = {kind = "lognormal", mean = 200, sigma = 0.8, most = 2000}
lengths = {correlation = 0.3}
prefix = {kind = "system", tokens = 512, prompts = 20}
""", b"""requests = 30
prompt = 30
output = {kind = "mixture", of = [{kind = "constant", value = 4, weight = 1},
  {kind = "uniform", least = 2, most = 9, weight = 3}]}
prefix = {kind = "agent", calls = 3, result_tokens = 50, tool_s = 0.5, subagents = "uniform:least=0,most=2"}
[arrivals]
kind = "closed"
users = 3
think_s = 2.5
""", b"""requests = 30
arrivals = "diurnal:rate=3,period_s=60"
prompt = "zipf:exponent=1.1,most=500"
output = "geometric:mean=20"
prefix = {kind = "rag", document_tokens = "lognormal:mean=400,sigma=1", documents = 50, retrieved = 4, salts = 3}
""", b"""requests = 30
arrivals = "on-off:rate=3,on_s=5,off_s=2"
prompt = 40
output = 20
prefix = {kind = "chat", turns = "geometric:mean=3", think_s = "exponential:mean=5", system_tokens = 64, prompts = 2}
""")
SERVE_LINES = (
    "vllm serve Qwen/Qwen3-8B -tp 2 --max_model_len 16k --port 80 --enable-lora",
    "CUDA_VISIBLE_DEVICES=0,1 nohup vllm serve meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size=4 "
    "--max-model-len 32768 --gpu-memory-utilization 0.92 --kv-cache-dtype fp8 --no-enable-prefix-caching > log 2>&1 &",
    "python3 -m vllm.entrypoints.openai.api_server --model mistralai/Mistral-7B-v0.1 --dtype half --max-num-seqs 64 "
    "--speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 2}'",
    "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.11.0 --model Qwen/Qwen2.5-14B-Instruct-AWQ --quantization awq \\\n"
    "  --max-num-batched-tokens 8k --block-size 32 -O3 --hf-overrides.rope_theta 1000",
    "bash -c 'vllm serve facebook/opt-13b --cpu-offload-gb 4 --kv-cache-memory-bytes 8GiB --enforce-eager true'")

