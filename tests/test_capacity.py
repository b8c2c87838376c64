"""The planner's core against layouts that vLLM's own planner sized: blocks, groups, tokens, concurrency, to the digit."""

import json
from pathlib import Path

import pytest

from experiments.conformance.capacity import check

GOLDEN = Path(__file__).parent / "data" / "golden"
CASES = [case for name in ("capacity.json", "capacity_more.json") if (GOLDEN / name).exists()
         for case in json.loads((GOLDEN / name).read_text(encoding="utf-8"))["cases"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_recorded_layouts(case):
    assert check(case) == []
