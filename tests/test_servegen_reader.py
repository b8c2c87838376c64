"""ServeGen clients: which requests are drawn out of rates, gap distributions and tables of lengths."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest

from workloads.readers import READERS, ReadOptions, _sniff, read_rows, read_trace
from workloads.readers.source import open_source
from workloads.request import InputError

TABLES = {"0": {"input_tokens": "{100: 0.25, 300: 0.75}", "output_tokens": "{7: 1.0}"},
          "21600": {"input_tokens": "{}", "output_tokens": "{}"},
          "43200": {"input_tokens": "{5: 1}", "output_tokens": "{2: 0.5, 4: 0.5}"}}


def client(folder, windows, tables=TABLES, number=7, pack=False):
    """Write a client; ``windows`` as (start, rate, pattern, shape, scale), an idle one as (start,)."""
    rows = "".join(f"{w[0]},0,0,,0,0\n" if len(w) == 1 else f"{w[0]},{w[1]},1.0,{w[2]},{w[3]!r},{w[4]!r}\n" for w in windows)
    for name, text in ((f"chunk-{number}-trace.csv", rows), (f"chunk-{number}-dataset.json", json.dumps(tables))):
        (folder / (name + ".gz" * pack)).write_bytes(gzip.compress(text.encode()) if pack else text.encode())
    return folder / (f"chunk-{number}-trace.csv" + ".gz" * pack)


def gaps_s(rows):
    return np.diff(np.sort(rows.arrivals_us())) / 1e6


@pytest.mark.parametrize(("pattern", "shape", "mean", "cv"), [
    ("Gamma", 0.25, 0.25, 2.0), ("Gamma", 4.0, 4.0, 0.5), ("Weibull", 1.0, 1.0, 1.0),
    ("Weibull", 0.5, 2.0, math.sqrt(5)), ("Weibull", 2.0, math.sqrt(math.pi) / 2, math.sqrt(4 / math.pi - 1))])
def test_gaps_follow_the_pattern(tmp_path, pattern, shape, mean, cv):
    rate = 20.0                                        # scale: the mean gap is 1/rate
    path = client(tmp_path, [(600 * n, rate, pattern, shape, 1 / rate / mean) for n in range(10)])
    rows = read_rows(path, options=ReadOptions(window_s=(0, 6000)))
    found = gaps_s(rows)
    n = len(found)
    assert n > 60_000
    assert abs(found.mean() * rate - 1) < 5 * cv / math.sqrt(n) + 0.002
    assert abs(found.std() / found.mean() / cv - 1) < 0.06


def test_lengths_follow_the_tables_of_their_time(tmp_path):
    path = client(tmp_path, [(start, 10.0, "Gamma", 1.0, 0.1) for start in (0, 21600, 43200)])
    rows = read_rows(path, options=ReadOptions(window_s=(0, 600)))
    assert set(rows.prompt_tokens.tolist()) == {100, 300}
    assert set(rows.output_tokens.tolist()) == {7}
    assert abs((rows.prompt_tokens == 300).mean() - 0.75) < 0.03
    idle = read_rows(path, options=ReadOptions(window_s=(21600, 22200)))   # no table of its own: the one before
    assert set(idle.prompt_tokens.tolist()) == {100, 300}
    late = read_rows(path, options=ReadOptions(window_s=(43200, 43800)))
    assert set(late.prompt_tokens.tolist()) == {5}
    assert set(late.output_tokens.tolist()) == {2, 4}


def test_parts_of_a_prompt_are_added(tmp_path):
    tables = {"0": {"text_tokens": "{10: 1}", "image_tokens": "{200: 1}", "image_count": "{1: 1}", "audio_tokens": "{}",
                    "output_tokens": "{3: 1}"}}
    rows = read_rows(client(tmp_path, [(0, 1.0, "Gamma", 1.0, 1.0)], tables))
    assert set(rows.prompt_tokens.tolist()) == {210}


def test_idle_windows_and_the_first_busy_one(tmp_path):
    path = client(tmp_path, [(0,), (600,), (1200, 5.0, "Gamma", 1.0, 0.2), (1800,)])
    rows = read_rows(path)
    assert 500 < gaps_s(rows).sum() < 600
    assert "drawn from 1200 to 1800 s" in rows.notes[0]
    assert "3,000 requests in all" in rows.notes[0]
    with pytest.raises(InputError, match=r"no request from 0 to 1200 s \(--window START:STOP\)\Z"):
        read_rows(path, options=ReadOptions(window_s=(0, 1200)))
    with pytest.raises(InputError, match=r"no window has any request\Z"):
        read_rows(client(tmp_path, [(0,), (600,)]))


def test_a_window_in_parts_is_the_window(tmp_path):
    path = client(tmp_path, [(0, 5.0, "Weibull", 0.7, 0.15), (600, 5.0, "Gamma", 1.0, 0.2)])
    whole = read_trace(path, options=ReadOptions(window_s=(0, 600)))
    part = read_trace(path, options=ReadOptions(window_s=(300, 600)))
    assert 0.3 < len(part) / len(whole) < 0.7
    assert np.abs(np.diff(part.arrival_us) - np.diff(whole.arrival_us)[-len(part) + 1:]).max() <= 1


def test_the_same_seed_the_same_requests(tmp_path):
    path = client(tmp_path, [(0, 5.0, "Gamma", 1.0, 0.2)])
    one, again, other = (read_trace(path, options=ReadOptions(seed=seed)) for seed in (1, 1, 2))
    assert one.differences(again) == []
    assert "arrival_us" in one.differences(other)


def test_either_file_packed_or_not_is_the_client(tmp_path):
    (tmp_path / "packed").mkdir()
    one = client(tmp_path, [(0, 5.0, "Gamma", 1.0, 0.2)])
    packed = client(tmp_path / "packed", [(0, 5.0, "Gamma", 1.0, 0.2)], pack=True)
    trace = read_trace(one)
    for path in (one, one.with_name("chunk-7-dataset.json"), packed, packed.with_name("chunk-7-dataset.json.gz")):
        assert _sniff(open_source(str(path))) == "servegen"
        assert read_trace(path).differences(trace) == []
        assert read_trace(path, "servegen").differences(trace) == []


def test_a_dataset_is_known_whatever_comes_first(tmp_path):
    tables = {"0": {"output_tokens": "{3: 1}", "reason_ratio": "{}", "input_tokens": "{10: 1}"}}
    for indent in (None, 2):
        client(tmp_path, [(0, 1.0, "Gamma", 1.0, 1.0)])
        path = tmp_path / "chunk-7-dataset.json"
        path.write_text(json.dumps(tables, indent=indent))
        assert set(read_rows(path).prompt_tokens.tolist()) == {10}


def test_a_folder_is_all_clients(tmp_path):
    one = [read_rows(client(tmp_path, [(0, rate, "Gamma", 1.0, 1 / rate)], number=n)) for n, rate in ((2, 1.0), (10, 5.0))]
    (tmp_path / "chunk-11-trace.csv").write_text("0,1,1,Gamma,1,1\n")
    both = read_rows(tmp_path)
    assert len(both) == pytest.approx(len(one[0]) + len(one[1]), rel=0.1)
    assert both.notes[0].startswith("2 clients drawn from 0 to 600 s, seed 0")
    assert "3,600 requests in all" in both.notes[0]
    assert both.notes[1] == "1 clients have no dataset here and are left out"
    assert np.all(np.diff(both.arrivals_us()) >= 0)
    assert len(read_rows(tmp_path, "servegen")) == len(both)


BAD = [("0,1,1,Gamma,1", ":1: 5 fields, but a window has 6"), ("0,1,1,Pareto,1,1", ":1: column 'pattern': 'Pareto,1,1': Gamma"),
       ("0,1,1,Gamma,0,1", ":1: column 'pattern'"), ("0,1,1,Gamma,1e-300,1", ":1: column 'pattern'"),
       ("0,1,1,Weibull,0.001,1", ":1: column 'pattern'"), ("0,1,1,Weibull,1,0", ":1: column 'pattern'"),
       ("0,-1,1,Gamma,1,1", ":1: column 'rate_per_s': '-1' is not a number"), ("0,nan,1,Gamma,1,1", ":1: column 'rate_per_s'"),
       ("0,1,1,Gamma,1e400,1", ":1: column 'arg1': '1e400'"), ("x,1,1,Gamma,1,1", ":1: column 'start_s': 'x'"),
       ("0,1,1,Gamma,1,1e-11", ": 60,000,000,000,000 requests from 0 to 600 s: at most 20,000,000"),
       ("0,1e9,1,Gamma,1,1e-9", ": 600,000,000,000 requests")]


@pytest.mark.parametrize(("row", "says"), BAD)
def test_bad_windows(tmp_path, row, says):
    path = client(tmp_path, [(0,)])
    path.write_text(row + "\n")
    with pytest.raises(InputError) as caught:
        read_rows(path, "servegen")
    assert str(caught.value).startswith(f"{path}{says}")


@pytest.mark.parametrize("table", ["{1: 2", "__import__('os')", "{1: nan}", "{1.5: 1}", "{-1: 1}", "{1: -1}", "{1: 0}",
                                   "{9e9: 1}", "{1: 1e400}", "{1 2}", 5, None, "{1: 1: 1}"])
def test_bad_tables(tmp_path, table):
    path = client(tmp_path, [(0, 1.0, "Gamma", 1.0, 1.0)], {"0": {"input_tokens": "{5: 1}", "output_tokens": table}})
    with pytest.raises(InputError, match=r"chunk-7-dataset\.json:1: column 'output_tokens': .*"):
        read_rows(path)


def test_half_a_client(tmp_path):
    path = client(tmp_path, [(0, 1.0, "Gamma", 1.0, 1.0)])
    other = tmp_path / "trace.csv"
    other.write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=r"trace\.csv: a ServeGen client is two files, chunk-K-trace\.csv and chunk-K-dataset"):
        read_rows(other)
    (tmp_path / "chunk-7-dataset.json").unlink()
    with pytest.raises(InputError, match=r"chunk-7-trace\.csv: the client's other file is not beside it\Z"):
        read_rows(path)
    with pytest.raises(InputError, match=r": no client has both its trace and its dataset here\Z"):
        read_rows(tmp_path)


def test_strict_refuses_drawn_zeros(tmp_path):
    tables = {"0": {"input_tokens": "{0: 0.5, 4: 0.5}", "output_tokens": "{3: 1}"}}
    path = client(tmp_path, [(0, 1.0, "Gamma", 1.0, 1.0)], tables)
    assert read_trace(path).dropped["zero_prompt"] > 100
    with pytest.raises(InputError, match=r"chunk-7-trace\.csv: --strict: [\d,]+ of [\d,]+ rows have no token: no prompt "
                                         r"tokens \([\d,]+\)\Z"):
        read_trace(path, options=ReadOptions(strict=True))


def test_folders_of_other_formats(tmp_path):
    for name in READERS.keys() - {"servegen", "kv-cache-tester"}:
        with pytest.raises(InputError, match=r": is a directory, and only servegen and kv-cache-tester have those\Z"):
            read_rows(tmp_path, name)
