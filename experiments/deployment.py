"""From options to a deployment: the model, the GPU and vLLM's settings, with a note for everything that was assumed."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sim.kv_formula import ELEMENT_BYTES
from sim.sizing.hardware import Gpu, find_gpu
from sim.sizing.versions import NEWEST, parse_version
from workloads.later import Later
from workloads.request import InputError

if TYPE_CHECKING:
    from sim.models import model as models
    from sim.models import model_config
    from sim.models.model import ModelShape
    from sim.sizing import budget, plan, weights
    from sim.sizing import deployment as deployments
    from sim.sizing.budget import Measured
    from sim.sizing.deployment import Deployment
else:                                                  # without a model none of it is needed
    models, model_config, budget, deployments, plan, weights = map(Later, (
        "sim.models.model", "sim.models.model_config", "sim.sizing.budget", "sim.sizing.deployment", "sim.sizing.plan",
        "sim.sizing.weights"))

DEFAULT_MODEL, DEFAULT_GPU = "Llama-2-13b", "A100-40GB"
DTYPES = {"half": "float16", "float": "float32", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
QUANTIZATIONS = {"awq_marlin": "awq", "gptq_marlin": "gptq", "gptq_marlin_24": "gptq", "fbgemm_fp8": "fp8", "ptpc_fp8": "fp8",
                 "bitsandbytes_4bit": "bitsandbytes", "modelopt_fp4": "nvfp4", "modelopt_fp8": "fp8", "bnb": "bitsandbytes",
                 "experts_int8": "int8", "tpu_int8": "int8", **DTYPES}
CHECKPOINT_SAYS = ("compressed-tensors", "modelopt", "quark", "gguf", "auto-round", "torchao", "inc")
KV_DTYPES = (*ELEMENT_BYTES, "fp8_ds_mla")
FLOATS = ("float16", "bfloat16", "float32")


def model_and_gpu(options: argparse.Namespace, notes: list[str]) -> tuple[ModelShape | None, Gpu | None]:
    """What is asked for, else the paper's: OPT-13B's sister on an A100, said in a note. No model where a pool is given.

    ``options.model`` is a name, or a model that has been loaded before.
    """
    _check_dtypes(options)
    sized = options.num_gpu_blocks_override is not None
    name, gpu_name = options.model, options.gpu
    if not sized and name is None:
        name = DEFAULT_MODEL
        notes.append(f"no --model: {name} is assumed")
    if not sized and gpu_name is None and options.available_kv_gib is None:
        gpu_name = DEFAULT_GPU
        notes.append(f"no --gpu: {gpu_name} is assumed")
    model = name if name is None or isinstance(name, models.ModelShape) else model_config.load_model(name)
    if model is not None and options.model is not None and model.note:
        notes.append(f"model: {model.note}")
    if model is not None and options.quantization not in (None, "auto"):
        model = _quantized(model, options.quantization)
    return model, None if gpu_name is None else find_gpu(gpu_name)


def _quantized(model: ModelShape, method: str) -> ModelShape:
    """The model with weights stored as ``--quantization`` says; a checkpoint's own way, where it is the same, stays."""
    name = QUANTIZATIONS.get(method.lower(), method.lower())
    if name in CHECKPOINT_SAYS:                        # the method tells no bits: the checkpoint's config does
        if model.quantization is None:
            raise InputError(f"--quantization {method}: {model.name} has no quantization_config that says how; "
                             "fp8, int8, int4, awq, gptq, nvfp4, mxfp4, bitsandbytes or a GGUF type do")
        return model
    weights.weight_format(name)                        # known, or an error that lists them
    return model if model.quantization == name else replace(model, quantization=name, quantization_bits=None, group_size=None)


def deployment(options: argparse.Namespace, model: ModelShape, gpu: Gpu | None) -> Deployment:
    """The deployment that the options describe; what only the plan asks for may be missing from them.

    Raises
    ------
    InputError
        If the version is not known, or no length fits where the longest is asked for.
    """
    given = {name: value for name, value in vars(options).items() if value not in (None, "auto")}
    asked = deployments.Deployment(
        model, gpu, _dtype(given.get("dtype")), _dtype(given.get("kv_cache_dtype")), options.block_size,
        options.max_model_len or None, options.gpu_memory_utilization,
        weights.Shards(options.tensor_parallel_size, options.pipeline_parallel_size, given.get("data_parallel_size", 1),
                       options.enable_expert_parallel, options.mtp_layers),
        cpu_offload_gib=options.cpu_offload_gb, enforce_eager=options.enforce_eager,
        version=parse_version(given["vllm_version"]) if "vllm_version" in given else NEWEST,
        measured=_measured(given), available_kv_gib=options.available_kv_gib,
        num_gpu_blocks_override=options.num_gpu_blocks_override, **_server(given))
    if options.max_model_len != 0:
        return asked
    longest = plan.longest_that_fits(asked)
    if not longest:
        raise InputError(f"--max-model-len auto: not one token of {model.name} fits")
    return replace(asked, max_model_len=longest)


def _check_dtypes(options: argparse.Namespace) -> None:
    for flag, text, known in (("--dtype", options.dtype, FLOATS), ("--kv-cache-dtype", options.kv_cache_dtype, KV_DTYPES)):
        if _dtype(text) not in ("auto", *known):
            raise InputError(f"{flag} {text!r}: one of auto, {', '.join(known)}")


def _dtype(name: str | None) -> str | None:
    return None if name is None else DTYPES.get(name.lower(), name.lower())


def _measured(given: dict[str, Any]) -> Measured:
    names = ("total_gpu", "weights", "activation", "non_torch", "cuda_graph")
    return budget.Measured(*(given.get(f"{name}_gib") for name in names))


def _server(given: dict[str, Any]) -> dict[str, Any]:
    """The settings that have the same name here and there."""
    names = ("decode_context_parallel_size", "num_speculative_tokens", "max_num_seqs", "max_num_batched_tokens",
             "enable_chunked_prefill", "enable_prefix_caching", "async_scheduling", "disable_hybrid_kv_cache_manager",
             "mamba_cache_mode", "mamba_ssm_cache_dtype")
    return {name: given[name] for name in names if name in given}
