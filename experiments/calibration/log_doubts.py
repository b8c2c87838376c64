"""What makes a server's log doubtful as a whole, one warning line each."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.calibration.server_log import ServerLog
from workloads.messages import counted, show_names

NO_LINES = ("no periodic line is in it: vllm serve prints one every 10 s while it works, unless it was started with "
            "--disable-log-stats or with VLLM_LOGGING_LEVEL above INFO; the class LLM prints them with disable_log_stats=False")


def doubts(log: ServerLog) -> Iterator[str]:
    """Warnings about the order and the origin of the lines.

    Parameters
    ----------
    log : ServerLog
        Of the engines that are looked at.
    """
    if not log.samples:
        yield f"warning: {NO_LINES}"
    yield from _backwards(log)
    without = sum(sample.hit_percent is None for sample in log.samples)
    if 0 < without < len(log.samples):
        yield (f"warning: {counted(without, 'periodic line')} of {len(log.samples):,} without a prefix cache hit rate: it is not "
               "compared")
    if len(log.engines) > 1:
        yield (f"warning: lines of {len(log.engines)} engines are mixed ({', '.join(map(str, log.engines))}): --engine N takes "
               "one")
    origins = dict.fromkeys(sample.origin for sample in log.samples if sample.origin)
    if len(origins) > len(log.engines):
        yield (f"warning: the periodic lines come from {len(origins)} servers ({show_names(origins)}): several in one log, or "
               "one that was started again; a comparison wants the lines of one")
    elif log.started_again is not None:
        yield (f"warning: line {log.started_again:,} is of a start-up and comes after periodic lines: several servers in one "
               "log, or one that was started again; a comparison wants the lines of one")


def _backwards(log: ServerLog) -> Iterator[str]:
    """A clock that goes back from one line of an engine to the next in the file."""
    last: dict[int, float] = {}
    back = []
    for sample in sorted(log.samples, key=lambda sample: sample.line):
        if sample.time_s is None:
            return
        if sample.time_s < last.get(sample.engine, sample.time_s):
            back.append(sample.line)
        last[sample.engine] = sample.time_s
    if back:
        yield (f"warning: the time goes back at {len(back):,} of the lines, first at line {back[0]:,}: two logs in one file, or "
               "a clock that was set; the lines are sorted by time")
