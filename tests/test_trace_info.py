"""`pagedsim trace info`: numbers by hand, the statistics published with the public traces, what is said aloud, the picture."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from cli_run import lengths, mooncake, run, shared_trace, timed
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from small import trace_of

from experiments.load import built_in
from experiments.trace import SUBCOMMANDS
from experiments.traces.figure import plot_trace
from experiments.traces.info import info
from experiments.traces.statistics import arrivals, dispersion, peak, sessions, spearman, spread
from workloads import transform
from workloads.readers import read_trace
from workloads.request import InputError, Trace

times = st.lists(st.integers(0, 60), min_size=1, max_size=30).map(lambda gaps: np.cumsum([0, *gaps]))


# ---------------------------------------------------------------------- by hand
def test_lengths():
    found = info(trace_of([(10, 1), (20, 3), (30, 2), (40, 10)]))["lengths"]
    assert found["prompt_tokens"] == pytest.approx({
        "total": 100, "mean": 25, "min": 10, "p1": 10.3, "p25": 17.5, "p50": 25, "p75": 32.5, "p90": 37, "p95": 38.5, "p99": 39.7,
        "max": 40}, rel=1e-15)
    assert (found["output_tokens"]["p50"], found["total_tokens"]["max"], found["kv_tokens"]) == (2.5, 50, 116 - 4)
    assert found["spearman"] == pytest.approx(0.8, abs=1e-15)


def test_rank_correlation_shares_ranks_of_equal_values():
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 x 5)
    assert spearman(np.array([1, 5, 5, 9]), np.array([1, 2, 3, 4])) == pytest.approx((4.5 / 5) ** 0.5, abs=1e-15)
    assert spearman(np.array([1, 2, 3]), np.array([3, 2, 1])) == pytest.approx(-1)


def test_arrivals():
    trace = trace_of([(5, 1, t * 1_000_000) for t in (0, 1, 1, 2, 11, 20)])
    found = arrivals(trace)
    assert (found["duration_s"], found["rate_per_s"], found["mean_gap_s"]) == (20.0, 6 / 20, 4.0)
    gaps = [1, 0, 1, 9, 9]
    assert found["cv_of_gaps"] == pytest.approx(np.std(gaps) / 4)
    # two whole windows of 10 s hold 4 and 1; the last arrival lies behind them
    assert found["dispersion"] == {"1s": pytest.approx(np.var([1, 2, 1, *[0] * 8, 1, *[0] * 8]) / 0.25),
                                   "10s": 2.25 / 2.5, "60s": None}
    assert found["peak_per_s"] == {"1s": 2.0, "10s": 0.4, "60s": 6 / 60}
    assert (found["stamps"], found["most_at_one_stamp"], found["equal_stamps_share"]) == (5, 2, 1 / 6)


@given(times, st.integers(1, 40))
def test_windows_equal_counting(stamps, window):
    inside = [sum(t <= s < t + window for s in stamps) for t in stamps]
    assert peak(stamps, window) == max(inside)
    whole = int(stamps[-1]) // window
    counts = [sum(k * window <= s < (k + 1) * window for s in stamps) for k in range(whole)]
    if whole < 2:
        assert dispersion(stamps, window) is None
    else:
        assert dispersion(stamps, window) == pytest.approx(np.var(counts) / np.mean(counts))


def test_poisson_arrivals_are_poisson():
    found = info(built_in(3))["arrivals"]
    assert abs(found["cv_of_gaps"] - 1) < 0.1
    assert abs(found["dispersion"]["1s"] - 1) < 0.2


@pytest.mark.parametrize("stamps", [[0], [0, 0, 0]])
def test_all_at_once_has_no_rate(stamps):
    found = arrivals(trace_of([(5, 1, t) for t in stamps]))
    assert (found["rate_per_s"], found["cv_of_gaps"], found["dispersion"]["1s"]) == (None, None, None)
    assert found["most_at_one_stamp"] == len(stamps)


def test_sessions_and_think_times():
    trace = Trace("chat", np.array([5, 6, 7, 8]), np.ones(4, int), arrival_us=np.arange(4), session=np.array([3, 3, -1, 4]),
                  think_us=np.array([-1, 2_000_000, -1, -1]))
    found = sessions(trace)
    assert (found["count"], found["turns"]["mean"], found["requests_without"]) == (2, 1.5, 1)
    assert (found["closed_loop_share"], found["think_s"]) == (0.25, {"mean": 2.0, "p50": 2.0})
    assert sessions(trace_of([(5, 1)])) is None
    assert any("closed loop: 25.0 % of the requests" in note for note in info(trace)["notes"])


def test_other_columns():
    trace = Trace("more", np.array([5, 6]), np.ones(2, int), priority=np.array([-1, 4]), samples=np.array([1, 3]))
    found = info(trace)["columns"]
    assert found == {"max_tokens": None, "samples": spread(np.array([1, 3])), "beam_width": None,
                     "priorities": {"distinct": 2, "most_urgent": -1, "least_urgent": 4}}


def test_content():
    found = info(trace_of([(12, 1), (11, 1), (6, 1)], content=[[0, 1, 2], [0, 1, 3], [0, 1]]), [2, 4])["content"]
    assert (found["span_tokens"], found["ids"], found["unique_ids"], found["prompt_tokens_with_ids"]) == (4, 8, 4, 29)
    assert found["ideal_ids"] == {"query_blocks": 8, "hit_blocks": 4, "hit_rate_blocks": 0.5, "hit_rate_tokens": 14 / 29}
    assert [(row["block_size"], row["query_blocks"], row["hit_blocks"], row["last_token_rule"]["hit_tokens"])
            for row in found["ideal"]] == [(2, 14, 7, 12), (4, 6, 3, 12)]
    assert found["reuse"] == {"block_size": 4, "accesses": 6, "cold": 3, "unique_blocks": 3, "p50": 2.0, "histogram": [
        {"least": 0, "most": 0, "accesses": 0}, {"least": 1, "most": 1, "accesses": 1}, {"least": 2, "most": 3, "accesses": 2}]}


def test_the_traces_own_block_size_is_always_there():
    found = info(trace_of([(12, 1)], content=[[0, 1, 2]]), [16])
    assert [row["block_size"] for row in found["content"]["ideal"]] == [4, 16]


def test_no_request_at_all():
    with pytest.raises(InputError, match="there is no request"):
        info(Trace("none", np.zeros(0, int), np.zeros(0, int)))


# ---------------------------------------------------------------------- what cannot be shown is said
def test_lengths_alone(capsys, tmp_path):
    said = run(capsys, "trace", "info", lengths(tmp_path, [(5, 9), (7, 9)]))
    assert (said.status, said.err) == (0, "")
    for words in ("no arrival times", "no sessions", "no prefix identity: sharing cannot be measured; use --synth-prefix"):
        assert words in said.out
    assert "notes" not in said.out and "nan" not in said.out


def test_ids_of_prompts_alone_and_coarse_stamps(capsys, tmp_path):
    trace = mooncake(tmp_path, [(0, 600, 3, [1, 2]), (0, 700, 3, [1, 3]), (3000, 512, 3, [1])])
    said = run(capsys, "trace", "info", trace, "--json", "-")
    found = said.json
    assert said.err == "".join(f"note: {note}\n" for note in found["notes"])
    assert "outputs have no ids: generated blocks cannot be shared" in found["notes"]
    assert any("lower bounds" in note for note in found["notes"])
    assert not any("coarse" in note for note in found["notes"])
    again = mooncake(tmp_path, [(3000 * (i // 3), 500, 3, [i]) for i in range(9)])
    assert any("coarse time stamps: 3 distinct ones, up to 3 requests on one; shorter windows than 3 s" in note
               for note in run(capsys, "trace", "info", again, "--json", "-").json["notes"])


def test_prompts_that_are_covered_in_part():
    notes = info(trace_of([(12, 1), (12, 1)], content=[[0], [0, 1, 2]]))["notes"]
    assert "ids cover 16 of 24 prompt tokens: the others count as never seen" in notes
    whole = info(trace_of([(11, 1)], content=[[0, 1, 2]]))["notes"]
    assert not any("ids cover" in note for note in whole)


def test_notes_of_the_reader_come_first_and_are_not_repeated():
    trace = Trace("noted", np.array([5]), np.array([1]), notes=("sorted by time", "no prefix identity: it is so"))
    notes = info(trace)["notes"]
    assert notes[:2] == list(trace.notes)
    assert sum("no prefix identity" in note for note in notes) == 1


def test_dropped_rows_are_said(capsys, tmp_path):
    said = run(capsys, "trace", "info", lengths(tmp_path, [(5, 9), (7, 0), (7, 0)]))
    assert "1 request\n" in said.out and "2 more requests dropped: no output tokens" in said.out


def test_all_rows_are_told_of(capsys, tmp_path):
    trace = lengths(tmp_path, [(5, 9), (7, 0), (0, 0), (8, 3)])
    found = run(capsys, "trace", "info", trace, "--json", "-", "-q").json
    assert found["rows"] == {"count": 4, "prompt_tokens": spread(np.array([5, 7, 0, 8])),
                             "output_tokens": spread(np.array([9, 0, 0, 3])),
                             "duration_s": None, "rate_per_s": None, "hit_ratio_of_ids": None}
    assert found["lengths"]["prompt_tokens"]["mean"] == 6.5 and found["rows"]["prompt_tokens"]["mean"] == 5
    said = run(capsys, "trace", "info", trace).out
    assert ("rows      4 in the file, zero lengths and all; mean / median / p99 of prompt 5 / 6 / 7.97; output 3 / 1.50 / 8.82"
            in said)
    assert run(capsys, "trace", "info", trace, "--strict").status == 2
    assert "rows " not in run(capsys, "trace", "info", lengths(tmp_path, [(5, 9)], "whole.csv")).out


def test_what_made_it_cannot_paint_the_screen(capsys, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"input_length": 5, "output_length": 6, "made_by": "\\u001b[31mred\\ntwo"}\n')
    assert "made by   '\\x1b[31mred\\ntwo'\n" in run(capsys, "trace", "info", path).out


# ---------------------------------------------------------------------- the command
def test_json_is_the_same_in_a_file_and_twice(capsys, tmp_path):
    said = run(capsys, "trace", "info", "--json", "-", "-q")
    assert (said.status, said.err) == (0, "")
    assert run(capsys, "trace", "info", "--json", tmp_path / "a.json", "-q").status == 0
    assert (tmp_path / "a.json").read_text() == said.out
    assert said.json["schema"] == 1
    assert list(said.json) == ["schema", "pagedsim", "trace", "rows", "lengths", "arrivals", "sessions",
                               "columns", "content", "notes"]
    other = run(capsys, "trace", "info", "--seed", 1, "--json", "-", "-q")
    assert other.json["trace"]["prompt_tokens"] != said.json["trace"]["prompt_tokens"]


def test_the_built_in_workload_is_that_of_compare(capsys):
    ours = run(capsys, "trace", "info", "--json", "-", "-q").json["trace"]
    theirs = run(capsys, "compare", "--allocator", "paged", "--json", "-", "-q").json["trace"]
    assert {key: ours[key] for key in theirs} == theirs


def test_lines_fit_and_quiet_changes_no_report(capsys, tmp_path):
    loud = run(capsys, "trace", "info").out
    quiet = run(capsys, "trace", "info", "-q").out
    assert loud == quiet and "note " in loud
    assert max(map(len, quiet.splitlines())) <= 125
    assert "61.78 %" in quiet


@pytest.mark.parametrize(("arguments", "named"), [
    (["trace"], "no subcommand: one of info"),
    (["trace", "inform"], "unknown subcommand 'inform': one of info"),
    (["trace", "info", "nowhere.csv"], "nowhere.csv"),
    (["trace", "info", "--block-size", "0"], "at least 1 is wanted, not 0"),
    (["trace", "info", "--format", "azure"], "--format is for a trace file"),
    (["trace", "info", "--plot", "a.gif"], "a.gif: a picture ends in"),
    (["trace", "info", "--json", "no/where.json"], "no/where.json: cannot write"),
])
def test_what_is_wrong_is_one_line(capsys, arguments, named):
    said = run(capsys, *arguments)
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    assert named in said.err


def test_nothing_is_overwritten_by_mistake(capsys, tmp_path):
    trace = lengths(tmp_path, [(5, 9)], "trace.png")
    before = trace.read_bytes()
    assert "would overwrite the trace" in run(capsys, "trace", "info", trace, "--plot", trace).err
    assert "would overwrite the trace" in run(capsys, "trace", "info", trace, "--json", trace).err
    both = tmp_path / "b.png"
    assert "--json would overwrite the output of --plot" in run(capsys, "trace", "info", "--plot", both, "--json", both).err
    assert trace.read_bytes() == before and not both.exists()


@pytest.mark.parametrize("arguments", [["trace", "--help"], ["trace", "info", "--help"]])
def test_help(capsys, arguments):
    said = run(capsys, *arguments)
    assert (said.status, said.err) == (0, "")
    assert "examples:" in said.out and "pagedsim trace info" in said.out
    assert all(name in run(capsys, "trace", "--help").out for name in SUBCOMMANDS)


# ---------------------------------------------------------------------- the picture
@pytest.fixture
def drawn(monkeypatch):
    """The texts of the figures that were saved."""
    texts, save = [], Figure.savefig

    def keep(self, *arguments, **options):
        FigureCanvasAgg(self).draw()
        texts.append(" | ".join(t.get_text() for t in self.findobj(match=lambda a: hasattr(a, "get_text"))))
        return save(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return texts


@pytest.mark.parametrize(("trace", "said", "not_said"), [
    (trace_of([(5, 1, 0), (50, 7, 4_000_000)]), ["no prefix identity", "requests a second"], ["no arrival times"]),
    (Trace("l", np.array([5]), np.array([3])), ["no arrival times", "no prefix identity"], ["requests a second"]),
    (trace_of([(5, 1), (5, 2)], content=[[0], [0]], span=16), ["all at once", "no prompt fills a block of 16"], []),
    (trace_of([(64, 1), (64, 2)], content=[[0, 1, 2, 3]] * 2, span=16), ["one id", "first\nuse", "of full blocks"], ["no "]),
    (trace_of([(40, 1, 0), (40, 2, 5)], content=[[0, 1, 2], [3, 4, 5]], span=16), ["first\nuse"], ["no "]),
])
@pytest.mark.filterwarnings("error")
def test_panels_say_why_they_are_empty(tmp_path, drawn, trace, said, not_said):
    plot_trace(trace, info(trace), "a $title$", str(tmp_path / "a.png"))
    for words in ["a $title$", *said]:
        assert words in drawn[0], words
    for words in not_said:
        assert words not in drawn[0], words
    assert "mathdefault" not in drawn[0]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_bytes_twice(capsys, tmp_path, suffix):
    trace = timed(tmp_path, [(0.0, 20, 5), (0.5, 900, 6), (9.25, 30, 7)])
    for name in "ab":
        assert run(capsys, "trace", "info", trace, "--plot", tmp_path / f"{name}.{suffix}").status == 0
    one, two = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in "ab")
    assert one == two


# ---------------------------------------------------------------------- the public traces
PUBLISHED = [
    # name, requests, prompt mean / median / p99, output the same, duration, rate: all as rounded where they were published
    ("azure-2023/AzureLLMInferenceTrace_conv.csv", None, 19_366, "1154.7 1020 4142", "211.13 129 601", "3501.7", "5.53"),
    ("mooncake/conversation_trace.jsonl", None, 12_031, "12035.1 6909 85400.4", "342.62 350 1118.5", "3537.0", "3.401"),
    ("vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz", None, 84_226, "295.6 40 3369.8", "358.02 275 1466", None, None),
    ("vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz", 2048, 79_731, "161.31", "337.99", None, None),
    ("vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz", 2047, 79_725, "161.18 35 1460", "338 271 1280", None, None),
    ("vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv", None, 28_257, "2588.08 2730 3933.4",
     "291.43 167 3271.3", None, None),
    ("vidur/splitwise_conv.csv", None, 19_366, "1154.7 1020 4142", "211.13 129 601", "3501.7", "5.53"),
    ("etalon/sharegpt_8k_filtered_stats_llama2_tokenizer.csv", None, 30_731, "2340.03 1730 7433.7", "438.71 415 998", None, None),
]


def same(ours, published):
    """Whether a number is the published one, to the digits that were published."""
    digits = len(published.partition(".")[2])
    return round(ours, digits) == float(published)


@pytest.mark.parametrize(("name", "longest", "n", "prompt", "output", "duration", "rate"), PUBLISHED)
def test_statistics_of_the_public_traces(name, longest, n, prompt, output, duration, rate):
    trace = read_trace(shared_trace(name))
    found = info(trace if longest is None else transform.drop_longer_than(trace, longest))
    assert found["trace"]["requests"] == n
    for column, published in (("prompt_tokens", prompt), ("output_tokens", output)):
        for statistic, value in zip(("mean", "p50", "p99"), published.split(), strict=False):
            assert same(found["lengths"][column][statistic], value), (column, statistic)
    if duration is None:
        assert found["arrivals"] is None
    else:
        assert same(found["arrivals"]["duration_s"], duration) and same(found["arrivals"]["rate_per_s"], rate)


def test_mooncake_as_published():
    found = info(read_trace(shared_trace("mooncake/conversation_trace.jsonl")))
    content, times = found["content"], found["arrivals"]
    assert (content["ids"], content["unique_ids"]) == (288_500, 182_790)
    assert round(content["ideal_ids"]["hit_rate_blocks"], 4) == 0.3664
    by_size = {row["block_size"]: row for row in content["ideal"]}
    assert (round(by_size[512]["hit_rate_blocks"], 4), round(by_size[512]["hit_rate_tokens"], 5)) == (0.3819, 0.37338)
    assert round(by_size[16]["hit_rate_tokens"], 5) == 0.37362
    assert (times["stamps"], times["most_at_one_stamp"]) == (1_180, 28)
    counts = [row["accesses"] for row in content["reuse"]["histogram"]]
    assert list(itertools.accumulate(counts))[-1] == 105_592 == content["reuse"]["accesses"] - content["reuse"]["cold"]


def test_json_has_no_numpy_and_no_nan():
    for trace in (trace_of([(5, 1)]), trace_of([(5, 1), (9, 4)], content=[[0, 1], [0, 2]])):
        json.dumps(info(trace), allow_nan=False)
