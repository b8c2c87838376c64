"""Runs as the memory map records them, and its changes applied one after the other, as the page's script does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from small import config_of, trace_of

from experiments.cli import main
from experiments.html.page import data_block, provenance, render
from experiments.viewer.changes import MOST_WAITING
from experiments.viewer.document import LaneLog, document
from experiments.viewer.legend import PARTS, WORDS
from experiments.viewer.record import Frame
from experiments.viewer.snapshot import Snapshot
from experiments.viewer.wording import Names
from experiments.viewer.workload import MAX_MODEL_LEN, NUM_BLOCKS, small_workload
from sim.config import HostMemory, SimConfig
from sim.engine import Engine
from sim.run import Run
from sim.timeline import Timeline
from workloads.request import Trace

WORKED = [(5, 3), (6, 1)]                              # the worked example of the ledger: 20 slots, blocks of 4
SMALL = small_workload()
SMALL_CONFIG = SimConfig(NUM_BLOCKS, 16, MAX_MODEL_LEN, longest_jump=1, page_slots=48)
WAYS = {
    "async": {"async_scheduling": True}, "priority": {"policy": "priority"}, "static": {"batching": "static"},
    "swap": {"swap_blocks": 50}, "watermark": {"watermark": 0.1}, "budget": {"max_num_batched_tokens": 40, "max_num_seqs": 40},
    "ungated": {"reserve_full_isl": False, "max_num_batched_tokens": 40, "max_num_seqs": 40},
}


def made(way):
    """The built-in workload and its pool, with options changed: one of `WAYS`, or another word below."""
    trace, config = SMALL, SMALL_CONFIG
    if way in WAYS:
        config = replace(config, scheduler=replace(config.scheduler, **WAYS[way]))
    if way == "priority":
        trace = replace(trace, priority=np.arange(len(trace)) % 3)
    if way == "first-fit":
        config = replace(config, placement="first-fit")
    if way == "tier":
        config = replace(config, host_memory=HostMemory(40, 1000, 10**9))
    if way in ("samples", "beams"):
        trace = replace(trace, **{"samples" if way == "samples" else "beam_width": np.array([1, 2, 3, 1] * 10)})
    return trace, config


class Kept(LaneLog):
    """Writes down as the page has it, and keeps the frames as well."""

    def frame(self, frame: Frame) -> None:
        self.frames.append(frame)
        super().frame(frame)


class Seen(NamedTuple):
    run: Run
    log: Kept
    booked: dict[int, tuple[int, ...]]
    """The ledger's seven parts from each time on, by the engine's own samples."""

    @property
    def frames(self):
        return self.log.frames

    @property
    def sentences(self):
        return [(frame.time_us, *sentence) for frame in self.frames for sentence in frame.sentences]

    def said(self, *kinds):
        return [text for _, kind, text in self.sentences if kind in kinds]


def names_of(trace: Trace) -> list[str]:
    return [f"r{request}" for request in range(len(trace))]


def seen(trace, config, allocator, kept=None, warm=None) -> Seen:
    """A run and what the map records of it; ``kept`` as of `LaneLog`."""
    log, timeline = Kept(allocator, Names(names_of(trace)), kept), Timeline(most=1 << 40)
    run = Engine(trace, config, allocator, timeline, [log], warm=warm).run()
    columns = np.stack(list(timeline.columns().values()), axis=1).tolist()
    return Seen(run, log, {row[0]: tuple(row[1:8]) for row in columns})


def small(requests, allocator, num_blocks, block_size=4, max_model_len=32, content=None, kept=None, **changes):
    """`seen` for requests by hand, one microsecond a step."""
    config = config_of(num_blocks, block_size, max_model_len, longest_jump=1, **changes)
    return seen(trace_of(requests, content), config, allocator, kept)


# ---------------------------------------------------------------------- pages
def built_in(folders):
    """The map of the built-in workload, as a newcomer makes it; ``folders`` is pytest's tmp_path_factory."""
    path = folders.mktemp("view") / "map.html"
    assert main(["view", "--html", str(path), "-q"]) == 0
    return path


def written(path, lanes, labels, words=("view",), source="by hand"):
    """A page of recorded lanes."""
    data = data_block("run", document(lanes, labels))
    path.write_text(render("view.html", title="Memory map", traffic=source, notes=[source],
                           block_size=16, lanes="these", parts=PARTS, words=WORDS, provenance=provenance(words), data=data))
    return path


# ---------------------------------------------------------------------- what the script does with the changes
def lane_json(log: LaneLog, run: Run) -> dict[str, Any]:
    stops = sorted(log.stops)
    return log.lane({stop: i for i, stop in enumerate(stops)}, run, None)


def unpacked(numbers):
    """Numbers as they were before `packed`."""
    return [n for one in numbers for n in ([one] if isinstance(one, int) else
                                           [one[0] + i * (1 if one[1] > 0 else -1) for i in range(abs(one[1]))])]


def changed(old, change):
    """A list after a `list_change`."""
    popped, (dropped, front, back) = change[0], map(unpacked, change[1:])
    return [*front, *(one for one in old[popped:] if one not in dropped), *back]


def applied(lane: dict[str, Any]):
    """The state after each frame: rows, waiting, how many wait, queue, findable, holes, parts."""
    state: dict[str, Any] = {"rows": {}, "w": [], "v": 0, "q": [], "findable": set(), "h": [], "l": []}
    for change in [lane["first"], *lane["frames"]]:
        _rows(state["rows"], change, lane["arena"])
        for key in ("w", "q"):
            if key in change:
                state[key] = changed(state[key], change[key])
        state["findable"] = (state["findable"] - set(unpacked(change.get("e", [])))) | set(unpacked(change.get("d", [])))
        state |= {key: change[key] for key in ("v", "h", "l") if key in change}
        yield {**state, "rows": {name: dict(row) for name, row in state["rows"].items()}}


def _rows(rows, change, arena):
    for number in change.get("x", []):
        del rows[number]
    for row in rows.values():
        row["computed"] += change.get("u", 0)
    for number, computed in change.get("c", []):
        rows[number]["computed"] = computed
    for number, start, blocks in change.get("b", []):
        rows[number]["held"] = rows[number]["held"][:start] + unpacked(blocks)
    ends = change.get("a", [])
    for number, block in zip(ends[::2], ends[1::2], strict=True):
        rows[number]["held"] = rows[number]["held"] + [block]
    for number, admitted, computed, end, held in change.get("n", []):
        rows[number] = {"admitted": admitted, "computed": computed, "end": end,
                        "held": held if arena else unpacked(held)}


def state_of(pool: Snapshot, keys) -> dict[str, Any]:
    """A snapshot in the form of `applied`."""
    rows = {keys.index(key): {"admitted": row.admitted_us, "computed": row.computed, "end": row.end,
                              "held": list(row.blocks) if row.place is None else list(row.place)}
            for key, row in pool.rows.items()}
    return {"rows": rows, "w": list(pool.waiting[:MOST_WAITING]), "v": len(pool.waiting), "q": pool.queue.tolist(),
            "findable": set(np.flatnonzero(pool.findable).tolist()), "h": [list(hole) for hole in pool.holes],
            "l": list(pool.parts)}
