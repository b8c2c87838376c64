"""Exercises whose right answers were worked out by hand, on paper, from the rules of docs/rules.md and the ledger.

Run as a script it prints the answers that the simulator on the path gives to the levels named, as JSON: tests plant bugs in
a copy.
"""

from __future__ import annotations

import json
import sys

from experiments.quiz import holes, rounding
from experiments.quiz.levels import load
from experiments.quiz.served import Plan

RIGHT = {
    # r1 0-7, r2 8-11, r3 12-23, r4 24-27; without r1 and r3 holes of 8 at 0, 12 at 12, 4 at 28. Asked for: 4, 12, 5.
    "holes": [(holes.Plan(32, ((5, 4), (3, 2), (7, 6), (3, 2), (3, 2), (7, 6), (3, 3)), (0, 2)),
               ["24 slots free, the largest hole has 12", "r5 at 0, r6 at 12, r7 does not fit", "r5 at 28, r6 at 12, r7 at 0",
                "8 slots"]),
              # Holes of 20 at 0 and 15 at 23; asked for: 12, 13, 8. Best fit leaves 7 and 3.
              (holes.Plan(41, ((13, 8), (2, 2), (10, 6), (2, 2), (8, 5), (9, 5), (5, 4)), (0, 2)),
               ["35 slots free, the largest hole has 20", "r5 at 0, r6 at 23, r7 at 12", "r5 at 23, r6 at 0, r7 does not fit",
                "10 slots"])],
    # 2 x 32 x 8 x 128 x 2 bytes; 40 GiB / 2 MiB; 20,480 / 63; 48 slots, ends with 38 tokens; 1000 - 38; 30 + 16, so 64.
    "rounding": [(rounding.Plan(rounding.Model(32, 8, 128, "bfloat16"), 40, 16, 1000, 30, 9, 35),
                  ["131,072 bytes", "20,480 blocks", "325.08x", "3 blocks", "13 empty: 3 reserved, 10 internal", "962 slots",
                   "46 asked for, 64 given"]),
                 # 2 x 28 x 4 x 80; 3 GiB / 143,360 = 22,469.49; / 63; 48 slots full, ends with 59; 500 - 59; 28 + 32, so 64.
                 (rounding.Plan(rounding.Model(28, 4, 80, "fp8"), 3, 8, 500, 28, 32, 48),
                  ["17,920 bytes", "22,469 blocks", "356.65x", "6 blocks", "0 empty: 0 reserved, 0 internal", "441 slots",
                   "60 asked for, 64 given"])],
    # r1 1 2, r2 3 4 5, r3 6 and in step 3 7; r2 has 37 + 4 tokens in step 5. Step 6: r1 its 33rd, r4 in 48 slots with 40 of 43.
    "paging": [(Plan(12, 16, ((28, 40, 1), (37, 5, 1), (15, 30, 1), (40, 4, 6), (50, 5, 6))),
                ["5, 4, 3, 8, 9, 10, 11", "r1 gets 5", "4, 3, 8", "no", "30 reserved, 5 internal"]),
               # r1 1 2, r2 3 4 5 6, r3 7; r2 ends with step 3. Step 4: r3 its 5th of 7, r4 9 of 15, r5 6 of 13.
               (Plan(11, 4, ((5, 6, 1), (14, 3, 1), (2, 6, 1), (9, 7, 4), (6, 8, 4))),
                ["6, 5, 4, 3, 8, 9, 10", "r3 gets 6", "5, 4, 3", "yes", "7 reserved, 1 internal"])],
    # r1 1-4 ends with step 3, all full; r2 1 2 5 6. r3 finds A B C, of which C in block 3 lies free; new 7.
    "sharing": [(Plan(11, 4, ((14, 3, 1), (13, 8, 2), (16, 4, 4)), ((0, 1, 2), (0, 1, 7), (0, 1, 2, 15))),
                 ["12 tokens, in 1, 2, 3", "2 leave, 1 of them new", "1, 2, 3, 7", "block 1: 2, block 2: 2", "8 slots"]),
                # A B C D are all there, and one token must be left: D is not asked for. r1's open block 5 is in front.
                (Plan(11, 4, ((17, 2, 1), (9, 6, 2), (16, 4, 3)), ((0, 1, 2, 3), (0, 7), (0, 1, 2, 3))),
                 ["12 tokens, in 1, 2, 3", "3 leave, 1 of them new", "1, 2, 3, 5", "block 1: 2", "4 slots"])],
    # r1 1 2 (2 of 4 in block 2), r2 3 4 (both full), r3 5 6.
    "copy-on-write": [(Plan(13, 4, ((6, 4, 1), (8, 3, 1), (5, 3, 1)), samples=(3, 2, 1)),
                       ["block 1: 3, block 2: 3, block 3: 2, block 4: 2", "r1a copies 2 into 7, r1b copies 2 into 8",
                        "r1a: 1, 7; r1b: 1, 8; r1c: 1, 2; r2a: 3, 4, 9; r2b: 3, 4, 10", "10 held, 14 without sharing"])],
    # r1 1-4 ends with step 2 (block 4 open), r2 5 6 7 with step 3 (all full). r3 takes C; r4 finds A B and takes 7 6.
    "eviction": [(Plan(10, 4, ((13, 2, 1), (10, 3, 1), (13, 3, 4), (14, 3, 4)), ((0, 1, 2), (3, 4), (5, 6, 7), (0, 1, 2))),
                  ["4, 8, 9, 3, 2, 1, 7, 6, 5", "4, 8, 9, 3", "3, 7, 6", "8 tokens, in 1, 2", "5"])],
    # r1 1 and in step 2 6, r2 2 3, r3 4 5; step 4: r2 wants its 9th slot. r1 ends with step 5; r3 has 5 + 3 tokens.
    "preemption": [(Plan(7, 4, ((4, 5, 1), (6, 8, 1), (5, 9, 1), (9, 2, 2)), ((0,), (1,), (2,), (3, 4))),
                    ["r3", "r2 gets 5", "4", "r3, r4 wait; admitted: nobody", "step 6", "8 tokens: 4 found, 4 computed"]),
                   (Plan(7, 4, ((4, 5, 1), (6, 8, 1), (5, 9, 1), (9, 2, 2))),
                    ["r3", "r2 gets 5", "4", "r3, r4 wait; admitted: nobody", "step 6", "8 tokens: 0 found, 8 computed"])],
}


def answers(level):
    """What the simulator answers to the plans of a level."""
    return [[question.answer for question in load(level).work(plan).questions] for plan, _ in RIGHT[level]]


if __name__ == "__main__":
    json.dump({level: answers(level) for level in sys.argv[1:]}, sys.stdout)
