"""The public traces behind the length profiles: how to read the lengths of each, with zero lengths left out.

Plain reading, beside the readers and not with them: what a profile was fitted to can be had in two ways.
"""

from __future__ import annotations

import ast
import csv
import gzip
import json
from pathlib import Path

import numpy as np

SERVEGEN_REQUESTS = 200_000                            # a distribution is turned into that many requests


def opened(path: Path):
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8", newline="")


def columns(path: Path, prompt: str, output: str):
    with opened(path) as file:
        return [(int(row[prompt]), int(row[output])) for row in csv.DictReader(file)]


def lines(path: Path):
    with opened(path) as file:
        rows = [json.loads(line) for line in file if line.strip()]
    return [(row["input_length"], row["output_length"]) for row in rows]


def servegen(folder: Path):
    """Both marginals of the clients in a folder, each 6-hour window weighted by its requests (rate x 600 s)."""
    pooled: dict[str, dict[int, float]] = {"input_tokens": {}, "output_tokens": {}}
    for path in sorted(folder.glob("*-dataset.json.gz")):
        with opened(path.with_name(path.name.replace("dataset.json", "trace.csv"))) as file:
            rates = [(float(start), float(rate)) for start, rate, *_ in csv.reader(file)]
        with opened(path) as file:
            windows = {int(float(start)): window for start, window in json.load(file).items()}
        for start, window in windows.items():
            requests = sum(rate * 600 for at, rate in rates if start <= at < start + 21_600)
            for name, into in pooled.items():
                for tokens, share in ast.literal_eval(window[name]).items():
                    into[int(tokens)] = into.get(int(tokens), 0.0) + share * requests
    return list(zip(*(spread(pooled[name]) for name in pooled), strict=True))


def spread(weights: dict[int, float]) -> list[int]:
    """Lengths at SERVEGEN_REQUESTS even shares of a distribution."""
    lengths = np.array(sorted(length for length in weights if length > 0))
    shares = np.cumsum([weights[length] for length in lengths.tolist()])
    middles = (np.arange(SERVEGEN_REQUESTS) + 0.5) / SERVEGEN_REQUESTS * shares[-1]
    return lengths[np.searchsorted(shares, middles)].tolist()


def table(file: str, prompt: str, output: str):
    return lambda folder: columns(folder / file, prompt, output)


def json_lines(file: str):
    return lambda folder: lines(folder / file)


def apex(kind: str):
    return table(f"apex/llama_{kind}_025.lengths.csv", "context_tokens", "generated_tokens")


def clients(kind: str):
    return lambda folder: servegen(folder / "servegen" / kind)


LENGTHS = {
    "agent-coding": table("kv-cache-tester/requests.csv.gz", "in_tokens", "out_tokens"),
    "agent-magagent": json_lines("lmcache-agent/magagent.cl100k.blk16.jsonl.gz"),
    "alpaca-demo": table("alpaca-demo/alpaca_en_demo.cl100k.lengths.csv", "prompt_tokens", "output_tokens"),
    "apex-creation": apex("creation"),
    "apex-lmsys": apex("lmsys"),
    "apex-summarization": apex("summarization"),
    "arxiv-summarization": table("vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
                                 "num_prefill_tokens", "num_decode_tokens"),
    "burstgpt-head": table("burstgpt/BurstGPT_1.first400.csv", "Request tokens", "Response tokens"),
    "llmservingsim-sharegpt": json_lines("llmservingsim/sharegpt-llama-3.1-8b-300-sps10.blk16.jsonl.gz"),
    "mooncake-conversation": json_lines("mooncake/conversation_trace.jsonl"),
    "ragpulse": json_lines("ragpulse/0_trace.jsonl"),
    "servegen-deepseek-r1-top4": clients("reason/deepseek-r1"),
    "servegen-mid-top4": clients("language/m-mid"),
    "sharegpt-8k": table("etalon/sharegpt_8k_filtered_stats_llama2_tokenizer.csv", "num_prefill_tokens", "num_decode_tokens"),
    "vtc-arena": table("vtc-arena/real_trace.lengths.csv", "prompt_tokens", "output_tokens"),
}


POINTS = {"agent-coding": 501, "servegen-deepseek-r1-top4": 1001, "servegen-mid-top4": 501}  # 201 elsewhere: long tails need more


def lengths_of(name: str, folder: Path):
    """Prompts and outputs of the trace of a profile, two int64 arrays; requests with a zero length are left out."""
    both = np.array(LENGTHS[name](folder), dtype=np.int64)
    both = both[(both > 0).all(axis=1)]
    return both[:, 0], both[:, 1]
