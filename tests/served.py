"""A server that we know everything about: our own engine with given efficiencies, and what such a server and its benchmark would
have written down. Nothing here uses the readers, the gauges or the fit that it tests.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from sim.config import SimConfig
from sim.engine import Engine
from sim.models.model_config import load_model
from sim.run import Observer
from sim.scheduler_config import SchedulerConfig
from sim.sizing.hardware import find_gpu
from sim.sizing.weights import weight_bytes
from sim.step_time import roofline
from workloads.request import Trace

MODEL, GPU = "Llama-3.1-8B", "H100-80GB"
TRUTH = {"bandwidth_efficiency": 0.62, "flops_efficiency": 0.37, "overhead_us": 3500.0}
BLOCKS = 3000
SERVER = ("--model", MODEL, "--gpu", GPU, "--max-model-len", 4096, "--num-gpu-blocks-override", BLOCKS)


def server(blocks=BLOCKS, numbers=TRUTH, **changes):
    """The server of `SERVER` with these efficiencies, making one step after another."""
    model, gpu = load_model(MODEL), find_gpu(GPU)
    clock = roofline(model, gpu, weight_bytes(model, None), model.kv_bytes_per_token())
    return replace(SimConfig(blocks, max_model_len=4096, scheduler=SchedulerConfig(1024, 8192), longest_jump=1,
                             step_time=replace(clock, **numbers)), **changes)


def requests(n, seed=0, rate=8.0, shared=0):
    """Some traffic: lengths of a chat, Poisson arrivals."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(20, 1500, n) + shared
    arrival = np.concatenate(([0], np.cumsum(rng.exponential(1e6 / rate, n - 1)))).astype(np.int64)
    return Trace("made here", prompt, rng.integers(2, 300, n), arrival)


def serve(trace, config, allocator="paged-prefix", observers=()):
    """The run, and TTFT and TPOT of each request in seconds."""
    run = Engine(trace, config, allocator, observers=observers).run()
    log = run.log
    ttft = (log.first_token_us - run.arrival_us) / 1e6
    tpot = (log.finished_us - log.first_token_us) / 1e6 / np.maximum(run.demand.output - 1, 1)
    return run, ttft, tpot


def table(points, config):
    """A CSV of (prompt, output, concurrency): four rounds of equal requests each."""
    rows = ["prompt_tokens,output_tokens,ttft_ms,tpot_ms,concurrency"]
    for prompt, output, at_once in points:
        n = 4 * at_once if at_once > 1 else 1
        equal = Trace("equal", np.full(n, prompt), np.full(n, output), np.zeros(n, np.int64))
        _, ttft, tpot = serve(equal, replace(config, most_in_flight=at_once))
        rows.append(f"{prompt},{output},{1e3 * float(ttft.mean())!r},{1e3 * float(tpot.mean())!r},{at_once}")
    return "\n".join(rows) + "\n"


def benchmark(trace, config, rate="inf", at_once=None, detailed=True, starts=True):
    """What ``vllm bench serve --save-result`` keeps of a run."""
    if rate == "inf":
        trace = replace(trace, arrival_us=np.zeros(len(trace), np.int64))
    run, ttft, tpot = serve(trace, replace(config, most_in_flight=at_once))
    output = run.demand.output
    made = {"date": "20260601-120000", "backend": "vllm", "model_id": MODEL, "num_prompts": len(trace), "request_rate": rate,
            "burstiness": 1.0, "max_concurrency": at_once, "duration": float(run.log.finished_us.max()) / 1e6,
            "completed": len(trace), "total_input_tokens": int(trace.prompt_tokens.sum()),
            "total_output_tokens": int(output.sum())}
    for name, values in (("ttft", ttft), ("tpot", tpot[output > 1])):
        made |= {f"mean_{name}_ms": 1e3 * values.mean(), f"median_{name}_ms": 1e3 * np.median(values),
                 f"p99_{name}_ms": 1e3 * np.percentile(values, 99)}
    if detailed:
        gaps = [[float(t)] * (int(o) - 1) for t, o in zip(tpot, output, strict=True)]
        made |= {"input_lens": trace.prompt_tokens.tolist(), "output_lens": output.tolist(), "ttfts": ttft.tolist(), "itls": gaps,
                 "errors": [""] * len(trace)}
        if starts:
            made["start_times"] = (1000.5 + run.arrival_us / 1e6).tolist()
    return made


