"""The server as its own log or metrics page describes it, as words for the command's parser; what is typed goes before them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from experiments.calibration.metrics_page import MetricsPage
from experiments.calibration.server_log import ServerLog
from experiments.deployment import DTYPES, FLOATS, KV_DTYPES
from sim.models.model_config import load_model
from sim.sizing.versions import parse_version
from sim.sizing.weights import weight_format
from workloads.messages import show
from workloads.request import InputError

WHOLE = {"max_model_len": "max-model-len", "max_seq_len": "max-model-len", "tensor_parallel_size": "tensor-parallel-size",
         "pipeline_parallel_size": "pipeline-parallel-size", "max_num_seqs": "max-num-seqs",
         "max_num_batched_tokens": "max-num-batched-tokens", "block_size": "block-size",
         "long_prefill_token_threshold": "long-prefill-token-threshold"}
SWITCHES = {"enable_prefix_caching": "enable-prefix-caching", "enable_chunked_prefill": "enable-chunked-prefill",
            "chunked_prefill_enabled": "enable-chunked-prefill", "async_scheduling": "async-scheduling",
            "enforce_eager": "enforce-eager"}
MODELS = ("model", "model_tag", "served_model_name")
NOT_MODELLED = {"speculative_config": "speculative decoding", "data_parallel_size": "several replicas",
                "decode_context_parallel_size": "decode-context parallelism", "kv_transfer_config": "a KV connector",
                "enable_lora": "LoRA adapters"}


def words_of_log(log: ServerLog, notes: list[str]) -> list[str]:
    """Options that the log's configuration stands for; what cannot be used is named in a note."""
    settings = log.settings
    words = [*_model(settings, notes), *_version(log.version, notes)]
    if "max_model_len" not in settings and "max_seq_len" not in settings and "max_model_len" in log.facts:
        words.append(f"--max-model-len={int(log.facts['max_model_len'][-1])}")
    if "max_num_batched_tokens" not in settings and "chunk_tokens" in log.facts:
        words.append(f"--max-num-batched-tokens={int(log.facts['chunk_tokens'][-1])}")
    for name, what in NOT_MODELLED.items():
        if settings.get(name, "None") not in ("None", "False", "1"):
            notes.append(f"the log says {name}: {what} is not modelled")
    return [*words, *_plain(settings), *_formats(settings, notes)]


def words_of_page(page: MetricsPage, notes: list[str]) -> list[str]:
    """The same of a metrics page: its model and its pool."""
    pool = page.together().pool
    words = _model({"model": page.models[0]} if page.models else {}, notes)
    words += _plain({name: pool[name] for name in ("block_size", "enable_prefix_caching") if name in pool})
    words += _formats({"kv_cache_dtype": pool.get("cache_dtype", "auto")}, notes)
    if re.fullmatch(r"[1-9]\d{0,11}", pool.get("num_gpu_blocks", "")):
        words.append(f"--num-gpu-blocks-override={pool['num_gpu_blocks']}")
    if _share(pool.get("gpu_memory_utilization", "")):
        words.append(f"--gpu-memory-utilization={pool['gpu_memory_utilization']}")
    return words


def given(words: list[str], argv: list[str]) -> tuple[list[str], list[str]]:
    """The words whose options are not typed, and those whose are: typed ones count."""
    short = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size"}
    typed = {short.get(word.split("=")[0], word.split("=")[0]).replace("--no-", "--") for word in argv if word.startswith("-")}
    if "--available-kv-gib" in typed:
        typed.add("--num-gpu-blocks-override")
    kept = [word for word in words if word.split("=")[0].replace("--no-", "--") not in typed]
    return kept, [word for word in words if word not in kept]


def _model(settings: Mapping[str, str], notes: list[str]) -> list[str]:
    names = [settings[name] for name in MODELS if settings.get(name, "None") != "None"]
    for name in names:
        try:
            load_model(name)
        except InputError:
            continue
        return [f"--model={name}"]
    if names:
        notes.append(f"the model {show(names[0])} is not in the catalogue: --model NAME or a config.json")
    return []


def _version(version: str | None, notes: list[str]) -> list[str]:
    if version is None:
        return []
    try:
        parse_version(version)
    except InputError:
        notes.append(f"vLLM {show(version)}: the rules of such a version are not known; --vllm-version says whose to follow")
        return []
    return [f"--vllm-version={version}"]


def _plain(settings: Mapping[str, str]) -> list[str]:
    """Whole numbers and switches; where two names stand for one option the first counts."""
    words: dict[str, str] = {}
    for name, option in WHOLE.items():
        if re.fullmatch(r"[1-9]\d{0,11}", settings.get(name, "")):
            words.setdefault(option, f"--{option}={settings[name]}")
    for name, option in SWITCHES.items():
        if settings.get(name) in ("True", "False"):
            words.setdefault(option, f"--{option}" if settings[name] == "True" else f"--no-{option}")
    if _share(settings.get("gpu_memory_utilization", "")):
        words["util"] = f"--gpu-memory-utilization={settings['gpu_memory_utilization']}"
    return list(words.values())


def _share(text: str) -> bool:
    return re.fullmatch(r"0?\.\d{1,9}|1(?:\.0+)?", text) is not None and float(text) > 0


def _formats(settings: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    dtype = settings.get("dtype", "auto").removeprefix("torch.")
    if DTYPES.get(dtype, dtype) in FLOATS:
        yield f"--dtype={dtype}"
    cache = settings.get("kv_cache_dtype", "auto").removeprefix("torch.")
    if cache in KV_DTYPES:
        yield f"--kv-cache-dtype={cache}"
    elif cache not in ("auto", "None"):
        notes.append(f"kv_cache_dtype {show(cache)} is not known: --kv-cache-dtype")
    method = settings.get("quantization", "None")
    if method == "None":
        return
    try:
        weight_format(method)
        yield f"--quantization={method}"
    except InputError:
        notes.append(f"quantization {show(method)} is taken as the model is published, unless --quantization says how")
