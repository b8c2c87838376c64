"""The memory budget against start-up logs that print every term, and the answer where nothing is left."""

import math
from dataclasses import replace

import pytest

from sim.models.model_config import load_model, shape_from_config
from sim.sizing.budget import (
    CUDA_GRAPH_GIB,
    Measured,
    Serving,
    activation_gib,
    budgets,
    rotary_bytes,
)
from sim.sizing.deployment import Deployment
from sim.sizing.hardware import GIB, find_gpu
from sim.sizing.inverse import fitting, smallest_tensor_parallel
from sim.sizing.versions import parse_version
from sim.sizing.weights import Shards
from workloads.request import InputError

LARGE = Serving(0.92, 1024, 8192)
SMALL = Serving(0.9, 256, 2048)


def ranks(serving, size, **more):
    return replace(serving, shards=Shards(size, **more))


@pytest.mark.parametrize(("name", "gpu", "size", "limits", "gib"), [
    ("Llama-3.3-70B-Instruct-FP8-dynamic", "H100", 2, (1024, 8192), 32.0),    # v155
    ("Llama-3.1-8B-Instruct", "H100", 1, (1024, 8192), 51.38),                # v157
    ("Qwen3-0.6B", "H100", 1, (1024, 8192), 64.45),                           # v158
    ("Phi-4-mini", "A100-40GB", 1, (256, 2048), 26.6),                        # v028
    ("Llama-3.1-8B-Instruct", "RTX 3090", 1, (256, 20_000), 3.81),            # v001: a step of one prompt of 20,000
    ("Llama-3.1-8B-Instruct", "RTX 3090", 1, (256, 29_000), 2.89)])           # v002
def test_available_memory_within_a_few_percent_of_the_logs(name, gpu, size, limits, gib):
    serving = Serving(0.9, *limits, shards=Shards(size), version=parse_version("0.15"))
    (made,) = budgets(load_model(name), find_gpu(gpu), serving)
    assert made.available_bytes / GIB == pytest.approx(gib, rel=0.08)


def test_the_terms_add_up_and_each_says_what_it_assumes():
    gpu = find_gpu("H100")
    (made,) = budgets(load_model("Llama-3.1-8B"), gpu, LARGE)
    assert made.total.gib == math.ceil(gpu.memory_bytes * 0.92) / GIB
    left = made.total.gib - made.weights.gib - made.activation.gib - made.overhead_gib
    assert made.available_bytes == pytest.approx(left * GIB, abs=1)
    assert [term.name for term in made.terms] == ["usable", "weights", "activation peak", "non-torch", "CUDA graphs"]
    assert all(term.assumption for term in made.terms)


def test_weights_hold_the_rotary_table():
    """8,030,261,248 x 2 bytes and 131,072 positions x 128 x 2 bytes: the 14.9888 GiB of start-up log v001."""
    model = load_model("Llama-3.1-8B")
    assert rotary_bytes(model) == 131_072 * 128 * 2
    (made,) = budgets(model, find_gpu("H100"), LARGE)
    assert round(made.weights.gib, 4) == 14.9888
    assert rotary_bytes(load_model("opt-125m")) == 0


def test_the_activation_peak_is_the_larger_of_sampler_and_forward_pass():
    model = load_model("Llama-3.1-8B")
    assert activation_gib(model, 1024, 8192) == 9.5 * 4 * 1024 * 128_256 / GIB
    assert activation_gib(model, 1, 20_000) == 2 * 20_000 * 3 * (4096 + 14_336) / GIB
    assert activation_gib(model, 1, 20_000, ranks=2) == 2 * 20_000 * 3 * (4096 + 7168) / GIB


def test_cuda_graphs_are_taken_off_since_0_21_and_not_when_eager():
    model, gpu = load_model("Llama-3.1-8B"), find_gpu("H100")
    old, new = (replace(LARGE, version=parse_version(v)) for v in ("0.20.2", "0.21"))
    found = [budgets(model, gpu, s)[0].cuda_graphs.gib for s in (old, new, replace(new, enforce_eager=True))]
    assert found == [0.0, CUDA_GRAPH_GIB, 0.0]


