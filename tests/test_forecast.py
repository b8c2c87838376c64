"""What a search may need, told by a dry run: by hand, and against hunts for limits anywhere."""

import pytest
from cli_run import run
from hypothesis import given
from hypothesis import strategies as st
from test_search import ask

from experiments.whatif.forecast import search_values
from experiments.whatif.search import range_of
from experiments.whatif.search_spec import read_search


@pytest.mark.parametrize(("search", "most"), [
    ("largest = 'rate'", "2 settings x 3 seeds x 8 to 34 values of rate: 48 to at most 204 points"),   # 1 + 1 to 27 doublings + 6
    ("largest = 'rate'\nfrom = 1\nto = 4",             # 1 breaks it; 1 and 4, and from 2^2 to 1.02 seven halvings of the exponent
     "2 settings x 3 seeds x 1 to 9 values of rate: 6 to at most 54 points"),
    ("smallest = 'pool'\nfrom = 8\nto = 9",
     "2 settings x 3 seeds x 1 to 2 values of num-gpu-blocks-override: 6 to at most 12 points"),
    ("fewest = 'gpus'\ntensor-parallel-size = [1, 2]\ndata-parallel-size = [1, 2]",
     "2 settings x 3 seeds x 1 to 4 values of tensor-parallel-size, data-parallel-size: 6 to at most 24 points"),
])
def test_a_dry_run_says_what_the_search_may_need(search, most, tmp_path, capsys):
    text = f"seeds = 3\n[sweep]\nblock-size = [16, 32]\n[search]\n{search}\nkeep = 'ttft p99 <= 2 s'\n"
    (tmp_path / "s.toml").write_text(text)
    said = run(capsys, "sweep", str(tmp_path / "s.toml"), "--dry-run")
    assert said.status == 0 and said.out.splitlines()[-2:] == [
        "6 points", f"and the search: {most} more, by where the answer lies; fewer where a search ends early"]


@given(st.sampled_from(["rate", "pool", "max-num-seqs", "max-model-len"]), st.floats(-12, 27),
       st.sampled_from([0.5, 0.02, 0.003]), st.tuples(st.floats(0.01, 50), st.floats(51, 1e6)), st.integers(0, 3))
def test_no_hunt_asks_for_more_than_was_said(what, exponent, resolution, ends, which):
    table = {"smallest" if what == "pool" else "largest": what, "keep": "ttft p99 <= 2 s", "resolution": resolution}
    table |= {name: end for bit, (name, end) in enumerate(zip(("from", "to"), ends, strict=True)) if which >> bit & 1}
    search = read_search(table)
    asked = ask(range_of(search), lambda value: (value <= 2 ** exponent) is (what != "pool"))[1]
    fewest, most = search_values(search)
    assert fewest <= len(set(asked)) <= most
