"""Step times by hand, and the array form against the scalar form element by element."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.model_config import load_model
from sim.sizing.hardware import find_gpu
from sim.sizing.weights import weight_bytes
from sim.step_time import ConstantStepTime, RooflineStepTime, StepLoad, parse_constant, roofline

LLAMA = load_model("Llama-3.1-8B")
H100 = roofline(LLAMA, find_gpu("H100"), weight_bytes(LLAMA), LLAMA.kv_bytes_per_token())


def decode(sequences, context):
    return StepLoad(sequences, sequences, context, context)


def test_one_decoding_sequence_reads_the_weights_once():
    # 16.06 GB over 3,350 GB/s x 0.8 is 5,992.7 us; 1,000 tokens of 131,072 bytes are 48.9 us; 1,000 us overhead.
    assert H100.duration_us(decode(1, 1000)) == 7042


def test_a_long_prompt_is_bound_by_arithmetic():
    # 2 x 8.03e9 x 8192 + 4 x 32 x 32 x 128 x 8192 x 8193 / 2 flops over 989.4e12 x 0.5
    flops = 2 * 8_030_261_248 * 8192 + 524_288 * (8192 * 8193 // 2)
    assert H100.duration_us(StepLoad(8192, 1, 8192, 8192 * 8193 // 2)) == round(flops / (989.4e12 * 0.5) * 1e6 + 1000)


def test_two_ranks_halve_everything_but_the_overhead():
    two = roofline(LLAMA, find_gpu("H100"), weight_bytes(LLAMA) / 2, LLAMA.kv_bytes_per_token(2, 2), ranks=2)
    for load in (decode(64, 100_000), StepLoad(8192, 1, 8192, 8192 * 8193 // 2)):
        assert two.duration_us(load) - 1000 == pytest.approx((H100.duration_us(load) - 1000) / 2, abs=1)


def test_a_step_takes_at_least_a_microsecond_and_halves_go_to_the_even_one():
    def takes(overhead_us):
        quick = RooflineStepTime(0.0, 0, 0.0, 0.0, 1.0, 1.0, overhead_us=overhead_us)
        one = quick.duration_us(StepLoad(1, 1, 1, 1))
        assert quick.duration_us(StepLoad(*[np.ones(2, np.int64)] * 4)).tolist() == [one, one]
        return one
    assert [takes(us) for us in (0.0, 0.4, 1.5, 2.5, 3.5)] == [1, 1, 2, 2, 4]


@given(st.integers(0, 2**63 - 1), st.floats(0, 2**52))
def test_numpy_and_python_round_alike(whole, real):
    assert int(np.rint(np.float64(real))) == round(real)
    assert (np.array([whole], np.int64) * 3.7)[0] == whole * 3.7


loads = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 4096), st.integers(1, 10**9), st.integers(1, 10**13)),
                 min_size=1, max_size=20)
rates = st.floats(1e9, 1e16)    # with the costs below every step stays below 2**63 us
costs = st.floats(0, 1e6)


@given(loads, st.builds(RooflineStepTime, costs, st.integers(0, 10**7), costs, costs, rates, rates, st.floats(0.01, 1),
                        st.floats(0.01, 1), st.floats(0, 1e5)))
def test_arrays_give_the_same_integers_as_calls_one_by_one(rows, model):
    together = model.duration_us(StepLoad(*np.array(rows, np.int64).T))
    assert together.dtype == np.int64
    assert together.tolist() == [model.duration_us(StepLoad(*row)) for row in rows]


def test_constant_in_both_forms():
    model = ConstantStepTime(20_000)
    assert model.duration_us(decode(3, 100)) == 20_000
    assert model.duration_us(StepLoad(*[np.arange(1, 4)] * 4)).tolist() == [20_000] * 3
    with pytest.raises(ValueError, match="not 0"):
        ConstantStepTime(0)


@pytest.mark.parametrize(("text", "us"), [
    ("constant:20ms", 20_000), ("constant:1us", 1), ("constant:0.5ms", 500), ("constant:2s", 2_000_000),
    ("constant:2.5us", 2), ("constant:3.5us", 4)])
def test_constants_as_text(text, us):
    assert parse_constant(text).us == us


@pytest.mark.parametrize("text", [
    "", "constant", "constant:", "constant:20", "constant:-1ms", "constant:0ms", "constant:nanms", "constant:infs",
    "constant:1e3ms", "constant:20 ms", "constant:0.4us", "constant:0.5us", "fast", "constant:" + "9" * 400 + "s"])
def test_bad_texts_are_named(text):
    with pytest.raises(ValueError, match=r"constant:20ms|a step takes") as error:
        parse_constant(text)
    assert repr(text) in str(error.value) and "--" not in str(error.value).replace(text, "")


def test_descriptions_carry_units():
    assert ConstantStepTime(20_000).describe() == "constant 20 ms"
    assert "GB/s" in H100.describe()
    assert "\n" not in H100.describe()


def test_a_size_has_no_roofline():
    with pytest.raises(ValueError, match="80GB is only a size"):
        roofline(LLAMA, find_gpu("80GB"), 1.0, 1)


@pytest.mark.parametrize("field", [
    "bandwidth_bytes_per_s", "peak_flops_per_s", "bandwidth_efficiency", "flops_efficiency"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_rates_must_be_positive(field, value):
    good = {"bandwidth_bytes_per_s": 1.0, "peak_flops_per_s": 1.0}
    with pytest.raises(ValueError, match=field):
        RooflineStepTime(1.0, 1, 1.0, 1.0, **{**good, field: value})


@pytest.mark.parametrize("us", [0, -3, 0.5, 10.5, float("nan"), float("inf")])
def test_a_constant_is_a_whole_number_of_microseconds(us):
    with pytest.raises(ValueError, match=f"whole microseconds, at least 1, not {us}$"):
        ConstantStepTime(us)
