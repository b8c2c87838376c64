"""Everything that is built from vLLM's classes. No other module of the recorder needs vLLM at run time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workload import Entry

# Both are read when vLLM is imported.
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request

# The smallest model vLLM accepts; its layers are never built, the cache groups are given by the case.
TINY_MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 10_000_000,
    "torch_dtype": "float16",
}


def version() -> str:
    """Return the version of the vLLM that records."""
    import vllm

    return vllm.__version__


def vllm_config(config: dict[str, Any]) -> VllmConfig:
    """Translate the `config` of a case."""
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(TINY_MODEL), encoding="utf-8")
        model = ModelConfig(model=folder, skip_tokenizer_init=True, dtype="float16", max_model_len=config["max_model_len"])
    cache = CacheConfig(block_size=config["block_size"], enable_prefix_caching=config["enable_prefix_caching"])
    cache.num_gpu_blocks = config["num_blocks"]
    same_name = (
        "max_num_batched_tokens",
        "max_num_seqs",
        "max_model_len",
        "enable_chunked_prefill",
        "long_prefill_token_threshold",
        "watermark",
        "policy",
        "async_scheduling",
    )
    scheduler = SchedulerConfig(
        is_encoder_decoder=False,
        scheduler_reserve_full_isl=config["reserve_full_isl"],
        **{name: config[name] for name in same_name},
    )
    device = DeviceConfig(device="cpu")
    return VllmConfig(model_config=model, cache_config=cache, scheduler_config=scheduler, device_config=device)


def cache_groups(config: dict[str, Any]) -> KVCacheConfig:
    """Build the cache groups of a case, one layer each.

    Kinds are ``full``, ``sliding`` (with `window`) and ``chunked_local`` (with `chunk`).
    """
    import torch
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        SlidingWindowSpec,
    )

    shape = {"block_size": config["block_size"], "num_kv_heads": 1, "head_size": 64, "dtype": torch.float16}
    makers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "full": lambda group: FullAttentionSpec(**shape),
        "sliding": lambda group: SlidingWindowSpec(sliding_window=group["window"], **shape),
        "chunked_local": lambda group: ChunkedLocalAttentionSpec(attention_chunk_size=group["chunk"], **shape),
    }
    specs = [makers[group["kind"]](group) for group in config["groups"]]
    groups = [KVCacheGroupSpec([f"layer.{index}"], spec) for index, spec in enumerate(specs)]
    return KVCacheConfig(num_blocks=config["num_blocks"], kv_cache_tensors=[], kv_cache_groups=groups)


def build_scheduler(config: dict[str, Any]) -> Scheduler:
    """Make the scheduler that decides: `AsyncScheduler` or `Scheduler`."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.structured_output import StructuredOutputManager

    settings = vllm_config(config)
    return (AsyncScheduler if config["async_scheduling"] else Scheduler)(
        vllm_config=settings,
        kv_cache_config=cache_groups(config),
        structured_output_manager=StructuredOutputManager(settings),
        block_size=config["block_size"],
        log_stats=True,
    )


def request_maker(config: dict[str, Any]) -> Callable[[Entry], Request]:
    """Return a function that turns entries of the workload into vLLM's requests."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    hasher = None
    if config["enable_prefix_caching"]:
        digest = get_hash_fn_by_name("sha256")
        init_none_hash(digest)
        hasher = get_request_block_hasher(config["block_size"], digest)

    def make(entry: Entry) -> Request:
        return Request(
            request_id=entry.rid,
            prompt_token_ids=list(entry.prompt),
            sampling_params=SamplingParams(max_tokens=entry.output, ignore_eos=True),
            pooling_params=None,
            arrival_time=float(entry.arrive),
            cache_salt=entry.salt,
            priority=entry.priority,
            block_hasher=hasher,
        )

    return make


def runner_output(scheduled: SchedulerOutput, sampled: dict[str, list[int]]) -> ModelRunnerOutput:
    """Play the model runner: `sampled` has the new tokens of each scheduled request."""
    from vllm.v1.outputs import ModelRunnerOutput

    order = list(scheduled.num_scheduled_tokens)
    return ModelRunnerOutput(
        req_ids=order,
        req_id_to_index={rid: index for index, rid in enumerate(order)},
        sampled_token_ids=[sampled[rid] for rid in order],
    )
