"""The running set against a plain record a sequence: the same columns, ends and full blocks after every operation."""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sim.batch import Batch
from sim.block_calendar import BlockCalendar, Some

SIZES = (1, 3, 4)
NAMES = ("request", "handle", "computed", "target", "end", "member")


class BatchWalk(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.batch, self.rows, self.made = Batch(), [], 0

    def prefilling(self):
        return [place for place, row in enumerate(self.rows) if row["computed"] < row["target"]]

    def new_row(self, computed, more, left):
        target = computed + more
        self.made += 1
        return {"request": self.made // 2, "handle": self.made, "computed": computed, "target": target, "end": target + left,
                "member": self.made % 2}

    @rule(computed=st.integers(1, 9), more=st.sampled_from([0, 0, 1, 6]), left=st.integers(0, 20))
    def append(self, computed, more, left):
        row = self.new_row(computed, more, left)
        self.rows.append(row)
        self.batch.append(tuple(row.values()))

    @precondition(lambda self: self.rows)
    @rule(place=st.integers(0, 9), computed=st.integers(1, 9), left=st.integers(0, 20), several=st.integers(1, 3))
    def insert(self, place, computed, left, several):
        place %= len(self.rows) + 1
        rows = [self.new_row(computed, 0, left) for _ in range(several)]
        self.rows[place:place] = rows
        self.batch.insert(place, [tuple(row.values()) for row in rows])

    @precondition(lambda self: self.rows)
    @rule(which=st.sets(st.integers(0, 9), min_size=1), backwards=st.booleans())
    def remove(self, which, backwards):
        places = sorted({place % len(self.rows) for place in which}, reverse=backwards)
        self.batch.remove(places)
        for place in sorted(places, reverse=True):
            del self.rows[place]

    @precondition(lambda self: self.rows and not self.prefilling())
    @rule(steps=st.integers(1, 9))
    def grow(self, steps):
        steps = min(steps, *(row["end"] - row["computed"] for row in self.rows), 9)
        if steps > 0:
            self.batch.grow(steps)
            for row in self.rows:
                row["computed"] += steps

    @precondition(lambda self: self.prefilling() == [len(self.rows) - 1])
    @rule(tokens=st.integers(1, 6))
    def grow_behind(self, tokens):
        *others, last = self.rows
        if all(row["computed"] < row["end"] for row in others):
            tokens = min(tokens, last["target"] - last["computed"])
            self.batch.grow_behind(tokens)
            last["computed"] += tokens
            for row in others:
                row["computed"] += 1

    @precondition(lambda self: self.rows)
    @rule(wanted=st.lists(st.integers(0, 8), min_size=1, max_size=9))
    def compute(self, wanted):
        new = [min(wanted[i % len(wanted)], row["target"] - row["computed"] if row["computed"] < row["target"]
                   else min(1, row["end"] - row["computed"])) for i, row in enumerate(self.rows)]
        self.batch.compute(np.array(new))
        for row, tokens in zip(self.rows, new, strict=True):
            row["computed"] += tokens

    @precondition(lambda self: self.rows and not self.prefilling())
    @rule(steps=st.integers(1, 4), every=st.integers(2, 3))
    def grow_some(self, steps, every):
        places = [i for i, row in enumerate(self.rows) if i % every and row["end"] - row["computed"] >= steps]
        self.batch.grow_some(np.array(places, np.int64), steps)
        for place in places:
            self.rows[place]["computed"] += steps

    @precondition(lambda self: self.rows)
    @rule(place=st.integers(0, 9), more=st.integers(0, 3))
    def write(self, place, more):
        place %= len(self.rows)
        row = self.rows[place]
        row["target"] = min(max(row["target"], row["computed"]) + more, row["end"])
        self.batch.target[place] = row["target"]
        self.batch.changed()

    @invariant()
    def columns_agree(self):
        assert len(self.batch) == len(self.rows)
        for name in NAMES:
            assert getattr(self.batch, name).tolist() == [row[name] for row in self.rows], name
        for place, row in enumerate(self.rows):
            assert self.batch.row(place) == (row["request"], row["handle"], row["computed"], row["target"])
            assert self.batch.decodes(place) == (row["computed"] >= row["target"])

    @invariant()
    def ends_agree(self):
        ended = [place for place, row in enumerate(self.rows) if row["computed"] == row["end"]]
        assert self.batch.ended() == ended
        assert self.batch.may_have_ended() or not ended
        if self.rows and not self.prefilling():
            assert self.batch.until_end() == min(row["end"] - row["computed"] for row in self.rows)

    @invariant()
    def full_blocks_agree(self):
        size = SIZES[self.made // 6 % len(SIZES)]      # a calendar is made anew for another size
        decoding = [row for row in self.rows if row["computed"] >= row["target"]]
        assert self.batch.due(size, 5) == full_blocks(decoding, size, 5)
        lead = next(iter(self.prefilling()), len(self.rows))
        front = self.batch.first(lead)
        assert front.due(size, 4) == full_blocks(self.rows[:lead], size, 4) and len(front) == lead
        assert front.handle.tolist() == [row["handle"] for row in self.rows[:lead]]
        assert front.computed.tolist() == [row["computed"] for row in self.rows[:lead]]


def full_blocks(rows, size, steps):
    return [[row["handle"] for row in rows if (row["computed"] + n) % size == 0] for n in range(steps + 1)]


TestBatchWalk = BatchWalk.TestCase


def test_a_page_holds_its_sequences_in_the_order_of_admission():
    calendar = BlockCalendar(16)
    for handle, full_at in ((5, 3), (2, 19), (9, -13), (4, 4)):
        calendar.add(handle, full_at)
    assert calendar.due(3, 1) == [[5, 2, 9], [4]] and calendar.members == 4
    calendar.strike(2, 3)                              # a block earlier: the same page
    assert calendar.due(19, 17) == [[5, 9], [4], *[[]] * 14, [5, 9], [4]] and calendar.members == 3
    with pytest.raises(ValueError, match="not in list"):
        calendar.strike(2, 3)


def test_somebody_without_a_token_needs_a_block_at_once():
    assert Some(np.array([3, 1]), np.array([0, 31])).due(16, 1) == [[3], [1]]