def test_measured_terms_take_the_place_of_predicted_ones():
    serving = replace(SMALL, measured=Measured(40, 10, 2, 0.5, 0.25))
    (made,) = budgets(load_model("Llama-3.1-8B"), find_gpu("H100"), serving)
    assert made.available_bytes == math.floor((math.ceil(40 * GIB * 0.9) / GIB - 12.75) * GIB)


def test_more_gpus_more_room_and_larger_steps_less():
    model, gpu = load_model("Llama-3.1-70B"), find_gpu("H100")
    rooms = [budgets(model, gpu, ranks(LARGE, size))[0].available_bytes for size in (4, 8)]
    assert rooms[0] < rooms[1]
    more = [budgets(model, gpu, replace(ranks(LARGE, 4), max_num_batched_tokens=tokens))[0].available_bytes
            for tokens in (8192, 100_000, 200_000)]
    assert more[0] > more[1] > more[2]


def test_stages_have_budgets_of_their_own():
    """The first stage holds the embedding, the last the output layer; tied ones both."""
    model, gpu = load_model("Llama-3.1-8B"), find_gpu("H100")
    first, last = budgets(model, gpu, ranks(LARGE, 1, pipeline=2))
    assert first.weights.gib == pytest.approx(last.weights.gib, abs=1e-4)
    whole = budgets(model, gpu, LARGE)[0].weights.gib
    assert first.weights.gib + last.weights.gib == pytest.approx(whole + rotary_bytes(model) / GIB)
    assert "stage 1 of 2" in first.weights.assumption


def test_offload_takes_weights_off_and_no_more_than_there_are():
    model, gpu = load_model("Llama-3.1-8B"), find_gpu("H100")
    found = [budgets(model, gpu, replace(LARGE, cpu_offload_gib=gib))[0].weights.gib for gib in (0, 5, 50)]
    assert found[0] - found[1] == pytest.approx(5) and found[2] == 0


def asked(model, gpu, **more):
    return Deployment(load_model(model), find_gpu(gpu), **more)


def test_what_does_not_fit_is_one_line_with_the_smallest_size_that_does():
    small = asked("Llama-3.1-70B", "H100", gpu_memory_utilization=0.85, max_model_len=8192)
    with pytest.raises(InputError) as error:
        fitting(small)
    text = str(error.value)
    assert "131.45 GiB weights" in text                           # 70.55e9 x 2 bytes and 0.03 GiB of rotary positions
    assert "67.30 GiB usable" in text                             # 79.18 x 0.85
    assert "--tensor-parallel-size 4 is the smallest that serves max_model_len 8,192" in text
    assert "\n" not in text
    assert fitting(replace(small, shards=Shards(4)))
    with pytest.raises(InputError, match="on 2 x H100"):
        fitting(replace(small, shards=Shards(2)))


def test_what_never_fits_says_so():
    with pytest.raises(InputError, match="no tensor-parallel size serves max_model_len 163,840"):
        fitting(asked("DeepSeek-R1", "1GB"))


@pytest.mark.parametrize(("longest", "size"), [(2048, 128), (131_072, None)])
def test_the_hint_is_what_the_plan_says(longest, size):
    """On 128 T4 room is left for 93,824 tokens, on 64 the weights leave none; 256 cannot share 128 heads."""
    many = asked("Llama-3.1-405B", "T4", max_model_len=longest)
    assert smallest_tensor_parallel(many) == size
    with pytest.raises(InputError, match="no tensor-parallel size serves" if size is None else f"size {size} is the smallest"):
        fitting(many)


def test_the_hint_names_only_sizes_that_can_share_the_heads():
    assert smallest_tensor_parallel(asked("phi-4", "20GB")) == 2  # 40 attention and 10 KV heads
    with pytest.raises(InputError, match="no tensor-parallel size serves"):    # 2 are not enough, 4 and 8 cannot share 10
        fitting(asked("phi-4", "10GB"))


def test_a_model_whose_weights_cannot_be_counted_names_the_field():
    shape = shape_from_config({"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8}, "tiny", "test")
    with pytest.raises(InputError, match="tiny: intermediate_size is not known"):
        budgets(shape, find_gpu("H100"), SMALL)


def test_a_tensor_parallel_size_that_cannot_share_the_heads_is_refused():
    with pytest.raises(InputError, match="tensor_parallel_size 3 does not divide the 32 attention heads"):
        budgets(load_model("Llama-3.1-8B"), find_gpu("H100"), ranks(SMALL, 3))
