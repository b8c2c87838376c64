"""What real servers printed at start-up, row by row: tokens, blocks, concurrency, CPU blocks, and the memory one request needs.

A row says how much memory was left, to 0.01 GiB; so the tokens printed must lie between those of 0.005 GiB less and more,
give or take two blocks. ``READ`` says how a row is read where it does not name a model of the catalogue, or leaves out what
sets the number. Every row is checked, or listed with the reason why not.
"""

import json
from pathlib import Path

import pytest

from sim import kv_formula
from sim.models.model_config import load_model
from sim.sizing.deployment import Deployment
from sim.sizing.hardware import GIB
from sim.sizing.plan import plan
from sim.sizing.versions import NEWEST, parse_version
from sim.sizing.weights import Shards

ROWS = {row["id"]: row for row in map(json.loads, (Path(__file__).parent / "data" / "server_startup_logs.jsonl").open())}
SWAP = 4 * GIB                                         # the first engine's --swap-space

V0, ALL_PAGES, ALIGNED, GROUPS = {"version": "0.7.1"}, {"version": "0.19"}, {"version": "0.28"}, {"version": "0.20"}
FP8 = {"kv_cache_dtype": "fp8"}
READ = {
    "v014": ("MiniMax-M2", {}),
    "v016": ("Qwen3.6-27B", {**ALIGNED, "mtp_layers": 1, "num_speculative_tokens": 3}),
    "v017": ("gpt-oss-120b", ALL_PAGES),               # all pages counted: blocks // 2 groups x 16
    "v022": ("Qwen3.5-122B-A10B", {**FP8, **GROUPS, "mtp_layers": 1, "num_speculative_tokens": 1, "enable_prefix_caching": True}),
    "v023": ("Qwen3.5-122B-A10B", {**FP8, **GROUPS, "enable_prefix_caching": True}),
    "v026": ("Qwen2.5-VL-7B", V0), "v028": ("Phi-4-mini", V0), "v029": ("Qwen3-4B", V0), "v031": ("Qwen2.5-0.5B", V0),
    "v001": ("Llama-3.1-8B-Instruct", V0), "v002": ("Llama-3.1-8B-Instruct", V0), "v032": ("Qwen2.5-1.5B-Instruct", V0),
    "v034": ("Llama-3.2-3B", V0), "v047": ("Qwen2.5-Coder-0.5B", {}), "v058": ("Qwen3-8B", {}),
    "v061": ("gemma-3-27b-it", ALL_PAGES), "v065": ("Llama-3.3-70B", {}),
    "v067": ("Qwen3.6-27B", {**ALIGNED, "dtype": "float16", "block_size": 16, "tensor": 2}),
    "v070": ("GLM-4.7", FP8), "v073": ("Llama-3.1-70B", {}), "v074": ("GLM-5", {}),
    "v076": ("Qwen3-32B", {"mtp_layers": 1}),          # the one-layer drafter keeps what a layer does
    "v079": ("Qwen3-30B-A3B", {}), "v082": ("Qwen3-0.6B", {}), "v083": ("Llama-3.3-70B", {}),
    "v086": ("Qwen3.5-27B", {**FP8, **GROUPS, "block_size": 16, "enable_prefix_caching": True}),
    "v089": ("Qwen3-VL-8B", {}), "v091": ("Llama-3.1-8B", {}), "v094": ("Qwen3-8B", {}), "v097": ("Llama-3.1-8B", {}),
    "v104": ("Qwen3.5-9B", GROUPS), "v106": ("MiniMax-M2.5", {}), "v107": ("Qwen3-8B", {}), "v112": ("Qwen3-14B", {}),
    "v113": ("Qwen3-30B-A3B", FP8),
    "v115": ("Qwen3.6-27B", {**FP8, **ALIGNED, "block_size": 64}),     # its kernel takes blocks of 64: 1,600 tokens
    "v137": ("DeepSeek-R1", {"version": "0.7.3"}), "v142": ("DeepSeek-V2-Lite", {"version": "0.7.3"}),    # padded rows
    "v139": ("Qwen2.5-0.5B", V0), "v140": ("Qwen2.5-0.5B", V0), "v143": ("opt-125m", V0), "v145": ("opt-125m", V0),
    "v146": ("opt-1.3b", V0), "v151": ("gemma-3-1b-it", ALL_PAGES),
    "v161": ("GLM-5.1", {**FP8, "mtp_layers": 1}),     # as its note reads it
    "v163": ("Qwen3.6-27B", {**FP8, **ALIGNED, "block_size": 16, "mtp_layers": 1, "num_speculative_tokens": 3}),
}
EXCEPTIONS = {
    "v004": "one worker's memory is pasted beside the smallest worker's tokens",
    "v055": "a 64 GB card: no block size and no mode of its states give this number; v056, the same model, is exact",
}
ELSEWHERE = {
    "v005": "SGLang", "v007": "refused", "v011": "available memory only", "v013": "blocks without memory",
    "v019": "concurrency only", "v025": "a connector's blocks", "v037": "nothing left", "v038": "full multi-head caches of old",
    "v040": "refused", "v041": "refused", "v046": "TensorRT-LLM", "v049": "SGLang", "v050": "SGLang",
    "v092": "available memory in whole GiB", "v103": "concurrency only", "v152": "weights only",
    **dict.fromkeys(("v155", "v157", "v158"), "breakdown"),
    **dict.fromkeys(("v008", "v010", "v127", "v128", "v130", "v131", "v133", "v134", "v136", "v148", "v149"), "CPU blocks"),
}
UNREADABLE = {
    "v020": "DeepSeek-V4's compressed layers", "v044": "DeepSeek-V4", "v062": "DeepSeek-V4", "v064": "DeepSeek-V4",
    "v068": "DeepSeek-V4", "v071": "DeepSeek-V4", "v052": "tokens without memory", "v053": "tokens without memory",
    "v059": "the drafter's layers of this Gemma 4 are not in its record", "v160": "no record of this Gemma 4",
    "v164": "the model is not named", "v085": "tested with the model's own record",
}


