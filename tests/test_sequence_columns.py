"""Priorities, samples and beams as columns of a table, and requests of several sequences that can never run."""

import numpy as np
import pytest
from cli_run import document, run
from small import config_of, trace_of

from sim.engine import Engine
from sim.result import scenario, throughput
from sim.run import EXCEEDS_POOL, SERVED, TOO_WIDE
from workloads.readers import read_trace
from workloads.request import InputError, Trace


def write(folder, text, name="t.csv"):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_columns_of_a_table_become_those_of_the_trace(tmp_path):
    trace = read_trace(write(tmp_path, "samples,prompt_tokens,output_tokens,priority\n1,10,5,-2\n4,20,6,0\n2,0,6,9\n"))
    assert (trace.samples.tolist(), trace.priority.tolist(), trace.beam_width) == ([1, 4], [-2, 0], None)
    assert trace.sequences.tolist() == [1, 4] and trace.dropped == {"zero_prompt": 1}


def test_they_stay_with_their_rows_when_these_are_sorted_by_time(tmp_path):
    trace = read_trace(write(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens,beam_width\n2.0,10,5,3\n1.0,20,6,1\n"))
    assert (trace.prompt_tokens.tolist(), trace.beam_width.tolist()) == ([20, 10], [1, 3])


@pytest.mark.parametrize(("column", "value", "says"), [
    ("priority", "1.5", "'1.5' is not a whole number"), ("priority", "", "'' is not a whole number"),
    ("priority", "9" * 30, "is not from"), ("samples", "0", "'0' is not from 1 to 4096"), ("samples", "-2", "is not from"),
    ("beam_width", "5000", "is not from 1 to 4096"), ("beam_width", "two", "'two' is not a whole number"),
])
def test_a_bad_value_is_named(tmp_path, column, value, says):
    path = write(tmp_path, f"prompt_tokens,output_tokens,{column}\n10,5,1\n10,5,{value}\n")
    with pytest.raises(InputError) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}:3: column '{column}': ") and says in str(error.value)


def test_samples_and_beams_of_one_request_are_refused(tmp_path, capsys):
    path = write(tmp_path, "prompt_tokens,output_tokens,samples,beam_width\n10,5,1,3\n10,5,2,2\n")
    with pytest.raises(InputError, match="several samples or several beams, not both"):
        read_trace(path)
    both = write(tmp_path, "prompt_tokens,output_tokens,samples\n10,5,3\n", "s.csv")
    said = run(capsys, "compare", both, "--num-gpu-blocks-override", 50, "--beam-width", 2)
    assert said.status == 2 and "--beam-width: a request has several samples or several beams" in said.err


def grouped(prompt, output, samples):
    return Trace("by hand", np.array([prompt]), np.array([output]), arrival_us=np.zeros(1, np.int64), samples=np.array([samples]))


@pytest.mark.parametrize(("samples", "verdict"), [(1, SERVED), (2, SERVED), (3, SERVED), (4, EXCEEDS_POOL)])
def test_a_group_must_fit_alone(samples, verdict):
    # Prompt 6, output 6: 11 token states, 3 blocks of 4; the full block of the prompt is shared, 2 blocks are each one's own:
    # 3, 5, 7 and 9 blocks. The pool has 8.
    engine = Engine(grouped(6, 6, samples), config_of(9, 4, 16), "paged")
    assert engine.run().verdict.tolist() == [verdict]


@pytest.mark.parametrize(("placement", "fit"), [("buddy", 2), ("first-fit", 3), ("best-fit", 3)])
def test_a_group_must_fit_alone_in_an_arena(placement, fit):
    # 36 slots in the pool, 11 a reservation: three fit in a row; 36 is cut as 32 + 4 and 11 rounds up to 16: two.
    for samples in (fit, fit + 1):
        run = Engine(grouped(6, 6, samples), config_of(10, 4, 16, placement=placement), "contiguous-oracle").run()
        assert run.verdict.tolist() == [SERVED if samples <= fit else EXCEEDS_POOL]
        assert run.log.finished_us.tolist() == [6 if samples <= fit else -1]


def test_more_sequences_than_may_run_are_refused_by_name():
    run = Engine(grouped(6, 6, 3), config_of(90, 4, 16, max_num_seqs=2), "paged").run()
    assert run.verdict.tolist() == [TOO_WIDE]
    assert scenario("paged", run)["requests"]["rejected"] == {"more_sequences_than_max_num_seqs": 1}


def test_output_of_all_samples_counts_as_throughput():
    # 3 samples of 6 tokens in 6 steps of 1 us each, the prompt once.
    run = Engine(grouped(6, 6, 3), config_of(90, 4, 16), "paged").run()
    assert throughput(run)["output_tokens_per_s"] == 18 / 6e-6
    assert throughput(run)["total_tokens_per_s"] == 24 / 6e-6
    alone = Engine(trace_of([(6, 6)]), config_of(90, 4, 16), "paged").run()
    assert throughput(alone)["output_tokens_per_s"] == 6 / 6e-6


def test_compare_tells_of_them(tmp_path, capsys):
    path = write(tmp_path, "prompt_tokens,output_tokens,samples\n20,5,3\n20,5,1\n")
    options = (path, "--num-gpu-blocks-override", 50, "--allocator", "paged")
    said = run(capsys, "compare", *options, "-q")
    assert said.status == 0 and "4 sequences (samples or beams)" in said.out and "Sharing of blocks" in said.out
    made = document(capsys, *options)
    assert (made["trace"]["requests"], made["config"]["sequences"]) == (2, 4)
    assert made["scenarios"][0]["sharing"]["copies"] == 2                      # 20 tokens end inside a block: two of three copy
