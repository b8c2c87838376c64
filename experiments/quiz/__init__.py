"""`pagedsim quiz`: exercises on fragmentation and paging, drawn by a seed, worked out by the simulator.

    holes, rounding                                   one allocator asked by hand
    paging ... preemption         -> served           a few requests through the engine, every step kept
    exercise, pictures, asked                         what an exercise is, pools in letters, questions of several levels
    levels -> text, handout -> command                the catalogue, a quiz for the terminal and for paper
"""

from experiments.quiz.command import main

__all__ = ["main"]
