"""The memory budget against start-up logs that print every term, and the answer where nothing is left."""

import math
from dataclasses import replace

import pytest

from sim.sizing.budget import budget, weight_bytes
from sim.sizing.hardware import GIB, find_gpu
from sim.sizing.model_config import load_model, shape_from_config
from workloads.request import InputError

LARGE, SMALL = (1024, 8192), (256, 2048)


@pytest.mark.parametrize(("name", "gib"), [    # weights_gib of the start-up logs, all ranks
    ("Llama-3.1-8B-Instruct", 14.99),                   # v157
    ("Llama-3.3-70B-Instruct-FP8-dynamic", 2 * 33.88),  # v155
    ("Qwen3-0.6B", 1.12),                               # v158
    ("Phi-4-mini", 7.17),                               # v028
    ("opt-125m", 0.2389),                               # v145
    ("Qwen3-14B", 27.5185),                             # v112
    ("Qwen3-30B-A3B", 56.88),                           # v079
    ("GLM-4.7-NVFP4", 4 * 47.11),                       # v070: some of its layers stay in 16 bit
    ("MiniMax-M2.5", 4 * 53.75)])                       # v106
def test_weights_as_servers_show_them(name, gib):
    assert weight_bytes(load_model(name)) / GIB == pytest.approx(gib, rel=0.03)


@pytest.mark.parametrize(("name", "gpu", "ranks", "limits", "gib"), [
    ("Llama-3.3-70B-Instruct-FP8-dynamic", "H100", 2, LARGE, 32.0),    # v155
    ("Llama-3.1-8B-Instruct", "H100", 1, LARGE, 51.38),                # v157
    ("Qwen3-0.6B", "H100", 1, LARGE, 64.45),                           # v158
    ("Phi-4-mini", "A100-40GB", 1, SMALL, 26.6),                       # v028
    ("Llama-3.1-8B-Instruct", "RTX 3090", 1, (256, 20_000), 3.81),     # v001: the profiling run is one prompt of 20,000
    ("Llama-3.1-8B-Instruct", "RTX 3090", 1, (256, 29_000), 2.89)])    # v002
def test_available_memory_within_a_few_percent_of_the_logs(name, gpu, ranks, limits, gib):
    made = budget(load_model(name), find_gpu(gpu), 0.9, limits, ranks)
    assert made.available_bytes / GIB == pytest.approx(gib, rel=0.05)


def test_the_terms_add_up_and_each_says_what_it_assumes():
    gpu = find_gpu("H100")
    made = budget(load_model("Llama-3.1-8B"), gpu, 0.92, LARGE)
    assert made.total.gib == math.ceil(gpu.memory_bytes * 0.92) / GIB
    left = made.total.gib - made.weights.gib - made.activation.gib - made.overhead.gib
    assert made.available_bytes == pytest.approx(left * GIB, abs=1)
    lines = made.lines()
    assert len(lines) == 4
    assert all("GiB (" in line for line in lines)


def test_more_gpus_more_room_and_larger_steps_less():
    model, gpu = load_model("Llama-3.1-70B"), find_gpu("H100")
    rooms = [budget(model, gpu, 0.92, LARGE, ranks).available_bytes for ranks in (4, 8)]
    assert rooms[0] < rooms[1]
    more = [budget(model, gpu, 0.92, (1024, tokens), 4).available_bytes for tokens in (8192, 100_000, 200_000)]
    assert more[0] > more[1] > more[2]


def test_what_does_not_fit_is_one_line_with_the_smallest_size_that_does():
    with pytest.raises(InputError) as error:
        budget(load_model("Llama-3.1-70B"), find_gpu("H100"), 0.85, LARGE)
    text = str(error.value)
    assert "131.42 GiB weights" in text                           # 70.55e9 x 2 bytes: 65.71 GiB each on two GPUs
    assert "67.30 GiB usable" in text                             # 79.18 x 0.85, less 5.30 of activations and overhead
    assert "--tensor-parallel-size 4 is the smallest" in text
    assert "\n" not in text
    assert budget(load_model("Llama-3.1-70B"), find_gpu("H100"), 0.85, LARGE, 4).available_bytes > 0
    with pytest.raises(InputError, match="on 2 x H100"):
        budget(load_model("Llama-3.1-70B"), find_gpu("H100"), 0.85, LARGE, 2)


def test_what_never_fits_says_so():
    with pytest.raises(InputError, match="no tensor-parallel size leaves room"):
        budget(load_model("DeepSeek-R1"), find_gpu("1GB"), 0.9, LARGE)


def test_weight_formats():
    model = load_model("Llama-3.1-8B")
    assert weight_bytes(model) == 2 * 8_030_261_248
    assert weight_bytes(model, "float32") == 4 * 8_030_261_248
    embeddings = 2 * 128_256 * 4096
    assert weight_bytes(replace(model, quantization="fp8")) == 8_030_261_248 - embeddings + 2 * embeddings
    with pytest.raises(InputError, match="Kimi-K2-Thinking: the size of compressed-tensors weights is not known"):
        weight_bytes(load_model("Kimi-K2-Thinking"))


def test_a_model_whose_weights_cannot_be_counted_names_the_field():
    shape = shape_from_config({"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8}, "tiny", "test")
    with pytest.raises(InputError, match="tiny: vocab_size is not known"):
        budget(shape, find_gpu("H100"), 0.9, LARGE)


def test_a_tensor_parallel_size_that_cannot_share_the_heads_is_refused():
    with pytest.raises(InputError, match="tensor_parallel_size 3 does not divide the 32 attention heads"):
        budget(load_model("Llama-3.1-8B"), find_gpu("H100"), 0.9, (256, 2048), ranks=3)


def test_the_hint_names_only_sizes_that_can_share_the_heads():
    with pytest.raises(InputError) as caught:          # phi-4 has 40 attention and 10 KV heads: 2 ranks, not 4 or 8
        budget(load_model("phi-4"), find_gpu("10GB"), 0.9, (256, 2048))
    assert "--tensor-parallel-size 4" not in str(caught.value)
    assert "--tensor-parallel-size 8" not in str(caught.value)