def worked(row, gib_more=0.0):
    name, given = READ.get(row["id"], (row.get("catalog_name"), {}))
    given, engine = dict(given), row.get("engine_version") if row["engine"] == "vllm" else None
    version = given.pop("version", None) or (engine and engine.split("+")[0])
    shards = Shards(given.pop("tensor", row.get("tp", 1)), mtp_layers=given.pop("mtp_layers", row.get("mtp_layers", 0)))
    stated = row.get("kv_cache_dtype", "auto").removesuffix(" (inferred)")
    settings = {"kv_cache_dtype": None if stated == "auto" else stated, "block_size": row.get("block_size", 16),
                "max_model_len": row.get("max_model_len"), "decode_context_parallel_size": row.get("dcp", 1),
                "version": parse_version(version) if version else NEWEST, **given}
    return plan(Deployment(load_model(name), shards=shards, available_kv_gib=row["available_kv_gib"] + gib_more, **settings))


TOKEN_ROWS = [i for i, row in ROWS.items() if i in READ or "catalog_name" in row]


@pytest.mark.parametrize("id_", [i for i in TOKEN_ROWS if i not in EXCEPTIONS])
def test_tokens_within_the_rounding_of_the_printed_memory(id_):
    row = ROWS[id_]
    least, most = worked(row, -0.005), worked(row, 0.005)
    slack = 2 * least.groups[0].caches[0].block_size * row.get("dcp", 1)
    printed = row.get("kv_tokens") or row["num_gpu_blocks"] * row.get("block_size", 16)
    assert least.report.kv_tokens - slack <= printed <= most.report.kv_tokens + slack
    if "max_concurrency" in row:
        assert round(least.report.max_concurrency, 2) - 0.01 <= row["max_concurrency"] <= most.report.max_concurrency + 0.01
    if "bytes_per_token" in row:
        assert worked(row).kv_bytes_per_token == row["bytes_per_token"]