class Journal(Observer):
    """The state after every step, kept in full.

    (time, running, waiting, used blocks, prompt tokens, those computed, generated tokens, recent queries, recent hits)
    """

    def started(self, allocator, scheduler):
        self.allocator, self.scheduler = allocator, scheduler
        self.rows = [(-1 << 60, 0, 0, 0, 0, 0, 0, 0, 0)]
        self.recent = deque()
        self.known, self.prompt, self.computed, self.generated = {}, 0, 0, 0
        self.counted = (0, 0, 0)
        self.sampling = []

    def scheduled(self, now_us, step):
        self.waiting = len(self.scheduler.waiting)     # whoever arrives while the step is under way is counted by the next one
        for request, hit, _, resumed, _ in step.admitted:
            if not resumed:
                self.known[request] = [hit, 0]
        self.tokens = [request for request, computed, target in zip(
            self.scheduler.running.request.tolist(), self.scheduler.running.computed.tolist(),
            self.scheduler.running.target.tolist(), strict=True) if computed >= target]

    def updated(self, now_us, finished):
        for request in self.tokens:                    # nobody waits for the budget in these runs
            if self.known[request][1] == 0:
                self.prompt += int(self.scheduler.demand.prompt[request])
                self.computed += int(self.scheduler.demand.prompt[request]) - self.known[request][0]
            self.known[request][1] += 1
            self.generated += 1
        stats = self.allocator.stats
        if stats is not None and stats.requests > self.counted[0]:
            now = (stats.requests, stats.query_tokens, stats.hit_tokens)
            self.recent.append(tuple(a - b for a, b in zip(now, self.counted, strict=True)))
            self.counted = now
            while len(self.recent) > 1 and sum(r[0] for r in self.recent) > 1000:
                self.recent.popleft()
        pool = self.allocator.pool
        self.rows.append((now_us, len(self.scheduler.running), self.waiting, int((pool.ref[1:] > 0).sum()),
                          self.prompt, self.computed, self.generated, sum(r[1] for r in self.recent),
                          sum(r[2] for r in self.recent)))

    def at(self, time_us):
        """What was said last at this instant."""
        return next(row for row in reversed(self.rows) if row[0] <= time_us)


LINE = ("(APIServer pid=1) INFO {own} [loggers.py:271] Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation "
        "throughput: {generated:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: "
        "{usage:.1f}%, Prefix cache hit rate: {hit:.1f}%")


def log_lines(journal, blocks, first_us, last_us, every_us=10_000_000, stamp=True):
    """Periodic lines as the server prints them; ``first_us`` is when the first one comes, on the clock of the simulation."""
    started, lines = datetime(2026, 5, 12, 8, 1, 39, 331_095, tzinfo=UTC), []
    for time in range(first_us, last_us, every_us):
        now, before = journal.at(time), journal.at(time - every_us)
        made, seconds = [b - a for a, b in zip(before, now, strict=True)], every_us / 1e6
        wall = started + timedelta(microseconds=time - first_us)
        text = LINE.format(own=wall.strftime("%m-%d %H:%M:%S"), prompt=made[5] / seconds, generated=made[6] / seconds,
                           running=now[1], waiting=now[2], usage=100 * now[3] / (blocks - 1), hit=100 * now[8] / max(now[7], 1))
        lines.append((f"{wall.isoformat().replace('+00:00', 'Z')} " if stamp else "") + text)
    return lines


CONFIG = ("model='meta-llama/{model}-Instruct', speculative_config=None, dtype=torch.bfloat16, max_seq_len=4096, "
          "tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, "
          "seed=0, enable_prefix_caching=True, enable_chunked_prefill=True")
CORE = "(EngineCore_DP0 pid=41) INFO 05-12 08:00:"
START_UP = ("(APIServer pid=1) INFO 05-12 08:00:01 [utils.py:233] non-default args: {{'model': 'meta-llama/{model}-Instruct', "
            "'max_model_len': 4096}}\n"
            + CORE + "09 [core.py:93] Initializing a V1 LLM engine (v0.33.0) with config: " + CONFIG + "\n"
            + CORE + "31 [gpu_worker.py:298] Available KV cache memory: {gib:.2f} GiB\n"
            + CORE + "31 [kv_cache_utils.py:1087] GPU KV cache size: {tokens:,} tokens, Maximum concurrency for 4,096 tokens per "
            "request: {concurrency:.2f}x\n")


def start_up(blocks=BLOCKS):
    """The start of such a server's log: 2 MiB a block, 256 blocks a request of 4,096 tokens."""
    return START_UP.format(model=MODEL, gib=blocks / 512, tokens=blocks * 16, concurrency=blocks / 256)


def metrics(run, ttft, tpot, blocks=BLOCKS, label='engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'):
    """A page scraped when all has ended."""
    several, output, log = run.demand.output > 1, run.demand.output, run.log
    queue = (log.admitted_us - run.arrival_us) / 1e6
    values = {"num_requests_running": 0.0, "num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0,
              "prefix_cache_queries_total": run.allocator.stats.query_tokens,
              "prefix_cache_hits_total": run.allocator.stats.hit_tokens,
              "num_preemptions_total": run.preemptions, "prompt_tokens_total": run.demand.prompt.sum(),
              "generation_tokens_total": output.sum(),
              "time_to_first_token_seconds_sum": ttft.sum(), "time_to_first_token_seconds_count": len(ttft),
              "request_time_per_output_token_seconds_sum": tpot[several].sum(),
              "request_time_per_output_token_seconds_count": several.sum(),
              "request_queue_time_seconds_sum": queue.sum(), "request_queue_time_seconds_count": len(queue),
              "e2e_request_latency_seconds_sum": ((log.finished_us - run.arrival_us) / 1e6).sum(),
              "e2e_request_latency_seconds_count": len(queue)}
    lines = [f"# TYPE vllm:{name} gauge\nvllm:{name}{{{label}}} {float(value)!r}" for name, value in values.items()]
    lines += [f'vllm:request_success_total{{{label},finished_reason="{reason}"}} {float(count)}'
              for reason, count in (("length", len(queue)), ("stop", 0))]
    lines.append(f'vllm:cache_config_info{{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",'
                 f'gpu_memory_utilization="0.9",num_gpu_blocks="{blocks}"}} 1.0')
    return "\n".join(["# HELP python_info x", 'python_info{version="3.12"} 1.0', *lines]) + "\n"


def written(path, made):
    """A JSON file."""
    path.write_text(json.dumps(made))
    return path
