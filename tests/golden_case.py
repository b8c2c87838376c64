"""Recorded cases of the real vLLM scheduler as traces, and an observer that writes down the same events as the recorder."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np

from sim.config import SimConfig
from sim.engine import Engine
from sim.run import Observer
from sim.scheduler import SchedulerConfig
from workloads.request import ContentIds, Trace

GOLDEN = Path(__file__).parent / "data" / "golden"


def load(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


def token_ids(request):
    """Tokens of prompt and output, each a (stream, index); equal tokens are equal pairs."""
    if "prompt" in request:
        prompt = [(stream, i) for stream, n in request["prompt"] for i in range(n)]
    else:
        spans = [("hash", h) for h in request["hash_ids"] for _ in range(request.get("hash_block", 512))]
        prompt = spans[:request["input_length"]]
    return prompt, [("out:" + request["id"], i) for i in range(request["output"])]


def to_trace(requests, block_size):
    """Sorted by arrival step; content ids of one block each, covering prompt and output; a step is a microsecond."""
    requests = sorted(requests, key=lambda r: r["arrive"])
    ids, starts, known = [], [0], {}
    prompts, outputs = [], []
    for request in requests:
        prompt, output = token_ids(request)
        tokens = prompt + output
        parent = -1 if "salt" not in request else known.setdefault(("salt", request["salt"]), len(known))
        for k in range(len(tokens) // block_size):
            parent = known.setdefault((parent, tuple(tokens[k * block_size:(k + 1) * block_size])), len(known))
            ids.append(parent)
        starts.append(len(ids))
        prompts.append(len(prompt))
        outputs.append(len(output))
    return requests, Trace(
        "case", np.array(prompts), np.array(outputs), arrival_us=np.array([r["arrive"] for r in requests]),
        content=ContentIds(np.array(ids, np.int64), np.array(starts), block_size, cover_output=True))


class OneStepOneMicrosecond:
    def duration_us(self, load):
        return 1 if isinstance(load.new_tokens, int) else np.ones(len(load.new_tokens), np.int64)

    def describe(self):
        return "one microsecond a step"


def sim_config(config, longest_jump=1):
    return SimConfig(
        num_blocks=config["num_blocks"], block_size=config["block_size"], max_model_len=config["max_model_len"],
        scheduler=SchedulerConfig(
            max_num_seqs=min(config["max_num_seqs"], config["max_num_batched_tokens"]),
            max_num_batched_tokens=config["max_num_batched_tokens"],
            enable_chunked_prefill=config.get("enable_chunked_prefill", True),
            long_prefill_token_threshold=config.get("long_prefill_token_threshold", 0),
            reserve_full_isl=config.get("reserve_full_isl", True), watermark=config.get("watermark", 0.0)),
        step_time=OneStepOneMicrosecond(), refuse_impossible=False, longest_jump=longest_jump)


class Recorder(Observer):
    """Events and rows in the recorder's format."""

    def __init__(self, names, full):
        self.names, self.full = names, full
        self.events, self.rows, self.cached, self.lengths = [], [], {}, {}

    def started(self, allocator, scheduler):
        self.allocator, self.scheduler = allocator, scheduler
        self.pool = allocator.pool
        self.evicted = []
        original = self.pool._evict

        def watched(blocks):
            before = self.pool.hash_of[blocks] >= 0
            self.evicted += blocks[before].tolist()
            original(blocks)
        self.pool._evict = watched

    def scheduled(self, now, step):
        allocator, running = self.allocator, self.scheduler.running
        admitted = {a[0] for a in step.admitted}
        self.events += [["preempt", now, self.names[r]] for r, _ in step.preempted]
        if self.full:
            self.events += [["evict", now, b] for b in self.evicted]
        self.evicted.clear()
        tables = {int(r): allocator.table(int(h)).tolist()
                  for r, h in zip(running.request, running.handle, strict=True)}
        for request, hit, new, resumed, _ in step.admitted:
            event = ["resume" if resumed else "admit", now, self.names[request], hit, new]
            self.events.append([*event, tables[request]] if self.full else event)
            self.cached.setdefault(self.names[request], []).append(hit)
        for request, table in tables.items():
            grown = table[self.lengths.get(request, 0):] if request not in admitted else []
            if grown and self.full:
                self.events.append(["grow", now, self.names[request], grown])
        self.lengths = {r: len(t) for r, t in tables.items()}
        self.row = [now, len(running), len(self.scheduler.waiting), step.new_tokens, self.pool.free]
        if not step.new_tokens and not len(running):
            self.end_row()

    def updated(self, now, finished):
        self.events += [["finish", self.row[0], self.names[r]] for r in finished]
        self.end_row()

    def end_row(self):
        if not self.rows or self.rows[-1][0] != self.row[0]:
            self.rows.append([*self.row, self.pool.free, zlib.crc32(",".join(map(str, self.pool.free_queue())).encode())])


def replay(case, longest_jump=1):
    requests, trace = to_trace(case["requests"], case["config"]["block_size"])
    recorder = Recorder([r["id"] for r in requests], case["config"]["detail"] == "full")
    name = "paged-prefix" if case["config"]["enable_prefix_caching"] else "paged"
    engine = Engine(trace, sim_config(case["config"], longest_jump), name,
                    observers=[recorder] if longest_jump == 1 else [])
    return engine.run(), recorder