def test_the_listed_exceptions_are_exceptions():
    for id_ in EXCEPTIONS:
        row = ROWS[id_]
        assert not worked(row, -0.005).report.kv_tokens <= row["kv_tokens"] <= worked(row, 0.005).report.kv_tokens


def test_every_row_is_checked_or_listed():
    assert set(TOKEN_ROWS) | set(ELSEWHERE) | set(UNREADABLE) == set(ROWS)
    assert len(TOKEN_ROWS) == 56


@pytest.mark.parametrize("id_", [i for i, row in ROWS.items() if "num_cpu_blocks" in row and "bytes_per_token" in row])
def test_cpu_blocks_of_the_first_engine(id_):
    row = ROWS[id_]
    swap = 6 * GIB if "swap 6 GiB" in row.get("note", "") else SWAP
    block = kv_formula.kv_bytes_per_block(row["bytes_per_token"], row.get("block_size", 16))
    assert swap // block == row["num_cpu_blocks"]


@pytest.mark.parametrize(("id_", "name", "tensor"), [
    ("v008", "Llama-3-70B", 2), ("v010", "Llama-2-7B", 1), ("v037", "Qwen2.5-7B", 1), ("v127", "Llama-2-70B", 2),
    ("v128", "Llama-2-13b", 1), ("v131", "Llama-3-8B", 1), ("v133", "Qwen2.5-7B-Instruct", 1), ("v130", "LLaMA-65B", 2),
    ("v134", "Mixtral-8x7B-Instruct", 2), ("v136", "DeepSeek-R1", 8), ("v148", "Llama-2-13b", 4), ("v149", "Qwen3-30B-A3B", 1)])
def test_bytes_a_token_of_rows_without_tokens(id_, name, tensor):
    assert load_model(name).kv_bytes_per_token(2, tensor) == ROWS[id_]["bytes_per_token"]


def test_memory_that_one_request_needs():
    """v007: 10.12 GiB for 221,000 tokens in fp8, 5.59 there; v041: all 48 layers of Llama 4 kept in full, eight GPUs."""
    made = plan(Deployment(load_model("Qwen3-30B-A3B"), kv_cache_dtype="fp8", available_kv_gib=5.59, max_model_len=221_000))
    assert not made.fits
    assert round(made.report.needed_bytes / GIB, 2) == 10.12
    made = plan(Deployment(load_model("Llama-4-Scout-17B-16E"), shards=Shards(8), available_kv_gib=9.97, max_model_len=1_048_576,
                           version=parse_version("0.10.2")))
    assert [len(group.layers) for group in made.groups] == [48]
    assert made.report.needed_bytes == 48 * 512 * 1_048_576 and not made.fits      # one KV head of 128 a GPU: 512 bytes


def test_other_engines_agree_on_bytes():
    """v005: SGLang prints 8.23 GiB of K and as much V for 367,404 tokens; v050: 65.49 GiB with the index, 54.52 without."""
    half = load_model("Qwen3-235B-A22B").kv_bytes_per_token(2, 4) / 2
    assert round(ROWS["v005"]["kv_tokens"] * half / GIB, 2) == 8.23
    sparse = load_model("DeepSeek-V3.2")
    tokens = ROWS["v050"]["kv_tokens"]
    assert sparse.kv_bytes_per_token(1, 8) == 61 * (656 + 132)
    assert round(tokens * 61 * 656 / GIB, 2) == 54.51 and round(tokens * sparse.kv_bytes_per_token(1, 8) / GIB, 1) == 65.5


def test_a_connector_costs_whole_blocks_and_concurrency_is_tokens_over_length():
    assert (45_088 - 44_832) % 16 == 0                 # v025
    row = ROWS["v103"]                                 # 0.26: int(concurrency x max_model_len)
    blocks = row["kv_tokens"] // 16
    made = plan(Deployment(load_model("Qwen3-1.7B"), num_gpu_blocks_override=blocks, max_model_len=row["max_model_len"],
                           version=parse_version(row["engine_version"])))
    assert (made.report.kv_tokens, round(made.report.max_concurrency, 2)) == (row["kv_tokens"], row["max_concurrency"])
