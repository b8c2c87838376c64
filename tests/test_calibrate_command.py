"""`pagedsim calibrate`: a server's log and page beside a replay that is equal, what a page and a log say by themselves, pictures,
one line for whatever is wrong, and a page of documentation whose commands run."""

import json
import re
import shlex
from pathlib import Path

import pytest
from cli_run import run
from served import (
    BLOCKS,
    GPU,
    SERVER,
    TRUTH,
    Journal,
    benchmark,
    log_lines,
    metrics,
    requests,
    serve,
    server,
    start_up,
    table,
    written,
)
from small import config_of, trace_of
from test_calibrate_gauges import shared_requests

from experiments.calibrate import main
from experiments.calibration.over_time import ReplayOptions, replay
from experiments.calibration.server_log import Sample
from experiments.step_time_file import read_step_time, step_time_text
from sim.step_time import ConstantStepTime
from workloads.writers import write_trace

ROOT = Path(__file__).resolve().parents[1]
HERE = {"model": "meta-llama/Meta-Llama-3.1-8B", "gpu": "H100-80GB", "tensor_parallel_size": 1}


class Served:
    """Traffic that a known server served, with all that it wrote."""

    def __init__(self, folder, trace, every_us=2_000_000, first_us=700_000, **changes):
        self.trace, self.journal = trace, Journal()
        self.run, self.ttft, self.tpot = serve(trace, server(**changes), observers=[self.journal])
        end = int(self.run.log.finished_us.max())
        self.lines = log_lines(self.journal, BLOCKS, first_us, end + 2 * every_us, every_us)
        self.log, self.page, self.traffic, self.clock = (folder / name for name in (
            "server.log", "metrics.txt", "served.csv", "efficiencies.toml"))
        self.log.write_text(start_up() + "\n".join(self.lines) + "\n")
        self.page.write_text(metrics(self.run, self.ttft, self.tpot))
        with self.traffic.open("w") as file:
            write_trace(trace, "csv", file)
        self.clock.write_text(step_time_text(TRUTH, HERE, []))

    def options(self, *more):
        return (*more, "--trace", self.traffic, "--gpu", GPU, "--step-time", self.clock)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Half of the requests begin with a shared prefix; lines every two seconds, the first 0.7 s after the first arrival."""
    return Served(tmp_path_factory.mktemp("served"), shared_requests(150, 7, 12.0))


def calibrated(capsys, *arguments):
    """The document; on standard error stand its warnings and no more."""
    said = run(capsys, "calibrate", *arguments, "--json", "-", "-q")
    assert said.status == 0
    assert said.err.splitlines() == [note for note in said.json["notes"] if note.startswith("warning: ")]
    return said.json


def refused(capsys, *arguments):
    said = run(capsys, "calibrate", *arguments)
    assert (said.status, said.out) == (2, "") and said.err.count("\n") == 1
    return said.err


# ---------------------------------------------------------------------- a log
def test_where_everything_is_equal_the_error_is_zero(served, capsys):
    made = calibrated(capsys, served.log, *served.options("--offset", -0.7))
    over = made["over_time"]
    assert set(over["errors"]) == {"running", "waiting", "usage_percent", "hit_percent", "prompt_tokens_per_s",
                                   "generation_tokens_per_s"}
    for name, error in over["errors"].items():
        assert (error["mean_absolute_error"], error["bias"]) == (0.0, 0.0), name
        assert error["seen_mean"] > 0 or name == "waiting"
    assert over["compared"] >= 6 and max(over["seen"]["hit_percent"]) > 10 and over["offset_s"] == -0.7
    assert over["seen"]["running"] == over["predicted"]["running"] and not over["searched"]
    assert over["time_s"][0] == 0.7 and over["before_first_arrival"] == 0
    assert over["after_simulated_end"] + over["compared"] == made["lines"] and over["still_busy"] == 0


def test_the_clocks_find_each_other(served, capsys):
    made = calibrated(capsys, served.log, *served.options())["over_time"]
    assert made["searched"] and abs(made["offset_s"] + 0.7) < 0.011            # a candidate every 0.02 s
    assert made["errors"]["running"]["mean_absolute_error"] < 1 and made["interval_s"] == 2.0


def test_a_queue_is_seen_too(tmp_path, capsys):
    """At most 6 sequences: a queue of tens, in jumps of decode steps that nobody can join."""
    config = server()
    few = Served(tmp_path, requests(60, 3, 30.0), scheduler=type(config.scheduler)(6, 8192))
    made = calibrated(capsys, few.log, *few.options("--offset", -0.7, "--max-num-seqs", 6))["over_time"]
    assert max(made["seen"]["waiting"]) > 20
    assert all(error["mean_absolute_error"] == 0 for error in made["errors"].values())


def test_lines_after_the_simulated_end_are_counted_and_not_compared(tmp_path, capsys):
    """The server has 6 places, the replay 64: it ends long before. One rule for all gauges."""
    config = server()
    few = Served(tmp_path, requests(60, 3, 30.0), scheduler=type(config.scheduler)(6, 8192))
    made = calibrated(capsys, few.log, *few.options("--offset", -0.7, "--max-num-seqs", 64))
    over = made["over_time"]
    end_s = int(serve(few.trace, server(scheduler=type(config.scheduler)(64, 8192)))[0].log.finished_us.max()) / 1e6
    times = [0.7 + 2 * i for i in range(made["lines"])]
    assert over["time_s"] == pytest.approx([time for time in times if time <= end_s], abs=1e-6)
    assert over["after_simulated_end"] == sum(time > end_s for time in times)
    last_s = int(few.run.log.finished_us.max()) / 1e6
    busy = sum(end_s < time < last_s for time in times)
    assert over["still_busy"] == busy > 3
    assert f"warning: the server was still busy: {busy} lines after the simulated end, not compared: the prediction is too " \
        "fast, or the trace is not all that was served" in made["notes"]


def test_what_is_compared_by_hand():
    """One request of 13 + 4 tokens, a second a step: its tokens come at 1, 2, 3 and 4 s, when it ends. A server that goes on, and
    finds half of all tokens, is compared at 0 to 4 s and at no later line, in no gauge."""
    samples = [Sample(i, float(i), 0, 3.0, 1.0, 1, 0, 40.0, 50.0) for i in range(-1, 8)]
    made = replay(samples, trace_of([(13, 4)]), config_of(11, 4, 32, step_time=ConstantStepTime(1_000_000)), "paged-prefix",
                  ReplayOptions(offset_s=1.0))
    assert made.time_s.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert {name: len(values) for name, values in made.predicted.items()} == dict.fromkeys(made.seen, 5)
    assert {name: len(values) for name, values in made.seen.items()} == dict.fromkeys(made.predicted, 5)
    assert made.predicted["generation_tokens_per_s"].tolist() == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert made.errors()["hit_percent"]["mean_absolute_error"] == 50.0
    assert (made.before, made.after, made.early, made.late) == (1, 3, 1, 3)


def test_a_log_that_begins_with_requests_already_running_is_doubted(tmp_path, capsys):
    one = Served(tmp_path, requests(60, 3, 30.0))
    lines = one.log.read_text().splitlines(keepends=True)
    busy = next(i for i, line in enumerate(lines) if "Running: " in line and "Running: 0 reqs" not in line)
    (tmp_path / "middle.log").write_text("".join(lines[:2] + lines[busy:]))
    running, waiting = (int(re.search(f"{name}: ([0-9]+) reqs", lines[busy])[1]) for name in ("Running", "Waiting"))
    notes = calibrated(capsys, tmp_path / "middle.log", *one.options("--offset", 3.0))["notes"]
    assert [note for note in notes if "warning: the log begins with requests" in note] == [
        f"warning: the log begins with requests already running: its first line shows {running} running and {waiting} waiting "
        "where 0 of the trace have arrived; --offset S says where the trace begins"]
    belongs = calibrated(capsys, one.log, *one.options("--offset", -0.7))["notes"]
    assert not any("begins with requests" in note for note in belongs)
    idle = lines[busy].replace(f"Running: {running} reqs, Waiting: {waiting} reqs", "Running: 0 reqs, Waiting: 0 reqs")
    (tmp_path / "middle.log").write_text("".join([*lines[:2], idle.replace("T08:01:39", "T08:01:37"), *lines[busy:]]))
    notes = calibrated(capsys, tmp_path / "middle.log", *one.options("--offset", 6.0))["notes"]
    assert any("before the first arrival: the log begins in the middle, or the trace does" in note for note in notes)


def test_one_line_is_no_lines(served, capsys):
    """The first arrival comes 1 s after the first line, the second line 2 s after it."""
    notes = calibrated(capsys, served.log, *served.options("--offset", 1))["notes"]
    assert any(note.startswith("not compared: 1 line before the first arrival, ") for note in notes)


def test_a_trace_that_does_not_fit_is_said(served, capsys):
    said = run(capsys, "calibrate", served.log, *served.options("--offset", -0.7, "--max-model-len", 600))
    assert said.status == 0 and re.search(r"note +\d+ requests of the trace rejected as too long for the server", said.out)


def test_a_wrong_server_is_off(served, capsys):
    made = calibrated(capsys, served.log, "--trace", served.traffic, "--gpu", GPU, "--offset", -0.7)["over_time"]["errors"]
    assert made["running"]["bias"] < -3 and made["generation_tokens_per_s"]["mean_absolute_error"] > 20


def test_old_versions_count_prompts_whole(served, capsys):
    old = calibrated(capsys, served.log, *served.options("--offset", -0.7, "--vllm-version", "0.14"))["over_time"]["errors"]
    assert old["prompt_tokens_per_s"]["bias"] > 100


def test_start_up_lines(served, capsys):
    made = calibrated(capsys, served.log, "--gpu", GPU)
    lines = {line["name"]: line for line in made["startup"]}
    assert lines["KV cache size, from the blocks"]["agrees"] and lines["KV cache size, from the memory printed"]["agrees"]
    assert lines["maximum concurrency for 4,096 tokens, from the blocks"]["predicted"] == round(BLOCKS / 256, 2)
    assert lines["blocks"]["seen"] == BLOCKS and lines["blocks"]["predicted"] > 25_000       # the test's own pool is smaller
    assert made["pool"]["num_blocks"] == BLOCKS and "by the rules of vLLM 0.33" in made["pool"]["how"]
    assert made["over_time"] is None and made["seen"]["running"]["peak"] > 10


def test_a_log_that_disagrees_says_so(tmp_path, capsys):
    path = tmp_path / "odd.log"
    path.write_text(start_up().replace("48,000 tokens", "47,000 tokens"))
    said = run(capsys, "calibrate", path, "--gpu", GPU)
    assert said.status == 0 and "NOT as printed" in said.out
    path.write_text("# GPU blocks: 3000, # CPU blocks: 0\n" + start_up().replace("11.72x", "11.73x").replace("48,000", "47,984"))
    made = calibrated(capsys, path)
    assert {line["name"]: line["agrees"] for line in made["startup"]} == {
        "KV cache size, from the memory printed": True, "KV cache size, from the blocks": False,
        "maximum concurrency for 4,096 tokens, from the blocks": False}


@pytest.mark.parametrize(("blocks", "longest"), [(20480, 8001), (20480, 8192), (5000, 17), (1000, 33), (27, 40)])
def test_the_pool_is_found_from_the_tokens_printed(tmp_path, capsys, blocks, longest):
    """The worked example of the start-up rules: 20,480 blocks print 327,066 tokens at 8,001."""
    tokens = int(blocks / -(-longest // 16) * longest)
    path = tmp_path / "v1.log"
    path.write_text(f"GPU KV cache size: {tokens:,} tokens\n")
    made = calibrated(capsys, path, "--model", "Llama-3.1-8B", "--max-model-len", longest)
    assert made["startup"][0]["agrees"] and made["pool"]["num_blocks"] == blocks and "by the rules" in made["pool"]["how"]


def test_usage_is_of_the_blocks_that_can_be_used():
    """10 usable blocks, 4 in use while one request of 13 to 16 tokens runs."""
    samples = [Sample(i, float(i), 0, 0.0, 0.0, 1, 0, 40.0) for i in range(1, 4)]
    made = replay(samples, trace_of([(13, 4)]), config_of(11, 4, 32, step_time=ConstantStepTime(1_000_000)), "paged",
                  ReplayOptions(offset_s=-1.0))
    assert made.predicted["usage_percent"].tolist() == [40.0, 40.0, 40.0] and made.time_s.tolist() == [1.0, 2.0, 3.0]


def test_blocks_of_the_first_engine_are_as_printed(tmp_path, capsys):
    """v001 of the start-up logs: 1,952 blocks, 1.56x of 20,000 tokens."""
    path = tmp_path / "v0.log"
    path.write_text("INFO 11-20 01:02:03 executor.py:1 # GPU blocks: 1952, # CPU blocks: 2048\n"
                    "INFO 11-20 01:02:03 executor.py:2 Maximum concurrency for 20000 tokens per request: 1.56x\n")
    made = calibrated(capsys, path, "--model", "Llama-3.1-8B", "--vllm-version", "0.6.4")
    assert made["pool"] == {"num_blocks": 1952, "how": "as printed"}
    assert [line["agrees"] for line in made["startup"]] == [True]


def test_what_is_typed_goes_before_what_the_log_says(served, capsys):
    said = run(capsys, "calibrate", served.log, "--gpu", GPU, "--max-model-len", 2048)
    assert "typed, and so not taken from" in said.out and "--max-model-len=4096" in said.out
    made = calibrated(capsys, served.log, *served.options("--offset", -0.7, "--num-gpu-blocks-override", 4000))
    assert made["capacity"]["num_blocks"] == 4000


def test_engines_of_a_log(served, tmp_path, capsys):
    both = tmp_path / "two.log"
    both.write_text(served.log.read_text() + "\n".join(line.replace("Engine 000", "Engine 001") for line in served.lines) + "\n")
    assert "lines of 2 engines (0, 1)" in refused(capsys, both, *served.options())
    made = calibrated(capsys, both, *served.options("--engine", 1, "--offset", -0.7))["over_time"]
    assert made["errors"]["running"]["mean_absolute_error"] == 0
    assert "no periodic line of engine 7; those of 0, 1 are there" in refused(capsys, both, "--engine", 7)


# ---------------------------------------------------------------------- a page
def test_a_page_beside_the_same_traffic(served, capsys):
    made = calibrated(capsys, served.page, *served.options("--max-model-len", 4096))
    lines = {line["name"]: line for line in made["page"]}
    for name in ("requests completed", "prompt tokens", "generated tokens", "preemptions", "prefix cache hit rate",
                 "mean time to first token", "mean time per output token", "mean time in the queue", "mean end-to-end time"):
        assert lines[name]["difference"] == pytest.approx(0, abs=1e-9), name
    assert lines["requests completed"]["seen"] == 150 and lines["prefix cache hit rate"]["seen"] > 10


def test_what_follows_from_a_page_alone(tmp_path, capsys):
    """1,001 blocks of 16, a quarter in use by 4 requests; 90 s of requests in an hour."""
    path = tmp_path / "page.txt"
    path.write_text('vllm:num_requests_running{engine="0"} 4\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
                    'vllm:e2e_request_latency_seconds_sum{engine="0"} 7200\n'
                    'vllm:e2e_request_latency_seconds_count{engine="0"} 9\n'
                    'vllm:cache_config_info{block_size="16",num_gpu_blocks="1001",engine="0"} 1.0\n')
    lines = {line["name"]: line["seen"] for line in calibrated(capsys, path, "--elapsed", 3600)["page"]}
    assert lines["tokens held at this moment"] == 4000 and lines["tokens held by each running request"] == 1000
    assert lines["requests in the server on average (Little)"] == 2 and lines["mean end-to-end time"] == 800


def test_a_page_may_be_fitted_to(tmp_path, capsys):
    """Two means give two numbers back, where the third is what it is said to be."""
    served, out = Served(tmp_path, requests(25, 6, 1e6)), tmp_path / "fitted.toml"          # all at once: nothing jumps
    served.clock.write_text(step_time_text({**TRUTH, "bandwidth_efficiency": 0.8, "flops_efficiency": 0.5}, HERE, []))
    made = calibrated(capsys, served.page, *served.options("--max-model-len", 4096), "--fit", "--out", out)
    numbers, errors = made["fit"]["numbers"], made["fit"]["errors"]
    assert {name: number["fitted"] for name, number in numbers.items()} == pytest.approx(TRUTH, rel=0.002)
    assert errors["after"]["tpot"] < 0.001 < errors["before"]["tpot"] and errors["after"]["ttft"] < 0.001
    assert numbers["overhead_us"]["fitted"] == 3500 and "cannot tell three numbers" in numbers["overhead_us"]["remark"]
    assert [number["standard_error"] for number in numbers.values()] == [None] * 3
    for name in ("bandwidth_efficiency", "flops_efficiency"):
        assert "no more measurements than numbers" in numbers[name]["remark"]
    assert "if the fixed time of a step, us, is 3500" in numbers["bandwidth_efficiency"]["remark"]
    assert ("fitted to what the page has of latencies, mean time to first token, mean time per output token, which cannot tell "
            "three numbers: the overhead of a step is not fitted and stays at 3,500 us; --step-time FILE.toml sets another"
            ) in made["notes"]
    rest = {row["metric"]: row for row in made["fit"]["cases"][0]["targets"] if not row["fitted"]}
    assert set(rest) == {"queue", "e2e"} and rest["e2e"]["error_after"] < 0.001 < rest["e2e"]["error_before"]
    assert read_step_time(str(out)).fitted["measured"] == [str(served.page)]


def test_a_page_never_fits_the_overhead(tmp_path, capsys):
    served = Served(tmp_path, requests(25, 6, 8.0))
    served.page.write_text(re.sub("vllm:time_to_first.*\n", "", served.page.read_text()))
    made = calibrated(capsys, served.page, *served.options()[:4], "--max-model-len", 4096, "--fit")
    numbers = made["fit"]["numbers"]
    assert numbers["overhead_us"]["fitted"] == 1000 and numbers["flops_efficiency"]["fitted"] == 0.5
    assert made["fit"]["errors"]["after"]["tpot"] < 0.001
    assert any("of latencies, mean time per output token, which" in note for note in made["notes"])


@pytest.mark.parametrize("name", ["time_per_output_token_seconds", "inter_token_latency_seconds"])
def test_a_page_with_the_time_between_tokens_alone_is_fitted_to_it(tmp_path, monkeypatch, capsys, name):
    """As old servers say it, and new ones. Summed over requests, each by its gaps, which the mean TPOT does not weigh."""
    served, out = Served(tmp_path, requests(25, 6, 1e6)), tmp_path / "fitted.toml"
    served.clock.write_text(step_time_text({**TRUTH, "bandwidth_efficiency": 0.8, "flops_efficiency": 0.5}, HERE, []))
    gaps = served.run.demand.output - 1
    seconds = float((served.tpot * gaps).sum())
    assert abs(seconds / gaps.sum() / served.tpot.mean() - 1) > 0.05         # another number than the mean TPOT
    page = re.sub(".*vllm:request_time_per.*\n", "", served.page.read_text())
    served.page.write_text(page + f'vllm:{name}_sum{{engine="0"}} {seconds!r}\nvllm:{name}_count{{engine="0"}} {gaps.sum()}\n')
    monkeypatch.chdir(tmp_path)                        # a short name, so that the table has room
    words = (served.page.name, *served.options("--max-model-len", 4096), "--fit", "--out", out)
    made = calibrated(capsys, *words)
    assert {name: number["fitted"] for name, number in made["fit"]["numbers"].items()} == pytest.approx(TRUTH, rel=0.002)
    after = made["fit"]["errors"]["after"]
    assert after["itl"] < 0.001 < made["fit"]["errors"]["before"]["itl"] and after["tpot"] is None
    assert {row["metric"] for row in made["fit"]["cases"][0]["targets"]} == {"ttft", "itl", "queue", "e2e"}
    assert read_step_time(str(out)).fitted["itl_error"] == after["itl"]
    said = run(capsys, "calibrate", *words).out
    assert re.search(r"mean error after +TTFT 0\.\d+ %, ITL 0\.\d+ %", said) and "ITL mean" in said
    assert "queue time mean, not fitted to" in said and "end-to-end time mean, not fitted to" in said


def test_a_page_with_all_three_means_is_fitted_to_all(tmp_path, capsys):
    """The time between tokens is 5 % longer than the server that has the other two would have it: it moves the fit."""
    served = Served(tmp_path, requests(25, 6, 1e6))
    gaps = served.run.demand.output - 1
    seconds = 1.05 * float((served.tpot * gaps).sum())
    with served.page.open("a") as page:
        page.write(f'vllm:inter_token_latency_seconds_sum {seconds!r}\nvllm:inter_token_latency_seconds_count {gaps.sum()}\n')
    made = calibrated(capsys, served.page, *served.options("--max-model-len", 4096), "--fit")
    after = made["fit"]["errors"]["after"]
    assert 0.005 < after["tpot"] < 0.03 and 0.005 < after["itl"] < 0.03
    assert made["fit"]["numbers"]["bandwidth_efficiency"]["standard_error"] > 0
    assert any(note.endswith("so +- holds little more than how they disagree") for note in made["notes"])


def test_other_traffic_is_noticed(served, tmp_path, capsys):
    short = tmp_path / "short.csv"
    short.write_text("arrival_us,prompt_tokens,output_tokens\n0,100,20\n")
    said = run(capsys, "calibrate", served.page, "--trace", short, "--gpu", GPU, "--max-model-len", 4096)
    prompts, outputs = int(served.run.demand.prompt.sum()), int(served.run.demand.output.sum())
    assert said.err.splitlines() == [
        "warning: does this trace belong to this page? More than 5 % apart are 150 requests completed on the page, 1 in the "
        f"trace (-99.3 %); {prompts:,} prompt tokens on the page, 100 in the trace ({100 * (100 / prompts - 1):.3g} %); "
        f"{outputs:,} generated tokens on the page, 20 in the trace (-99.9 %): the page counts since the server started, and the "
        "trace should be all that it served"]


@pytest.mark.parametrize(("counted", "apart"), [
    ((100, 2000, 400), None), ((105, 2100, 420), None), ((96, 1905, 381), None),
    ((106, 2000, 400), "106 requests completed on the page, 100 in the trace (-5.66 %)"),
    ((100, 1900, 400), "1,900 prompt tokens on the page, 2,000 in the trace (+5.26 %)"),
    ((100, 4000, 183), "4,000 prompt tokens on the page, 2,000 in the trace (-50 %); 183 generated tokens on the page, 400 in "
                       "the trace (+119 %)"),
    ((0, 2000, 400), "0 requests completed on the page, 100 in the trace:")])
def test_totals_within_a_twentieth_are_the_same_traffic(tmp_path, capsys, counted, apart):
    """100 requests of 20 + 4 tokens."""
    page, trace = tmp_path / "page.txt", tmp_path / "trace.csv"
    names = ("request_success", "prompt_tokens", "generation_tokens")
    page.write_text("".join(f"vllm:{name}_total {number}\n" for name, number in zip(names, counted, strict=True)))
    trace.write_text("prompt_tokens,output_tokens\n" + "20,4\n" * 100)
    notes = calibrated(capsys, page, "--trace", trace, *SERVER)["notes"]
    warned = [note for note in notes if "does this trace belong to this page?" in note]
    assert len(warned) == (apart is not None) and all(f"apart are {apart}" in note for note in warned)


# ---------------------------------------------------------------------- what is wrong is one line
def test_one_line_errors(served, tmp_path, capsys):
    points = tmp_path / "points.csv"
    points.write_text("prompt_tokens,output_tokens,ttft_ms\n100,5,20\n")
    for words, said in (
            ((points,), "a fit needs the server that was measured: --model and --gpu of the catalogue"),
            ((points, "--model", "Llama-3.1-8B", "--gpu", "80GB"), "the efficiencies of a roofline are fitted"),
            ((points, *SERVER, "--step-time", "constant:5ms"), "no constant step time"),
            ((points, *SERVER, "--offset", 3), "--offset has no meaning for a fit"),
            ((points, *SERVER, "--trace", served.traffic), "a table has its own"),
            ((points, *SERVER, "--format", "csv"), "--format is for a trace file"),
            ((served.log, served.page), "compared by itself, and 2 files were given"),
            ((points, tmp_path / "." / "points.csv", *SERVER), "points.csv: the same file as "),
            ((served.log, "--elapsed", 3), "--elapsed has no meaning for a log"),
            ((served.log, "--out", tmp_path / "x.toml"), "--out: nothing was fitted"),
            ((served.log, "--plot", tmp_path / "x.png"), "--plot: there is nothing to draw"),
            ((served.log, *served.options("--offset", 1e6)), "no line falls into the time that the trace takes"),
            ((served.page, "--fit"), "--fit needs --trace"),
            ((served.page, *served.options("--batching", "static", "--max-model-len", 4096)), "server batches continuously"),
            (("-", "-"), "only one file comes from standard input"),
            ((tmp_path / "none.csv",), "no such file"),
            ((points, "--out", points, *SERVER), "--out would overwrite what is read")):
        message = refused(capsys, *words)
        assert said in message, (words, message)
    long = tmp_path / "long.csv"
    long.write_text("prompt_tokens,output_tokens,ttft_ms\n5000,5,20\n")
    assert "not the one that was measured" in refused(capsys, long, *SERVER)


def test_a_log_without_a_pool_or_without_lines(tmp_path, served, capsys):
    path = tmp_path / "lines.log"
    path.write_text("\n".join(served.lines) + "\n")
    assert "does not say how large the pool is" in refused(capsys, path, "--trace", served.traffic)
    path.write_text(start_up())
    assert "nothing to compare a replay with: no periodic line is in it" in refused(capsys, path, *served.options())
    notes = calibrated(capsys, path)["notes"]
    assert any(note.startswith("warning: no periodic line is in it: vllm serve prints one every 10 s") for note in notes)


def test_without_a_model_the_pool_alone_is_replayed(tmp_path, served, capsys):
    path = tmp_path / "bare.log"
    path.write_text("# GPU blocks: 3000, # CPU blocks: 0\n" + "\n".join(served.lines) + "\n")
    said = run(capsys, "calibrate", path, "--trace", served.traffic)
    assert said.status == 0 and "step time: constant 20 ms" in said.out and "the model is not known" in said.out


# ---------------------------------------------------------------------- for people
@pytest.mark.parametrize("words", [(), ("-q",), ("--json", "-"), ("--json", "-", "-q")])
def test_warnings_stay_and_are_no_notes(tmp_path, capsys, words):
    """A torn line: said once, on standard error, however much else is said."""
    path = tmp_path / "torn.log"
    path.write_text(start_up() + "INFO Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: $\n")
    said = run(capsys, "calibrate", path, *words)
    warned = [line for line in said.err.splitlines() if line.startswith("warning: ")]
    assert [line[:60] for line in warned] == ["warning: 1 periodic line passed over: torn, or without a fie",
                                              "warning: no periodic line is in it: vllm serve prints one ev"]
    assert all(line.startswith(("warning: ", "note: ")) for line in said.err.splitlines())
    assert ("note: " in said.err) == (words == ("--json", "-")) and ("note  " in said.out) == ("--json" not in words)
    assert "warning: " not in said.out or "--json" in words


def test_pictures_have_the_same_bytes_again(served, tmp_path, capsys):
    points = tmp_path / "points.csv"
    points.write_text(table([(1024, 128, 1), (128, 64, 16)], server()))
    for kind, words in (("svg", (points, *SERVER)), ("png", (served.log, *served.options("--offset", -0.7)))):
        made = [tmp_path / f"{i}.{kind}" for i in range(2)]
        for path in made:
            assert run(capsys, "calibrate", *words, "--plot", path, "-q").status == 0
        assert made[0].read_bytes() == made[1].read_bytes() and made[0].stat().st_size > 5000


def test_what_is_printed(served, tmp_path, capsys):
    points = tmp_path / "points.csv"
    points.write_text(table([(1024, 128, 1), (1024, 64, 16)], server()))
    said = run(capsys, "calibrate", points, *SERVER, "--out", tmp_path / "e.toml")
    assert said.status == 0 and "share of the bandwidth" in said.out and "mean error after" in said.out
    assert "they hold HTTP" in said.out or "hold HTTP, tokenising" in said.out
    said = run(capsys, "calibrate", served.log, *served.options())
    assert "clocks: the first arrival comes 0.7 s before the first periodic line, looked for within" in said.out
    assert "replayed in the pool that was seen: 3,000 blocks of 16" in said.out


def test_help_has_examples(capsys):
    said = run(capsys, "calibrate", "--help")
    assert said.status == 0 and "pagedsim calibrate server.log --trace served.jsonl" in said.out
    assert "calibrate" in run(capsys, "--help").out


DOCS = (ROOT / "docs" / "calibrate.md").read_text(encoding="utf-8")
COMMANDS = [line[2:] for block in re.findall(r"^```console\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)
            for line in block.splitlines() if line.startswith("$ pagedsim")]


def test_the_commands_of_the_documentation_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Served(tmp_path, requests(20, 6, 3.0), every_us=1_000_000)
    Path("points.csv").write_text(re.search(r"^```csv\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)[1])
    written(Path("rate-2.json"), benchmark(requests(6, 1, 2.0), server(), rate=2.0, detailed=False))
    written(Path("rate-8.json"), benchmark(requests(9, 1, 8.0), server(), rate=8.0))
    written(Path("closed.json"), benchmark(requests(16, 1), server(), at_once=8))
    Path("week.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.3,396,109\n4.4,879,55\n")
    monkeypatch.setattr("experiments.calibration.descent.EXPLORED", (0.1,))          # the longest part, tested elsewhere
    monkeypatch.setattr("experiments.calibration.fit.GRID", ((0.6,), (0.4,), (3000.0,)))
    assert len(COMMANDS) == 7
    for command in COMMANDS:
        assert main(shlex.split(command)[2:]) == 0 if command.split()[1] == "calibrate" else run(
            capsys, *shlex.split(command)[1:]).status == 0, command
        for name in re.findall(r"(?:--plot|--out|--json) (\S+)", command):
            assert Path(name).stat().st_size > 0
    fitted = json.loads(Path("gauges.json").read_text())
    assert fitted["kind"] == "log" and fitted["over_time"]["compared"] > 5


def test_the_file_of_the_documentation_is_one(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(re.search(r"^```toml\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)[1])
    assert read_step_time(str(path)).numbers == TRUTH
