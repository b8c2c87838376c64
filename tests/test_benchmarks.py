"""Benchmarks: their requests are always the same, tables say what was measured, the absent are skipped with a reason."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from experiments.benchmarks import __main__ as command
from experiments.benchmarks import child, jobs, pages, peers, processes, profiling, traffic
from experiments.benchmarks.figures import draw_scale
from experiments.benchmarks.processes import ROOT, Failed, Job, measure, measure_all, row_of
from experiments.benchmarks.recorded import RECORDED, replay, totals
from experiments.benchmarks.tables import FLOOR, markdown
from workloads.readers import read_trace

ABSENT = dict.fromkeys(peers.PEERS, "not installed")
MACHINE = {"processors": 2, "architecture": "x86_64", "python": "3.11.7", "numpy": "2.0.0", "load_before": 1.0, "load_after": 2.0}


def plan(folder, **changed):
    return replace(jobs.Plan(folder, None, None, ABSENT), **changed)


def digest(trace):
    columns = [trace.prompt_tokens, trace.output_tokens, trace.arrival_us]
    columns += [] if trace.content is None else [trace.content.ids, trace.content.starts]
    return hashlib.sha256(b"".join(column.astype("<i8").tobytes() for column in columns)).hexdigest()[:16]


# ---------------------------------------------------------------------- requests
@pytest.mark.parametrize(("make", "count", "expected"), [
    (traffic.lognormal, 500, "e2f866ba3699e5c4"), (traffic.shared, 500, "8d48d31e5f4a342e"),
    (traffic.poisson, 500, "020e0d59e71d1056")])
def test_requests_are_the_same_everywhere(make, count, expected):
    assert digest(make(count)) == expected
    assert digest(make(count)) == digest(make(count))


def test_the_first_requests_do_not_depend_on_how_many_there_are():
    for make in (traffic.lognormal, traffic.shared, traffic.poisson):
        few, many = make(20), make(50)
        assert few.prompt_tokens.tolist() == many.prompt_tokens[:20].tolist()
        assert few.output_tokens.tolist() == many.output_tokens[:20].tolist()


def test_shared_requests_are_those_that_were_recorded():
    trace = traffic.shared()
    assert (int(trace.prompt_tokens.sum()), int(trace.output_tokens.sum())) == (188_634_540, 3_315_249)


def test_poisson_requests_have_the_means_and_limits_asked_for():
    trace = traffic.poisson()
    assert (trace.prompt_tokens.min(), trace.prompt_tokens.max()) == (16, 7_000)
    assert (trace.output_tokens.min(), trace.output_tokens.max()) == (6, 1_000)
    assert (int(trace.prompt_tokens.sum()), int(trace.output_tokens.sum())) == (19_821_406, 3_934_701)
    assert (trace.arrival_us[0], trace.arrival_us[-1]) == (0, 2_001_873_639)
    assert len(np.unique(trace.content.ids)) == len(trace.content.ids)


@pytest.mark.parametrize("trace", [traffic.lognormal(10), traffic.shared(60)], ids=["lognormal", "shared"])
def test_a_small_run_has_the_totals_of_a_sum_over_its_requests(trace):
    found = totals(replay(trace, replace(RECORDED["shared"], num_blocks=30_000)))
    states = trace.prompt_tokens + trace.output_tokens - 1         # the last token is sampled and never computed
    assert found["new_blocks"] + found["touched"] == int((-(-states // 16)).sum())
    assert found["hit_rate"] == round(16 * found["touched"] / int(trace.prompt_tokens.sum()), 4)
    assert (found["preemptions"], found["evicted"], found["touched"] > 0) == (0, 0, trace.content is not None)


def test_a_case_for_an_installed_vllm_has_the_same_requests():
    made = traffic.case(traffic.shared(2), RECORDED["shared"].config())
    assert made["config"] == {"block_size": 16, "max_num_batched_tokens": 8192, "max_num_seqs": 256, "max_model_len": 131_072,
                              "num_blocks": 100_000, "async_scheduling": False, "detail": "none"}
    first = made["requests"][0]
    assert first["hash_ids"] == traffic.shared(1).content.ids.tolist()
    assert (first["hash_block"], first["input_length"]) == (512, int(traffic.shared(1).prompt_tokens[0]))


# ---------------------------------------------------------------------- jobs and processes
def test_peers_that_are_absent_are_rows_with_a_reason(tmp_path):
    made = [job for name in ("lognormal", "dynamo") for job in jobs.BENCHMARKS[name](name, plan(tmp_path))]
    assert [(job.system, job.skipped) for job in made] == [
        ("pagedsim", None), ("vLLM 0.33", "not installed"), ("vLLM 0.33, when recorded", None), ("pagedsim", None),
        ("one pass over the block ids in numpy, nothing else", None),
        ("Dynamo 1.6.1, steps of 20 ms", "not installed"), ("Dynamo 1.6.1, its own step times", "not installed")]
    assert all(job.count == 20_000 for job in made)
    assert len(read_trace(tmp_path / "dynamo.jsonl")) == 20_000


def test_without_the_trace_its_benchmarks_are_skipped(tmp_path):
    made = [job for name in ("mooncake", "conversation") for job in jobs.BENCHMARKS[name](name, plan(tmp_path))]
    assert {job.skipped for job in made if not job.known} == {"no --mooncake FILE"}


def test_a_peer_without_a_folder_or_that_cannot_be_imported(tmp_path):
    assert peers.reasons(None, install=True) == dict.fromkeys(peers.PEERS, "no --peers folder")
    python = tmp_path / "vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    broken = replace(peers.PEERS["vllm"], module="no_such_module_here")
    assert broken.absent(str(tmp_path)) == "cannot be imported: ModuleNotFoundError: No module named 'no_such_module_here'"
    assert replace(broken, module="json").absent(str(tmp_path)) is None


@pytest.mark.parametrize("fails_at", [None, 1, 2, 3])
def test_a_peer_is_installed_step_by_step_until_one_fails(fails_at, tmp_path, monkeypatch):
    ran = []

    def run(command, **how):
        ran.append([str(part) for part in command])
        failed = len(ran) == fails_at
        return subprocess.CompletedProcess(command, int(failed), "", "WARNING: slow\nERROR: no such version\n" if failed else "")
    monkeypatch.setattr(peers.subprocess, "run", run)
    python = str(tmp_path / "vllm" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    steps = [[sys.executable, "-m", "venv", str(tmp_path / "vllm")],
             [*pip, "torch==2.13.0"],
             [*pip, "-r", str(ROOT / "tests" / "oracle" / "requirements.txt")]]
    reason = None if fails_at is None else "cannot be installed: ERROR: no such version"
    assert peers.PEERS["vllm"].install(str(tmp_path)) == reason
    assert ran == steps[:fails_at]


def test_what_is_absent_is_installed_only_if_that_is_wanted(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(peers.Peer, "install", lambda peer, folder: made.append(peer.name))
    assert peers.reasons(str(tmp_path), install=False) == ABSENT and not made
    assert peers.reasons(str(tmp_path), install=True) == ABSENT and made == ["libcachesim", "dynamo", "vllm"]


def test_vllm_comes_in_the_version_it_was_recorded_with():
    lines = peers.RECORDER.read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pinned["vllm"] == "0.33.0" and peers.PEERS["vllm"].title == "vLLM 0.33"
    assert "torch" not in pinned and len(pinned) == 64


def test_ten_million_requests_only_on_demand(tmp_path):
    assert [job.count for job in jobs.BENCHMARKS["requests"]("requests", plan(tmp_path))] == [10_000, 30_000, 100_000]
    assert [job.count for job in jobs.BENCHMARKS["requests"]("requests", plan(tmp_path, large=True))][3:] == [
        1_000_000, 10_000_000]


def test_processes_are_interleaved_and_those_of_curves_run_once():
    order = []
    made = [Job("a", "x", (sys.executable, "-c", "print('{\"totals\": 7}')")),
            Job("b", "x", (sys.executable, "-c", ""), once=True), Job("c", "x", skipped="not installed")]
    rows = measure_all(made, 2, order.append)
    assert order == ["1 of 2: a: x", "1 of 2: b: x", "2 of 2: a: x"]
    assert [(row["runs"], row["skipped"]) for row in rows] == [(2, None), (1, None), (0, "not installed")]
    assert rows[0]["totals"] == 7 and rows[0]["cpu_s"] > 0 and rows[0]["peak_mib"] > 1


def test_a_process_that_fails_is_told_in_one_line():
    job = Job("a", "x", (sys.executable, "-c", "raise SystemExit('no luck')"))
    with pytest.raises(Failed, match=r"^a, x: exit status 1: no luck$"):
        measure(job)
    rows = measure_all([job], 2, lambda line: None)
    assert rows[0]["skipped"] == "a, x: exit status 1: no luck"
    assert command.problems(rows) == ["a, x: exit status 1: no luck"]


def test_a_child_says_its_totals_and_its_peak():
    said = measure(Job("requests", "pagedsim", (sys.executable, "-m", "experiments.benchmarks.child", "scale", "30", "5000")))
    assert said["totals"]["preemptions"] == 0 and said["totals"]["steps"] > 0
    assert 0 < said["work_cpu_s"] < said["cpu_s"]


def test_one_pass_over_the_block_ids_sees_every_block(tmp_path):
    trace = traffic.poisson(40)
    jobs.write_mooncake(trace, str(tmp_path / "few.jsonl"))
    blocks = sum(-(-(p + o - 1) // 16) for p, o in zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    assert child.floor(str(tmp_path / "few.jsonl"))["totals"] == {"blocks": blocks}


def test_an_interrupt_leaves_the_rows_of_what_was_run(monkeypatch):
    def interrupted(job):
        if job.benchmark == "b":
            raise KeyboardInterrupt
        return {"cpu_s": 1.0, "wall_s": 2.0, "peak_mib": 3.0}
    monkeypatch.setattr(processes, "measure", interrupted)
    rows = measure_all([Job(name, "x", ("program",)) for name in "ab"], 3, lambda line: None)
    assert [(row["runs"], row["skipped"]) for row in rows] == [(1, None), (0, "interrupted before it had ended once")]


def test_totals_that_differ_are_an_error():
    ran = [{"cpu_s": 1.0, "wall_s": 1.0, "peak_mib": 1.0, "totals": {"steps": steps}} for steps in (3, 4)]
    job = Job("shared", "pagedsim", ("x",), expected={"steps": 3})
    assert [row_of(job, runs)["as_recorded"] for runs in (ran[:1], ran, ran[1:])] == [True, False, False]
    assert command.problems([row_of(job, ran[1:])]) == ["shared: pagedsim: totals differ from those recorded: {'steps': 4}"]


def test_curve_and_replay_count_the_same_hits(monkeypatch):
    few = traffic.shared(60)
    monkeypatch.setattr(child.traffic, "shared", lambda: few)
    for size in ("350", "1335", "20000"):
        assert child.curve(size)["totals"] == child.lru(size)["totals"]


# ---------------------------------------------------------------------- tables and pages
def result():
    def ran(benchmark, system, cpu, **more):
        return {"benchmark": benchmark, "system": system, "skipped": None, "failed": False, "count": 1000, "of": "requests",
                "runs": 3, "cpu_s": cpu, "cpu_least_s": cpu, "cpu_most_s": cpu + 1, "wall_s": 2 * cpu, "peak_mib": 50.4} | more
    skipped = ran("dynamo", "Dynamo", 1.0, skipped="not installed")
    recorded = {"benchmark": "lognormal", "system": "vLLM", "skipped": None, "count": 1000, "runs": 0, "wall_s": 80.0,
                "peak_mib": 2027.0}
    scale = [ran("requests", "pagedsim", s, count=n, num_blocks=50, work_cpu_s=s, totals={"steps": 4 * n}, peak_mib=mib)
             for n, s, mib in ((1000, 2.0, 50.0), (2000, 5.0, 50.5))]
    rows = [ran("lognormal", "pagedsim", 4.0, as_recorded=True, work_cpu_s=3.0), recorded, ran("dynamo", "pagedsim", 8.0),
            skipped, ran("dynamo", "Other", 2.0, totals={"completed": 1000}), *scale]
    return {"schema": 1, "pagedsim": "0.1.0", "date": "2026-01-02", "machine": MACHINE, "repeats": 3, "rows": rows,
            "profile": {"arguments": ["-q"], "seconds": {"scheduler": 1.0, "allocator and pool": 3.0}}}


def test_the_tables():
    text = markdown(result())
    for line in ("| lognormal | pagedsim | 3 | 4.00 | 4.00 to 5.00 | 8.00 |  | 3,000 | 50 | as recorded |",
                 "| lognormal | vLLM |  |  |  | 80.0 |  |  | 2,027 |  |",
                 "| dynamo | Dynamo | 3 |  |  |  |  |  |  | skipped: not installed |",
                 "| dynamo | Other | 3 | 2.00 | 2.00 to 3.00 | 4.00 | 0.25 | 2,000 | 50 | completed 1,000 |",
                 "| 2,000 | 50 | 8,000 | 5.00 | 2,500 | 625 | 50 |",
                 "Memory: 524 bytes for each further request, from 1,000 to 2,000 requests.",
                 "| allocator and pool | 75.0 % |", "| scheduler | 25.0 % |"):
        assert line in text.splitlines()
    assert "| requests | pagedsim" not in text


def test_the_same_rows_give_the_same_pictures(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        assert draw_scale(result()["rows"], str(tmp_path / folder)) == [str(tmp_path / folder / "requests.png")]
    assert (tmp_path / "one" / "requests.png").read_bytes() == (tmp_path / "two" / "requests.png").read_bytes()


def test_pages_hold_what_was_measured(tmp_path):
    (tmp_path / "docs").mkdir()
    for path in ("docs/speed.md", "README.md"):
        (tmp_path / path).write_text(f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n")
    pages.write_pages(result(), tmp_path)
    speed = (tmp_path / "docs" / "speed.md").read_text()
    assert speed == f"before\n{pages.BEGIN}\n{markdown(result())}{pages.END}\nafter\n"
    ours = "- `dynamo`, 1,000 requests: pagedsim 8.00 s of CPU, 50 MiB; Other 2.00 s of CPU, 50 MiB."
    assert ours in (tmp_path / "README.md").read_text().splitlines()
    with pytest.raises(ValueError, match="once each"):
        pages.between("no markers", "")


def test_our_pages_are_those_of_the_rows_beside_them():
    document = json.loads((ROOT / pages.RESULTS).read_text(encoding="utf-8"))
    for name, text in (("docs/speed.md", markdown(document)), ("README.md", pages.summary(document))):
        page = (ROOT / name).read_text(encoding="utf-8")
        assert pages.between(page, text) == page
    assert not command.problems(document["rows"])
    assert {row["benchmark"] for row in document["rows"]} == set(jobs.BENCHMARKS)


# ---------------------------------------------------------------------- profile and command
def test_what_libraries_take_counts_for_their_callers():
    pool, ledger = ((str(ROOT / "sim" / name), 1, "f") for name in ("memory/paged.py", "ledger.py"))
    wrapper, builtin = ("/lib/numpy/x.py", 1, "w"), ("~", 0, "sum")
    stats = {pool: (1, 1, 1.0, 9.0, {}), ledger: (1, 1, 2.0, 5.0, {}),
             wrapper: (4, 4, 4.0, 8.0, {pool: (3, 3, 3.0, 3.0), ledger: (1, 1, 1.0, 5.0)}),
             builtin: (4, 4, 8.0, 8.0, {wrapper: (4, 4, 8.0, 8.0)})}
    assert profiling.by_part(stats) == {"allocator and pool": 1 + 3 + 6, "ledger and request log": 2 + 1 + 2}


def test_functions_that_call_each_other_end():
    one, two = ("/lib/a.py", 1, "one"), ("/lib/a.py", 2, "two")
    stats = {one: (1, 1, 1.0, 2.0, {two: (1, 1, 1.0, 1.0)}), two: (1, 1, 1.0, 2.0, {one: (1, 1, 1.0, 1.0)})}
    assert profiling.by_part(stats) == {"interpreter": 2.0}


def test_help_and_arguments(capsys):
    shown = subprocess.run([sys.executable, "-m", "experiments.benchmarks", "--help"], cwd=ROOT, capture_output=True, text=True,
                           check=True).stdout
    assert "examples:" in shown and all(name in shown for name in command.NAMES)
    with pytest.raises(SystemExit) as left:
        command.main(["quick"])
    assert left.value.code == 2 and "unknown benchmark 'quick'" in capsys.readouterr().err


def test_a_result_is_shown_again(tmp_path, capsys):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(result()))
    assert command.main(["--from", str(path), "--plot", str(tmp_path)]) == 0
    assert capsys.readouterr().out == markdown(result())
    assert (tmp_path / "requests.png").stat().st_size > 0
    path.write_text("{}")
    assert command.main(["--from", str(path)]) == 2
    assert capsys.readouterr().err == f"experiments.benchmarks: error: {path}: no result of the benchmarks\n"
    assert command.main(["--plot", str(tmp_path / "none")]) == 2


# ---------------------------------------------------------------------- what goes wrong
@pytest.mark.parametrize(("arguments", "message"), [
    (["lru", "--docs"], "--docs is for all benchmarks: no names beside it"),
    (["lru", "--from", "x.json"], "--from is for all benchmarks: no names beside it"),
    (["--install"], "--install wants --peers DIR, the folder to install into"),
    (["--from", "none.json"], "none.json: no such file or directory"),
    (["--from", "cut.json"], "cut.json: no JSON: "),
    (["--from", "picture.json"], "picture.json: no JSON: "),
    (["--from", "other.json"], "other.json: no result of the benchmarks"),
])
def test_wrong_options_and_files_are_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cut.json").write_text('{"rows": [', encoding="utf-8")
    (tmp_path / "picture.json").write_bytes(bytes([137, 80, 78, 71]))
    other = {"machine": 1, "repeats": 3, "pagedsim": "", "date": "", "rows": [{"a": 1}]}
    (tmp_path / "other.json").write_text(json.dumps(other), encoding="utf-8")
    assert command.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"experiments.benchmarks: error: {message}") and said.err.count("\n") == 1


def test_a_peer_whose_python_is_broken_is_a_row_with_a_reason(tmp_path):
    python = tmp_path / "dynamo" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("no program", encoding="utf-8")
    assert peers.PEERS["dynamo"].absent(str(tmp_path)) == "its Python cannot be run: Permission denied"
    python.chmod(0o755)
    assert peers.PEERS["dynamo"].absent(str(tmp_path)) == "its Python cannot be run: Exec format error"


def test_a_cache_that_counts_no_hits_is_no_result():
    counted = (("a", {"hits": 5}), ("b", None))
    rows = [{"benchmark": "lru", "system": name, "runs": 3, "totals": totals} for name, totals in counted]
    assert command.problems(rows) == ["lru: b says no hits"]


def test_an_interruption_ends_with_130_and_leaves_the_pages_alone(monkeypatch, capsys):
    def stopped(job):
        raise KeyboardInterrupt
    monkeypatch.setattr(processes, "measure", stopped)
    monkeypatch.setattr(command, "NAMES", ("lognormal",))              # all there are
    monkeypatch.setattr(command, "write_pages", lambda *_: pytest.fail("a page was written"))
    assert command.main(["--docs", "-q"]) == 130
    assert "interrupted before it had ended once" in capsys.readouterr().out

    def at_once(options):
        raise KeyboardInterrupt
    monkeypatch.setattr(command, "run", at_once)
    assert command.main(["lognormal"]) == 130
    assert capsys.readouterr().err == "experiments.benchmarks: interrupted before anything was measured\n"


def test_the_readme_leaves_out_what_nobody_can_reach():
    rows = [*result()["rows"], result()["rows"][-1] | {"benchmark": "dynamo", "system": FLOOR}]
    assert FLOOR in markdown(result() | {"rows": rows})
    assert FLOOR not in pages.summary({"rows": rows})
