"""The block bootstrap by hand and as a whole; --resample and --speed on the command line."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from cli_run import document, lengths, mooncake, run, timed
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, trace_of

from workloads.request import ContentIds, Trace
from workloads.resampling import FRESH_FROM, LARGEST_ID, resample

POOL = ("--num-gpu-blocks-override", 60, "--block-size", 4, "--max-model-len", 64, "--step-time", "constant:10ms")


class Drawing:
    """A generator that draws what it is told to."""

    def __init__(self, *windows):
        self.windows = windows

    def integers(self, low, high, size):
        assert (low, high, size) == (0, len(self.windows), len(self.windows))
        return np.array(self.windows)


def ids_of(trace):
    content = trace.content
    return [content.ids[a:b].tolist() for a, b in zip(content.starts, content.starts[1:], strict=False)]


# Windows of 10 us: [0, 10) a b, [10, 20) c, [20, 30) d e f.
ROWS = [(1, 11, 5), (2, 12, 14), (3, 13, 15), (4, 14, 25), (5, 15, 31), (6, 16, 34)]
TRACE = trace_of(ROWS)


def test_windows_one_behind_another():
    # From the first arrival, 5, on: a (0) b (9) | c (10) | d (20) e (26) f (29). Windows 2, 0, 2.
    made = resample(TRACE, 10, Drawing(2, 0, 2))
    assert made.prompt_tokens.tolist() == [4, 5, 6, 1, 2, 4, 5, 6]
    assert made.output_tokens.tolist() == [14, 15, 16, 11, 12, 14, 15, 16]
    assert made.arrival_us.tolist() == [0, 6, 9, 10, 19, 20, 26, 29]


def test_every_window_once_is_the_trace():
    made = resample(TRACE, 10, Drawing(0, 1, 2))
    assert made.differences(replace(TRACE, arrival_us=TRACE.arrival_us - 5)) == [] and made.source == TRACE.source


@pytest.mark.parametrize(("last", "windows", "left_out"),
                         [(29, 3, 0), (25, 3, 0), (24, 2, 1), (20, 2, 1), (19, 2, 0), (15, 2, 0)])
def test_the_last_window_counts_from_half_of_it_on(last, windows, left_out):
    made = resample(trace_of([(1, 1), (2, 1, 11), (3, 1, last)]), 10, Drawing(*range(windows)))
    assert len(made) == 3 - left_out and made.dropped == ({"behind_the_last_window": 1} if left_out else {})


def test_what_was_left_out_before_is_still_counted():
    trace = replace(trace_of([(1, 1), (2, 1, 11), (3, 1, 20)]), dropped={"zero_output": 4})
    assert resample(trace, 10, Drawing(0, 1)).dropped == {"zero_output": 4, "behind_the_last_window": 1}
    assert trace.dropped == {"zero_output": 4}


def test_windows_without_requests():
    made = resample(trace_of([(1, 1), (2, 1, 38)]), 10, Drawing(1, 3, 2, 0))
    assert made.prompt_tokens.tolist() == [2, 1] and made.arrival_us.tolist() == [18, 30]
    assert len(resample(trace_of([(1, 1), (2, 1, 38)]), 10, Drawing(1, 1, 2, 2))) == 0


def test_all_columns_stay_in_step():
    n = np.arange(1, 7)
    trace = replace(TRACE, max_tokens=n + 40, priority=n, samples=n, session=np.full(6, -1))
    made = resample(trace, 10, Drawing(1, 1, 0))
    assert made.prompt_tokens.tolist() == made.priority.tolist() == made.samples.tolist() == [3, 3, 1, 2]
    assert made.max_tokens.tolist() == [43, 43, 41, 42] and made.session.tolist() == [-1] * 4


# ---------------------------------------------------------------------- content and sessions
@pytest.mark.parametrize("shared", [0, 7])
def test_ids_of_one_window_are_new_in_a_second_copy(shared):
    # One id is in all windows; 1 only in the first, 2 and 3 only in the last, where two requests share 2.
    trace = trace_of([(4, 1), (4, 1, 11), (8, 1, 20), (8, 1, 29)], [[shared, 1], [shared], [shared, 2], [shared, 2, 3]])
    made = ids_of(resample(trace, 10, Drawing(2, 0, 2)))
    assert made[:3] == [[shared, 2], [shared, 2, 3], [shared, 1]] and [ids[0] for ids in made] == [shared] * 5
    again = made[3][1], made[4][1], made[4][2]
    assert again[0] == again[1] and len({1, 2, 3, shared, *again}) == 6 and min(again) >= FRESH_FROM
    third = ids_of(resample(trace, 10, Drawing(2, 2, 2)))
    assert len({ids[1] for ids in third}) == 3 and len({i for ids in third for i in ids}) == 1 + 3 * 2


def test_ids_of_two_windows_stay_even_where_one_of_them_is_not_drawn():
    trace = trace_of([(4, 1), (4, 1, 19)], [[5], [5]])
    assert ids_of(resample(trace, 10, Drawing(0, 0))) == [[5], [5]]


def test_content_keeps_its_kind():
    trace = trace_of([(4, 1), (4, 1, 19)], [[5], [6]])
    content = replace(trace.content, cover_output=True, local=True, span_tokens=9)
    made = resample(replace(trace, content=content), 10, Drawing(1, 1)).content
    assert (made.span_tokens, made.cover_output, made.local) == (9, True, True)
    assert not resample(trace, 10, Drawing(1, 1)).content.local


@pytest.mark.parametrize("largest", [FRESH_FROM + 5, LARGEST_ID - 2, LARGEST_ID - 1, LARGEST_ID])
def test_ids_at_the_end_of_the_range(largest):
    # Two ids are to be new: there is room for them above up to LARGEST_ID - 2, else all are numbered anew.
    content = ContentIds(np.array([largest, 5, 6]), np.array([0, 2, 3]), 4)
    made = resample(replace(trace_of([(8, 1), (4, 1, 19)]), content=content), 10, Drawing(0, 0)).content
    assert len(set(made.ids.tolist())) == 4 and int(made.ids.min()) >= 0
    assert made.local == (largest > LARGEST_ID - 2) and (made.local or made.ids[:2].tolist() == [largest, 5])


def test_sessions_of_a_second_copy_are_their_own():
    trace = replace(TRACE, session=np.array([8, 9, 8, 8, -1, 9]))
    made = resample(trace, 10, Drawing(2, 0, 2))
    # d e f a b d' e' f': 8 -1 9 8 9 and another 8, none, another 9
    assert made.session.tolist() == [0, -1, 1, 0, 1, 2, -1, 3]


# ---------------------------------------------------------------------- as a whole
@settings(max_examples=200 * LONG)
@given(st.lists(st.integers(0, 60), min_size=2, max_size=30), st.integers(1, 30), st.integers(0, 2**32))
def test_every_window_drawn_is_a_window_of_the_trace(times, window, seed):
    times = np.sort(np.array(times))
    since = times - times[0]
    trace = Trace("a", np.arange(1, len(times) + 1), np.ones(len(times), np.int64), arrival_us=times)
    windows = int(since[-1]) // window + (2 * (int(since[-1]) % window) >= window)
    if windows < 2:
        with pytest.raises(ValueError, match="that is no two windows"):
            resample(trace, window, np.random.default_rng(seed))
        return
    made = resample(trace, window, np.random.default_rng(seed))
    drawn = np.random.default_rng(seed).integers(0, windows, windows)
    for place, source in enumerate(drawn.tolist()):
        inside, original = made.arrival_us // window == place, since // window == source
        assert made.prompt_tokens[inside].tolist() == trace.prompt_tokens[original].tolist()
        assert (made.arrival_us[inside] % window).tolist() == (since[original] % window).tolist()


def test_a_resampled_trace_has_the_mean_of_the_trace():
    trace = trace_of([(int(p), 1, 100 * i) for i, p in enumerate(np.random.default_rng(0).integers(1, 1000, 500))])
    means = [resample(trace, 1000, np.random.default_rng(seed)).prompt_tokens.mean() for seed in range(200)]
    assert abs(np.mean(means) - trace.prompt_tokens.mean()) < 5 and np.std(means) > 5


@pytest.mark.parametrize(("trace", "window", "message"), [
    (Trace("x.csv", np.ones(2, int), np.ones(2, int)), 10, "x.csv has no arrival times to resample by"),
    (TRACE, 0, "a window must last 1 microsecond or longer, not 0"),
    (TRACE, 30, "by hand lasts 2.9e-05 s: that is no two windows of 3e-05 s"),
    (trace_of([(1, 1), (1, 1, 10**13)]), 1, "by hand lasts 1e.07 s: over 1,000,000 windows of 1e-06 s"),
    (replace(trace_of([(1, 1), (1, 1, 90)], session=[1, 1]), think_us=np.array([-1, 5])), 10,
     "the turns of by hand follow each other: windows would tear them apart"),
])
def test_what_cannot_be_resampled(trace, window, message):
    with pytest.raises(ValueError, match=message):
        resample(trace, window, np.random.default_rng(0))


# ---------------------------------------------------------------------- the command line
@pytest.fixture
def crowd(tmp_path):
    return timed(tmp_path, [(0.3 * i, 10 + 3 * (i % 5), 5 + i % 7) for i in range(40)])


def test_without_the_options_nothing_changes(capsys, crowd):
    config = document(capsys, crowd, *POOL)["config"]
    assert not {"resample", "speed"} & set(config)


def test_compare_resampled(capsys, crowd):
    one, again, other = (document(capsys, crowd, *POOL, "--resample", 2, "--seed", seed) for seed in (1, 1, 2))
    assert one == again and one["trace"] != other["trace"]
    assert one["config"]["resample"] == 2.0 and "speed" not in one["config"]
    notes = [note for note in one["config"]["notes"] if "resampled" in note]
    assert len(notes) == 1 and f"drawn with replacement (seed 1): {one['trace']['requests']:,} requests come of 40" in notes[0]


def test_resampling_leaves_the_other_streams_alone(capsys, tmp_path):
    # The built-in workload's own lengths and times are drawn as without, and so is the order.
    plain, made = (document(capsys, *POOL[:2], "--allocator", "paged", "--limit", 50, "--shuffle", *more)
                   for more in ((), ("--resample", 2)))
    one, other = plain["trace"], made["trace"]
    assert one["source"] == other["source"] and one["prompt_tokens"] != other["prompt_tokens"]


def test_first_streams_are_those_of_six():
    six, seven = (np.random.SeedSequence(5).spawn(n) for n in (6, 7))
    assert [s.generate_state(2).tolist() for s in six] == [s.generate_state(2).tolist() for s in seven[:6]]


def test_copies_do_not_find_each_other(capsys, tmp_path):
    # Every prompt is new: whatever is drawn twice, nothing hits. With one id in all windows something does.
    rows = [(1000 * i, 16, 2, [i]) for i in range(20)]
    config = (*POOL[:4], "--max-model-len", 64, "--hash-block-size", 16, "--allocator", "paged-prefix", "--resample", 2)
    for name, ids, hits in (("new", rows, False), ("shared", [(t, p, o, [0]) for t, p, o, _ in rows], True)):
        found = document(capsys, mooncake(tmp_path, ids, f"{name}.jsonl"), *config)["scenarios"][0]
        assert bool(found["prefix_cache"]["hit_tokens"]) == hits


def test_compare_at_speed(capsys, crowd):
    plain, twice = document(capsys, crowd, *POOL), document(capsys, crowd, *POOL, "--speed", "2.5")
    assert (plain["trace"]["duration_s"], twice["trace"]["duration_s"]) == (11.7, 4.68) and twice["config"]["speed"] == 2.5
    assert "requests arrive 2.5 times as fast as recorded: over 4.7 s, not 11.7 s" in twice["config"]["notes"]


def test_speed_is_the_fraction_that_is_written(capsys, tmp_path):
    # 0.3 s at 0.1 times the pace is 3 s, to the microsecond; the second request of the CSV below arrives then.
    path = timed(tmp_path, [(1.0, 5, 2), (1.3, 5, 2)])
    assert document(capsys, path, *POOL, "--speed", "0.1")["trace"]["duration_s"] == 3.0


def test_speed_is_taken_from_the_first_request_that_is_left(capsys, tmp_path):
    # 5 us from the second to the third, 2.5 at twice the pace: 2, whatever came before and was dropped.
    path = timed(tmp_path, [(0, 50, 20), (1e-6, 5, 2), (6e-6, 5, 2)])
    assert document(capsys, path, *POOL, "--speed", 2, "--max-total-tokens", 20)["trace"]["duration_s"] == 2e-6


def test_resampled_and_faster(capsys, crowd):
    slow, fast = (document(capsys, crowd, *POOL, "--resample", 2, *more) for more in ((), ("--speed", 2)))
    assert fast["trace"]["requests"] == slow["trace"]["requests"]
    assert abs(fast["trace"]["duration_s"] - slow["trace"]["duration_s"] / 2) < 2e-6


def sessions(tmp_path):
    path = tmp_path / "chat.csv"
    path.write_text("time,prompt,output,session,think\n0,5,3,a,\n40,9,3,a,2\n50,5,3,b,\n")
    return path, "--columns", "time=time,prompt=prompt,output=output,session=session,think=think"


def test_a_closed_loop_at_speed(capsys, tmp_path):
    found = document(capsys, *sessions(tmp_path), *POOL, "--speed", 2)
    assert any("think times stay" in note for note in found["config"]["notes"])
    assert any("mean think time 2 s" in note for note in found["config"]["notes"])


@pytest.mark.parametrize(("options", "words"), [
    (("--speed", 2, "--saturate"), "--speed has no meaning with --saturate: all requests arrive at once"),
    (("--resample", 2, "--saturate"), "--resample has no meaning with --saturate: all requests arrive at once"),
    (("--resample", 100), "--resample: {0} lasts 11.7 s: that is no two windows of 100 s"),
    (("--resample", "1e-7"), "--resample: a window must last 1 microsecond or longer, not 0"),
    (("--speed", 0), "argument --speed: a number from 1e-09 up to 1e+09 is wanted, not '0' (see pagedsim compare --help)"),
    (("--resample", "x"), "argument --resample: a number is wanted, not 'x' (see pagedsim compare --help)"),
])
def test_what_is_refused(capsys, crowd, options, words):
    said = run(capsys, "compare", crowd, *POOL, *options)
    assert (said.status, said.out) == (2, "") and said.err == f"pagedsim compare: error: {words.format(crowd)}\n"


def test_traces_without_times_and_closed_loops_are_refused(capsys, tmp_path):
    path = lengths(tmp_path, [(5, 3), (6, 3)])
    said = run(capsys, "compare", path, *POOL, "--speed", 2)
    assert said.err == f"pagedsim compare: error: --speed: {path} has no arrival times\n"
    said = run(capsys, "compare", path, *POOL, "--resample", 2)
    assert said.err == f"pagedsim compare: error: --resample: {path} has no arrival times to resample by\n"
    chat, *columns = sessions(tmp_path)
    said = run(capsys, "compare", chat, *columns, *POOL, "--resample", 10)
    assert said.err == f"pagedsim compare: error: the turns of {chat} follow each other: --resample needs --open-loop\n"
    assert document(capsys, chat, *columns, *POOL, "--resample", 10, "--open-loop")["config"]["resample"] == 10.0


def test_windows_that_hold_nobody(capsys, tmp_path):
    path = timed(tmp_path, [(0, 5, 2), (99, 5, 2)])
    said = [run(capsys, "compare", path, *POOL, "--resample", 1, "--seed", seed).err for seed in range(12)]
    assert f"pagedsim compare: error: --resample: the windows that were drawn hold no request of {path}\n" in said


def test_the_draw_is_fair():
    trace = trace_of([(i + 1, 1, 10 * i) for i in range(4)] + [(9, 1, 39)])
    seen = Counter(p for seed in range(300) for p in resample(trace, 10, np.random.default_rng(seed)).prompt_tokens.tolist())
    assert all(abs(seen[p] - 300) < 80 for p in (1, 2, 3, 4))
