"""Moving pictures: what a map of the pool shows is what the ledger counts; frames, colours, size, bytes, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cli_run import lengths, run
from matplotlib.colors import to_rgb
from PIL import Image

from experiments import animation
from experiments.animation import Film, animate
from experiments.figures import STYLES
from experiments.pool_map import in_cells, slot_map
from sim.catalog import ALLOCATORS
from sim.config import SimConfig
from sim.engine import Engine
from sim.memory.allocator import PARTS
from sim.run import Observer
from sim.scheduler_config import SchedulerConfig
from sim.step_time import ConstantStepTime
from workloads.request import Trace
from workloads.synthetic import chat_workload

TWO = Trace("two", np.array([5, 6]), np.array([3, 1]), arrival_us=np.array([0, 0]))
SMALL = SimConfig(num_blocks=6, block_size=4, max_model_len=8, page_slots=3, longest_jump=1, step_time=ConstantStepTime(10))


class Maps(Observer):
    """The map after every n-th schedule(), each preemption and each end, and whether it counts up to the seven parts."""

    def __init__(self, every):
        self.seen, self.wrong, self.parts, self.steps, self.every = [], [], set(), 0, every

    def started(self, allocator, scheduler):
        self.allocator, self.scheduler = allocator, scheduler

    def look(self):
        slots = slot_map(self.allocator, self.scheduler)
        counted = np.bincount(slots, minlength=len(PARTS)).tolist()
        parts = [int(part) for part in self.allocator.counts(self.scheduler.computed, self.scheduler.refused)]
        self.seen.append(slots.tolist())
        self.parts |= {part for part, n in zip(PARTS, parts, strict=True) if n}
        if counted != parts:
            self.wrong.append((counted, parts))

    def scheduled(self, now_us, step):
        self.steps += 1
        if self.steps % self.every == 0 or step.preempted:
            self.look()

    def updated(self, now_us, finished):
        if finished:
            self.look()


def maps(trace, config, allocator, every=1):
    seen = Maps(every)
    Engine(trace, config, allocator, observers=[seen]).run()
    return seen


# ---------------------------------------------------------------------- the map
def test_the_worked_example_of_the_ledger():
    """Block 4, five blocks; a has 5 + 3 tokens, b 6 + 1: by hand."""
    paged = maps(TWO, SMALL, "paged").seen
    a, b, nobody = [0, 0, 0, 0, 0, 1, 1, 2], [0, 0, 0, 0, 0, 0, 2, 2], [6] * 4
    assert paged[0] == [*a, *b, *nobody]                                   # token states 11, reserved 2, internal 3, idle 4
    assert paged[1] == [*a, *[6] * 12]                                     # b has ended
    assert paged[2] == [0, 0, 0, 0, 0, 0, 1, 2, *[6] * 12]
    longest = maps(TWO, SMALL, "contiguous-max").seen
    assert longest[0] == [*a, *b, *nobody]                                 # 8 slots each, at 0 and 8
    third = replace(TWO, prompt_tokens=np.array([5, 6, 4]), output_tokens=np.array([3, 1, 2]), arrival_us=np.zeros(3, int))
    assert maps(third, SMALL, "contiguous-max").seen[0] == [*a, *b, *[5] * 4]      # 4 slots are too few for the third
    rounded = maps(third, replace(SMALL, num_blocks=7), "contiguous-oracle").seen      # 7, 6 and 5 slots asked for, 8 taken
    assert rounded[0] == [*[0] * 6, 4, 4, *[0] * 4, 1, 4, 4, 4, *[0] * 5, 1, 1, 4]     # a in the cut of 8, as it fits best


def test_what_is_cached_and_what_is_shared():
    trace = chat_workload(np.random.default_rng(3), requests=2)
    seen = maps(trace, SimConfig(num_blocks=300, max_model_len=4096), "paged-prefix")
    assert not seen.wrong and "cached" in seen.parts


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("beams", [None, np.array([1, 3, 2, 1, 4] * 5)])
def test_counted_a_map_is_the_ledger(allocator, beams):
    """Under pressure, whatever shares, copies, is preempted or is reserved ahead."""
    trace = chat_workload(np.random.default_rng(1), requests=25, rate_per_s=40.0)
    if beams is not None:
        trace = replace(trace, beam_width=beams)
    config = SimConfig(num_blocks=220, max_model_len=1024, page_slots=100)
    seen = maps(trace, config, allocator, every=3)
    assert len(seen.seen) > 25 and not seen.wrong
    assert {"token_states", "reserved" if allocator != "token" else "remainder", "idle"} <= seen.parts


@pytest.mark.parametrize("config", [SchedulerConfig(swap_blocks=500), SchedulerConfig(async_scheduling=True),
                                    SchedulerConfig(batching="static")])
def test_so_it_is_under_other_schedulers(config):
    trace = chat_workload(np.random.default_rng(2), requests=25, rate_per_s=40.0)
    seen = maps(trace, SimConfig(num_blocks=220, max_model_len=1024, scheduler=config), "paged-prefix", every=3)
    assert len(seen.seen) > 25 and not seen.wrong


def test_a_cell_has_the_part_of_most_of_its_slots():
    assert in_cells(np.array([0, 1, 1, 2, 2, 2, 6], np.uint8), 4).tolist() == [1, 2]
    assert in_cells(np.array([3, 0, 0, 3], np.uint8), 4).tolist() == [0]               # of equal ones the first


def test_other_allocators_have_no_map():
    with pytest.raises(ValueError, match="no map of a object"):
        slot_map(object(), Engine(TWO, SMALL, "paged").scheduler)


# ---------------------------------------------------------------------- films
def film(allocator="paged"):
    made = Film(4)
    Engine(TWO, replace(SMALL, longest_jump=99), allocator, observers=[made]).run()
    return made


def test_frames_have_the_state_from_their_time_on():
    frames = film().frames
    assert [(f.time_us, f.useful, f.running, f.waiting, f.done) for f in frames] == [
        (0, 11, 2, 0, 0), (20, 7, 1, 0, 1), (30, 0, 0, 0, 2)]              # steps at 10 and 20 are one jump
    assert frames[0].cells.tolist() == [0, 1, 0, 0, 6]                              # of a's second block most is reserved
    assert [film().at(t).time_us for t in (-5, 0, 19.9, 20, 99)] == [0, 0, 0, 20, 30]


def test_who_waits_is_in_it():
    third = replace(TWO, prompt_tokens=np.array([5, 6, 4]), output_tokens=np.array([3, 1, 2]), arrival_us=np.zeros(3, int))
    made = Film(4)
    Engine(third, SMALL, "contiguous-max", observers=[made]).run()
    assert (made.frames[0].running, made.frames[0].waiting) == (2, 1)


def test_a_long_run_is_thinned():
    trace = chat_workload(np.random.default_rng(0), requests=60, rate_per_s=10.0)
    config = SimConfig(num_blocks=320, max_model_len=2048, longest_jump=1)
    whole, thin = Film(16, 10**6), Film(16, 64)
    run = Engine(trace, config, "paged", observers=[whole, thin]).run()
    assert len(whole.frames) > 500 and 24 <= len(thin.frames) < 64
    assert thin.frames[0].time_us == whole.frames[0].time_us == 0
    assert thin.frames[-1].time_us == whole.frames[-1].time_us == run.ledger.total.time_us
    assert thin.frames[-1].done == 60
    gaps = np.diff([frame.time_us for frame in thin.frames])
    assert gaps.max() <= run.ledger.total.time_us / 15                     # they lie evenly


def test_cells_of_a_large_pool_are_several_blocks():
    made = Film(16)
    Engine(TWO, SimConfig(num_blocks=10_001, max_model_len=8), "paged", observers=[made]).run()
    assert made.cell_slots == 16 * 11 and len(made.frames[0].cells) == 910           # 10,000 blocks, at most 960 cells


# ---------------------------------------------------------------------- the picture
@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(animation, "FRAMES", 4)
    monkeypatch.setattr(animation, "LAST_FRAMES", 1)


def test_the_gif_moves_and_has_the_same_bytes_twice(tmp_path, short):
    films = {name: film(name) for name in ("contiguous-max", "paged")}
    for name in ("a.gif", "b.GIF"):
        animate(films, "a $title$ <b>", str(tmp_path / name))
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.GIF").read_bytes()
    with Image.open(tmp_path / "a.gif") as picture:
        assert (picture.n_frames, picture.size) == (4, (800, 490))


def colours(path, frame):
    with Image.open(path) as picture:
        picture.seek(frame)
        return np.asarray(picture.convert("RGB")).astype(int)


def test_the_colours_are_those_of_the_parts(tmp_path, short):
    animate({"paged": film()}, "one", str(tmp_path / "one.gif"))
    def near(pixels, part):
        return int((np.abs(pixels - 255 * np.array(to_rgb(STYLES[part][0]))).max(axis=2) <= 8).sum())
    first, last = colours(tmp_path / "one.gif", 0), colours(tmp_path / "one.gif", 3)
    assert near(first, "token_states") > near(last, "token_states") + 5000              # four cells of five, then none
    assert near(last, "idle") > near(first, "idle") + 5000


@pytest.mark.parametrize(("words", "told"), [
    ([], "room for 3 allocators, not 5: name them with --allocator"),
    (["--allocator", "paged", "-dp", "2"], "shows one pool, not those of 2 replicas"),
])
def test_too_much_to_see_is_said_before_the_work(tmp_path, capsys, words, told):
    said = run(capsys, "compare", tmp_path / "missing.csv", "--plot", tmp_path / "x.gif", *words)
    assert said.status == 2 and told in said.err and said.err.count("\n") == 1


def test_nothing_served_nothing_moves(tmp_path, capsys):
    """Under a rounding buddy nobody fits, and paged would have served it."""
    words = ("--num-gpu-blocks-override", "13", "--allocator", "contiguous-oracle", "--rate", "1", "--plot", tmp_path / "x.gif")
    said = run(capsys, "compare", lengths(tmp_path, [(180, 9)]), *words)
    assert said.status == 2 and "no request was served" in said.err and not (tmp_path / "x.gif").exists()


def test_the_command(tmp_path, capsys, short):
    words = ["--limit", "20", "--allocator", "contiguous-max", "--allocator", "paged-prefix", "--json"]
    said = run(capsys, "compare", *words, tmp_path / "a.json", "--plot", tmp_path / "pool.gif")
    assert said.status == 0 and (tmp_path / "pool.gif").read_bytes().startswith(b"GIF89a")
    assert run(capsys, "compare", *words, tmp_path / "b.json").status == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()       # who looks changes nothing
