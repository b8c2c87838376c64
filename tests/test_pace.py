"""The times of steps in a row: both forms against a list of times, and the steps of a server against its clock."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, config_of, trace_of
from test_relations import everything, workloads

from sim.engine import Engine
from sim.memory.allocator import Taken
from sim.pace import EqualSteps, UnequalSteps, decode_pace
from sim.run import Observer
from sim.server import Server
from sim.step_time import ConstantStepTime, RooflineStepTime, StepLoad

paces = st.one_of(st.builds(EqualSteps, st.integers(1, 9), st.integers(1, 12)),
                  st.builds(UnequalSteps, st.lists(st.integers(1, 9), min_size=1, max_size=12)))


def durations_of(pace):
    return [pace.us] * pace.steps if isinstance(pace, EqualSteps) else pace._durations


@given(paces, st.data())
def test_all_times_are_those_of_the_list(pace, data):
    durations = durations_of(pace)
    starts = [sum(durations[:i]) for i in range(len(durations))]
    assert pace.steps == len(durations) and list(pace.offsets) == starts and pace.total_us == sum(durations)
    assert pace.ramp_us == sum(i * us for i, us in enumerate(durations))
    for time_us in range(-2, pace.total_us + 2):
        assert pace.begun_before(time_us) == sum(start < time_us for start in starts)
    first = data.draw(st.integers(0, pace.steps - 1))
    stop = data.draw(st.integers(first + 1, pace.steps))
    assert durations_of(pace.part(first, stop)) == durations[first:stop]


def test_decode_steps_take_what_the_model_says_one_by_one():
    roofline = RooflineStepTime(1e6, 1000, 1e3, 10.0, 1e9, 1e9, overhead_us=7.5)
    pace = decode_pace(roofline, sequences=3, context=100, steps=5)
    assert durations_of(pace) == [roofline.duration_us(StepLoad(3, 3, 100 + 3 * i, 100 + 3 * i)) for i in range(5)]
    assert len(set(durations_of(pace))) > 1

    class Doubling(ConstantStepTime):                  # not a constant any more
        def duration_us(self, load):
            return 2 * load.context_tokens
    assert durations_of(decode_pace(Doubling(1), 1, 5, 3)) == [10, 12, 14]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(1, 16)), max_size=9), paces)
def test_what_is_to_come_adds_up_over_time(blocks, pace):
    """A block taken when `n` steps are made is to come in the first `n` of them."""
    blocks = [(min(after, pace.steps - 1), evicted, slots) for after, evicted, slots in sorted(blocks)]
    each = {after: [b for b in blocks if b[0] == after] for after, _, _ in blocks}
    taken = Taken(list(each), [len(b) for b in each.values()], [sum(b[1] for b in bs) for bs in each.values()],
                  [sum(b[2] for b in bs) for bs in each.values()])
    by_step = [(us, [b for b in blocks if b[0] > step]) for step, us in enumerate(durations_of(pace))]
    assert taken.to_come(pace.offsets) == (
        sum(us * len(left) for us, left in by_step), sum(us * sum(b[1] for b in left) for us, left in by_step),
        sum(us * sum(b[2] for b in left) for us, left in by_step))


class Told(Observer):
    """All that an observer is told, in order; steps of a jump one by one."""

    def __init__(self):
        self.rows = []

    def arrived(self, now_us, request):
        self.rows.append(("arrives", now_us, request))

    def scheduled(self, now_us, step):
        self.rows.append(("step", now_us, step.new_tokens, step.admitted, step.preempted))

    def jumped(self, jump):
        self.rows += [("grows", start) for start in jump.starts_us.tolist()]

    def updated(self, now_us, finished):
        if finished:
            self.rows.append(("end", now_us, finished))


@settings(max_examples=100 * LONG, deadline=None)
@given(workloads(), st.sampled_from(["paged-prefix", "contiguous-oracle"]), st.sampled_from([1, 1024]))
def test_steps_made_ahead_of_the_clock_are_those_made_by_it(made, allocator, jump):
    """While nobody arrives and nobody leaves, a server that knows so goes on without its clock: that must not be seen."""
    trace, config = made
    config = config.__class__(**{**vars(config), "longest_jump": jump})
    told, runs = [], []
    begin = Server.begin
    for ahead in (True, False):
        told.append(Told())
        Server.begin = begin if ahead else lambda self, now, next_us=None: begin(self, now)
        try:
            runs.append(everything(Engine(trace, config, allocator, observers=[told[-1]]).run()))
        finally:
            Server.begin = begin
    assert runs[0] == runs[1]
    assert sorted(told[0].rows, key=lambda row: row[1]) == sorted(told[1].rows, key=lambda row: row[1])


def test_nobody_is_late_where_arrivals_are_looked_at_in_the_middle_of_a_step():
    """Steps of 10 us. Request 1 arrives at 15, in the second step, and is admitted at 20; request 2 at 20, and is too."""
    told = Told()
    trace = trace_of([(4, 9, 0), (4, 1, 15), (4, 1, 20)])
    Engine(trace, config_of(20, 4, 16, step_time=ConstantStepTime(10)), "paged", observers=[told]).run()
    assert [row[:3] for row in told.rows if row[0] != "grows"] == [
        ("arrives", 0, 0), ("step", 0, 4), ("arrives", 15, 1), ("arrives", 20, 2), ("step", 20, 9), ("end", 30, [1, 2]),
        ("end", 90, [0])]
    assert [row[1] for row in told.rows if row[0] == "grows"] == [10, *range(30, 90, 10)]
    assert np.diff([row[1] for row in told.rows]).min() >= 0


def test_whoever_arrives_as_a_step_ends_is_looked_at_then():
    """Steps of 10 us, a budget of 8 tokens. Request 0 is prefilled alone in chunks of 8; request 1 arrives as the second ends:
    as long as two are there, none gets more than 4 of its prompt a step, so it joins at once. So does request 2, in a step."""
    told = Told()
    config = config_of(30, 4, 64, step_time=ConstantStepTime(10), max_num_seqs=8, max_num_batched_tokens=8,
                       long_prefill_token_threshold=4)
    Engine(trace_of([(40, 9, 0), (4, 1, 20), (4, 1, 35)]), config, "paged", observers=[told]).run()
    steps = [(now, new, [a[0] for a in admitted]) for _, now, new, admitted, _ in (row for row in told.rows if row[0] == "step")]
    assert steps[:6] == [(0, 8, [0]), (10, 8, []), (20, 8, [1]), (30, 8, []), (40, 8, [2]), (50, 8, [])]
