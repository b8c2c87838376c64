"""Small runs by hand: requests as (prompt, output, arrival step), one microsecond a step, states as the ledger books them."""

from __future__ import annotations

import os

import numpy as np

from sim.config import SimConfig
from sim.engine import Engine
from sim.scheduler_config import SchedulerConfig
from sim.step_time import ConstantStepTime
from sim.timeline import Timeline
from workloads.request import ContentIds, Trace

LONG = int(os.environ.get("PAGEDSIM_LONG", "1"))
"""How many times as many examples the property tests of this folder draw."""


def trace_of(requests, content=None, span=4, session=None):
    """``requests`` as (prompt, output[, arrival_us]); ``content`` a list of content ids a request."""
    rows = [(*r, 0)[:3] for r in requests]
    prompt, output, arrival = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    ids = None
    if content is not None:
        starts = np.cumsum([0, *map(len, content)])
        ids = ContentIds(np.array([i for row in content for i in row], np.int64), starts, span)
    return Trace("by hand", prompt, output, arrival_us=arrival, content=ids,
                 session=None if session is None else np.array(session))


def config_of(num_blocks, block_size, max_model_len, **changes):
    scheduler = {k: changes.pop(k) for k in list(changes) if k in SchedulerConfig.__dataclass_fields__}
    changes.setdefault("step_time", ConstantStepTime(1))
    changes.setdefault("page_slots", block_size + 3)    # divides next to no pool
    return SimConfig(num_blocks=num_blocks, block_size=block_size, max_model_len=max_model_len,
                     scheduler=SchedulerConfig(**scheduler), **changes)


def states(trace, config, allocator):
    """The run, and each booked state as (time_us, (seven parts), running, waiting)."""
    timeline = Timeline(most=1 << 30)
    run = Engine(trace, config, allocator, timeline).run()
    columns = timeline.columns()
    rows = np.stack(list(columns.values()), axis=1).tolist() if len(columns["time_us"]) else []
    return run, [(row[0], tuple(row[1:8]), row[8], row[9]) for row in rows]


def parts(trace, config, allocator):
    """Only the seven parts, state by state."""
    return [state[1] for state in states(trace, config, allocator)[1]]
