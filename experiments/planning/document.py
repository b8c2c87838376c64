"""The plan as one object: what fits, the budget's terms, the groups, the inverse, the knobs, the warnings."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from experiments.planning.checks import plan_checks
from experiments.version import VERSION
from sim.models.mixers import Attention
from sim.models.model_config import UNKNOWN_TYPE
from sim.sizing import inverse, rules
from sim.sizing.budget import FULL_OF_WEIGHTS
from sim.sizing.deployment import serving
from sim.sizing.hardware import GIB, known_gpus
from sim.sizing.plan import Plan, longest_that_fits, plan
from sim.sizing.versions import parse_version
from sim.sizing.weights import format_of
from workloads.request import InputError

JsonObject = dict[str, Any]
MOST_TOKENS = 1 << 40
GENERATIONS = ("0.8.5", "0.10.2", "0.13.0", "0.20.2", "0.25.1", "0.28.0", "0.33.0")     # each the last or first of a rule


def document(made: Plan, notes: list[str], named: bool = True) -> JsonObject:
    """The whole plan; ``named`` is whether a model was given, else nothing is said in bytes."""
    report, budget = made.report, made.budget
    return {
        "schema": 1, "pagedsim": VERSION, "vllm_version": str(made.deployment.version),
        "model": _model(made) if named else None, "gpu": _gpu(made), "config": _config(made),
        "kv_bytes_per_token": made.kv_bytes_per_token if named else None,
        "kv_bytes_per_block": made.kv_bytes_per_block if named else None,
        "kv_bytes_per_further_token": made.kv_bytes_per_further_token if named else None,
        "layer_groups": _groups(made) if named else [],
        "weights_gib": budget and budget.weights.gib, "activation_gib": budget and budget.activation.gib,
        "overhead_gib": budget and budget.overhead_gib,
        "available_kv_gib": made.available_bytes / GIB if named else None,
        "budget": [] if budget is None else [asdict(term) for term in budget.terms],
        "num_blocks": report.num_blocks, "kv_tokens": report.kv_tokens, "max_model_len": report.max_model_len,
        "max_concurrency": report.max_concurrency, "fits": made.fits, "refusal": _refusal(made) if named else _too_small(made),
        "log_lines": report.lines() if report.num_blocks > 0 else [],
        "concurrency_at": [{"tokens": n, "max_concurrency": x} for n, x in inverse.concurrency_at(made)],
        "by_version": by_version(made) if named else [],
        "inverse": _inverse(made) if named else None,
        "knobs": [asdict(knob) for knob in inverse.knobs(made)] if named else [],
        "rules_of_thumb": _rules(made) if named else None,
        "warnings": _warnings(made) if named else [], "notes": notes, "cost": None,
        "crosscheck": plan_checks(made, named),
    }


def _model(made: Plan) -> JsonObject:
    model = made.deployment.model
    try:
        weights = format_of(model, made.deployment.dtype).describe()
        parameters, active = model.parameters, model.active_parameters
    except InputError as error:                        # the pool is given: the plan does without
        weights, parameters, active = str(error), None, None
    row = None if model.latent is None else model.latent.kv_lora_rank + model.latent.qk_rope_head_dim
    return {"name": model.name, "source": model.source, "layers": model.layers, "attention_heads": model.attention_heads,
            "kv_heads": model.kv_heads, "head_dim": model.head_dim, "latent_width": row, "hidden_size": model.hidden_size,
            "parameters": parameters, "active_parameters": active, "max_position_embeddings": model.max_position_embeddings,
            "weights": weights, "kv_cache_dtype": made.deployment.kv_dtype}


def _gpu(made: Plan) -> JsonObject | None:
    gpu, shards = made.deployment.gpu, made.deployment.shards
    count = shards.tensor * shards.pipeline * shards.data
    if gpu is None:
        return None
    return {"name": gpu.name, "count": count, "memory_gib": gpu.memory_bytes / GIB, "memory_gb": gpu.memory_bytes / 1e9,
            "label_gb": gpu.label_gb, "source": gpu.source}


def _config(made: Plan) -> JsonObject:
    asked, settled = made.deployment, serving(made.deployment)
    return {
        "gpu_memory_utilization": settled.gpu_memory_utilization, "block_size": asked.block_size,
        "tensor_parallel_size": asked.shards.tensor, "pipeline_parallel_size": asked.shards.pipeline,
        "data_parallel_size": asked.shards.data, "decode_context_parallel_size": asked.decode_context_parallel_size,
        "enable_expert_parallel": asked.shards.expert_parallel, "mtp_layers": asked.shards.mtp_layers,
        "num_speculative_tokens": asked.num_speculative_tokens, "max_num_seqs": settled.max_num_seqs,
        "max_num_batched_tokens": settled.max_num_batched_tokens, "cpu_offload_gib": asked.cpu_offload_gib,
        "async_scheduling": asked.async_scheduling, "mamba_cache_mode": made.limits.state_mode if asked.has_states else None,
    }


def _groups(made: Plan) -> list[JsonObject]:
    """One entry for groups that look alike: layers, block, bytes, and what a request holds."""
    found: dict[Any, JsonObject] = {}
    for group in made.groups:
        kinds = dict.fromkeys((cache.kind, cache.reach) for cache in group.caches)
        sizes = tuple(dict.fromkeys(cache.page_bytes for cache in group.caches))
        key = (tuple(kinds), sizes, group.caches[0].block_size)
        entry = found.setdefault(key, {
            "kind": "+".join(kind for kind, _ in kinds), "reach_tokens": group.caches[0].reach, "groups": 0, "layers": 0,
            "block_size": group.caches[0].block_size, "page_bytes": list(sizes),
            "bytes_per_token_and_layer": list(dict.fromkeys(c.bytes_per_token for c in group.caches)),
            "blocks_per_request": group.request_blocks(made.limits)})
        entry["groups"] += 1
        entry["layers"] += len(group.layers)
    return list(found.values())


# ---------------------------------------------------------------------- answers
def _refusal(made: Plan) -> str | None:
    """Why a server of this does not start; None where it does."""
    if made.available_bytes <= 0:
        budget = made.budget
        over = "" if budget is None else (f": {budget.weights.gib:.2f} GiB weights, {budget.activation.gib:.2f} activations and "
                                          f"{budget.overhead_gib:.2f} overhead against {budget.total.gib:.2f} GiB usable")
        return f"no memory is left for the KV cache{over}"
    if made.fits:
        return None
    longest = made.report.longest
    return (f"one request of {made.report.max_model_len:,} tokens needs {made.report.needed_bytes / GIB:.2f} GiB of KV cache, "
            f"{made.available_bytes / GIB:.2f} GiB are available; "
            + (f"the longest that fits is {longest:,} tokens" if longest else "not one token fits"))


def _too_small(made: Plan) -> str | None:
    return None if made.fits else f"the pool holds no request of {made.report.max_model_len:,} tokens"


def by_version(made: Plan) -> list[JsonObject]:
    """What the report would say by the rules of other versions, with the same bytes; equal neighbours are one entry."""
    asked, found = made.deployment, []
    for text in GENERATIONS:
        memory = {"available_kv_gib": made.available_bytes / GIB} if made.budgets is not None else {}
        try:
            other = plan(replace(asked, version=parse_version(text), **memory)).report
        except InputError:                             # a version that could not serve such layers
            continue
        numbers = {"kv_tokens": other.kv_tokens, "max_concurrency": other.max_concurrency}
        if found and all(found[-1][name] == value for name, value in numbers.items()):
            found[-1]["versions"][1] = text
        else:
            found.append({"versions": [text, text], **numbers})
    return found


def _inverse(made: Plan) -> JsonObject:
    asked = made.deployment
    derived = made.budgets is not None
    card = inverse.smallest_card(asked, known_gpus()) if derived else None
    return {"longest_max_model_len": longest_that_fits(asked), "longest_in_memory": longest_that_fits(asked, MOST_TOKENS),
            "smallest_tensor_parallel_size": inverse.smallest_tensor_parallel(asked) if derived else None,
            "smallest_gpu": card and {"name": card.name, "memory_gib": card.memory_bytes / GIB, "label_gb": card.label_gb}}


def _rules(made: Plan) -> JsonObject | None:
    if made.budget is None:
        return None
    weights, needed = made.budget.weights.gib, made.report.needed_bytes / GIB
    least, most = rules.on_top_gib(weights, needed)
    model = made.deployment.model
    width = model.intermediate_size or 4 * model.hidden_size
    tokens = min(made.deployment.longest, 4096)
    return {"kv_of_one_request_gib": needed, "total_gib": rules.total_gib(weights, needed), "least_on_top_gib": least,
            "most_on_top_gib": most, "loading_gib": rules.loading_gib(weights), "activation_tokens": tokens,
            "all_layers_activation_gib": rules.all_layers_activation_gib(tokens, model.layers, model.hidden_size, width)}


def _warnings(made: Plan) -> list[str]:
    asked, model, found = made.deployment, made.deployment.model, []
    budget = made.budget
    if budget is not None and asked.gpu is not None:
        share = budget.weights.gib * GIB / asked.gpu.memory_bytes
        if FULL_OF_WEIGHTS < share <= 1:
            found.append(f"weights take {100 * share:.0f} % of the card: it may load, and serve next to nothing")
    if "num_key_value_heads not given" in model.note:
        found.append(f"num_key_value_heads is not given: {model.attention_heads} num_attention_heads are taken for KV heads; "
                     "with grouped-query attention the cache would be smaller by their ratio")
    main = next((m for layer in model.mixers for m in layer if isinstance(m, Attention)), None)
    if main is not None and model.latent is None and asked.shards.tensor > main.kv_heads:
        found.append(f"{main.kv_heads} KV heads on {asked.shards.tensor} GPUs: each is kept "
                     f"{asked.shards.tensor // main.kv_heads} times, more GPUs do not make the cache larger")
    own = model.max_position_embeddings
    if own is not None and asked.longest > own:
        found.append(f"max_model_len {asked.longest:,} is above the model's own {own:,}: vLLM refuses it unless "
                     "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1")
    if model.note and UNKNOWN_TYPE in model.note:
        found.append(f"the model_type is {UNKNOWN_TYPE}: check the layers above against the model's own description")
    if len(made.groups) > 1 and made.report.num_blocks > 0:
        found.append(f"the token count is no per-token cost, {made.report.kv_tokens:,} depends on max_model_len and on the "
                     f"version; a long request takes {made.kv_bytes_per_further_token:,} bytes with each token, "
                     f"and one of {made.report.max_model_len:,} takes {made.report.needed_bytes / GIB:.2f} GiB")
    return found
