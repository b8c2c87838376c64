"""The pool over time as a moving picture: the memory itself, allocator beside allocator, on one clock.

    +-- allocator ------+ +-- allocator ------+
    | the address space | |                   |     a cell is a few slots in the colour of what most of them are
    | line after line   | |                   |
    +-------------------+ +-------------------+
      running, waiting ...  running, waiting ...
    +-----------------------------------------+
    | useful share of the pool up to now      |
    +-----------------------------------------+

`Film` follows a run and keeps its frames; `animate` draws those of several runs and writes a GIF. The picture ends when the first
allocator has served everybody.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.figures import GREY, INK, SETTINGS, STYLES, heading, time_unit
from experiments.output import replacing
from experiments.parts import SHORT
from experiments.pool_map import TOKEN_STATES, Parts, in_cells, slot_map
from sim.memory.allocator import PARTS, Allocator
from sim.run import Observer
from sim.scheduler import Scheduler
from sim.step import Jump, Step
from workloads.messages import show_path
from workloads.request import InputError

SUFFIX = ".gif"
MOST_PANELS = 3
MOST_CELLS = 960
MOST_KEPT = 1024
COLUMNS = 40
FRAMES, FRAMES_A_SECOND, LAST_FRAMES = 56, 7, 12
INCHES, DPI = (8.0, 4.9), 100
LINES = ("-", "--", ":")


def wanted(path: str | None) -> bool:
    """Whether a file name asks for a moving picture."""
    return path is not None and Path(path).suffix.lower() == SUFFIX


def check_animation(path: str, allocators: Sequence[str], replicas: int) -> None:
    """Raise InputError where there is too much to see."""
    if len(allocators) > MOST_PANELS:
        raise InputError(f"{show_path(path)}: a moving picture has room for {MOST_PANELS} allocators, not {len(allocators)}: "
                         "name them with --allocator")
    if replicas > 1:
        raise InputError(f"{show_path(path)}: a moving picture shows one pool, not those of {replicas} replicas")


class Frame(NamedTuple):
    """The pool from ``time_us`` on: a part for each cell, useful slots, and how many requests run, wait and are done."""

    time_us: int
    cells: Parts
    useful: int
    running: int
    waiting: int
    done: int


class Film(Observer):
    """Frames of one run; when there are too many every second one is dropped, and then they are taken half as often.

    Parameters
    ----------
    block_size : int
        Slots a block: a cell is one block, or several where the pool is large.
    most : int
        Frames kept.
    """

    def __init__(self, block_size: int, most: int = MOST_KEPT) -> None:
        self.frames: list[Frame] = []
        self.capacity = self.cell_slots = 0
        self._block_size = block_size
        self._most = most
        self._done = self._due_us = 0
        self._period_us = 1

    def started(self, allocator: Allocator, scheduler: Scheduler) -> None:
        self._allocator, self._scheduler = allocator, scheduler
        self.capacity = allocator.capacity
        self.cell_slots = self._block_size * max(1, -(-allocator.capacity // (self._block_size * MOST_CELLS)))

    def scheduled(self, now_us: int, step: Step) -> None:
        self._look(now_us)

    def jumped(self, jump: Jump) -> None:
        self._look(jump.start_us + jump.pace.offsets[-1])

    def updated(self, now_us: int, finished: list[int]) -> None:
        self._done += len(finished)
        if not len(self._scheduler.running):           # nothing may be scheduled for a while
            self._look(now_us, at_once=True)

    def _look(self, now_us: int, at_once: bool = False) -> None:
        if now_us < self._due_us and not at_once:
            return
        slots = slot_map(self._allocator, self._scheduler)
        self.frames.append(Frame(now_us, in_cells(slots, self.cell_slots), int(np.count_nonzero(slots == TOKEN_STATES)),
                                 len(self._scheduler.running), len(self._scheduler.waiting), self._done))
        if len(self.frames) >= self._most:
            del self.frames[1:-1:2]
            self._period_us = max(2 * self._period_us, (now_us - self.frames[0].time_us) // len(self.frames))
        self._due_us = now_us + self._period_us

    def at(self, time_us: float) -> Frame:
        """The last frame that is not later; before the first one, the first."""
        return self.frames[max(0, bisect_right(self.frames, time_us, key=lambda frame: frame.time_us) - 1)]


def animate(films: dict[str, Film], title: str, path: str) -> None:
    """Write the films of several allocators side by side as one GIF; the same films give the same bytes.

    Parameters
    ----------
    films : dict of allocator to Film
        Up to three, of runs of the same trace.
    title : str
        Taken as plain text.
    path : str
        Ends in .gif.

    Raises
    ------
    InputError
        If nobody was served, or the file cannot be written.
    """
    import matplotlib
    from matplotlib.animation import PillowWriter
    from matplotlib.figure import Figure

    if not all(film.frames for film in films.values()):
        raise InputError(f"{show_path(path)}: no request was served: nothing moves")
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        figure = Figure(figsize=INCHES, dpi=DPI)
        picture = _Picture(figure, films, title)
        writer = PillowWriter(fps=FRAMES_A_SECOND)
        with replacing(path) as name, writer.saving(figure, name, DPI):
            for time_us in picture.times:
                picture.show(time_us)
                writer.grab_frame()
            for _ in range(LAST_FRAMES):               # a GIF begins anew at once
                writer.grab_frame()


class _Picture:
    """The figure and what changes in it from frame to frame."""

    def __init__(self, figure: Any, films: dict[str, Film], title: str) -> None:
        self._films = films
        start = min(film.frames[0].time_us for film in films.values())
        end = min(film.frames[-1].time_us for film in films.values())
        self.times = np.linspace(start, end, FRAMES)
        self._unit, self._us = time_unit(end - start)
        first = next(iter(films.values()))
        self._scale = f"a cell is {first.cell_slots:,} of {first.capacity:,} slots"
        figure.text(0.5, 0.985, heading(title, 125), ha="center", va="top", fontsize=9)
        self._clock = figure.text(0.985, 0.268, "", ha="right", va="bottom", fontsize=10)
        self._panels = {name: _Panel(figure, i, len(films), name, film) for i, (name, film) in enumerate(films.items())}
        self._axes = figure.add_axes((0.075, 0.09, 0.91, 0.17))
        self._axes.set(xlim=(start / self._us, max(end, start + 1) / self._us), ylim=(0, 100), ylabel="useful (%)")
        self._axes.set_xlabel(f"time ({self._unit})", labelpad=1)
        self._lines = {name: self._axes.plot([], [], color="black", linestyle=style, linewidth=1.2, label=name)[0]
                       for style, name in zip(LINES, films, strict=False)}
        self._axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(films), fontsize=9, frameon=False, borderpad=0.1)
        _legend(figure)

    def show(self, time_us: float) -> None:
        """The moment ``time_us`` on all panels, and the lines up to it."""
        self._clock.set_text(f"{self._scale}; {time_us / self._us:,.1f} {self._unit}")
        before = self.times[self.times <= time_us]
        for name, film in self._films.items():
            self._panels[name].show(film.at(time_us))
            useful = [100 * film.at(t).useful / film.capacity for t in before]
            self._lines[name].set_data(before / self._us, useful)


class _Panel:
    """The address space of one allocator, line after line, and its counters."""

    def __init__(self, figure: Any, place: int, panels: int, name: str, film: Film) -> None:
        from matplotlib.colors import ListedColormap

        width = 0.97 / panels
        axes = figure.add_axes((0.02 + place * width, 0.395, width - 0.01, 0.455))
        axes.set_title(name, fontsize=9.5, pad=4)
        lines = -(-len(film.frames[0].cells) // COLUMNS)
        axes.set(xticks=(), yticks=())
        axes.spines[:].set_color(GREY)
        self._film, self._shape = film, (lines, COLUMNS)
        colours = ListedColormap([STYLES[part][0] for part in PARTS]).with_extremes(bad="white")
        self._image = axes.imshow(np.zeros(self._shape), cmap=colours, vmin=-0.5, vmax=len(PARTS) - 0.5, aspect="auto",
                                  interpolation="nearest")
        axes.vlines(np.arange(1, COLUMNS) - 0.5, -0.5, lines - 0.5, color="white", linewidth=0.6)
        axes.hlines(np.arange(1, lines) - 0.5, -0.5, COLUMNS - 0.5, color="white", linewidth=0.6)
        self._said = axes.text(0.5, -0.035, "", transform=axes.transAxes, ha="center", va="top", fontsize=9.5, color=INK)

    def show(self, frame: Frame) -> None:
        cells = np.ma.masked_all(self._shape, np.uint8)
        cells.ravel()[: len(frame.cells)] = frame.cells
        self._image.set_data(cells)
        share = 100 * frame.useful / self._film.capacity
        self._said.set_text(f"{frame.running:,} running, {frame.waiting:,} waiting, {frame.done:,} done\n{share:.0f} % useful")


def _legend(figure: Any) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=STYLES[part][0], edgecolor=INK, linewidth=0.5, label=SHORT[part]) for part in PARTS]
    figure.legend(handles=handles, loc="lower center", ncols=len(PARTS), fontsize=9, frameon=False, handlelength=1.2,
                  columnspacing=1.4, bbox_to_anchor=(0.5, 0.89), borderpad=0)
