"""Benchmarks, run apart from the tests: how long a replay takes, beside what others take for the same requests.

    traffic   seeded requests            recorded   what vLLM's scheduler did with them, to the digit
        \\                               /
         jobs     one row of a table: a whole process, or the reason why there is none   <- peers, drivers
           |
         processes    all of them side by side, interleaved: CPU, wall and peak memory, medians
           |
         tables, figures, profiling   ->   docs/speed.md, docs/benchmarks

``python -m experiments.benchmarks --help`` says how.
"""
