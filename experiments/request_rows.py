"""Requests one by one as `compare --requests` writes them: a row a request and allocator, times in seconds."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import IO

from sim.request_log import NEVER
from sim.run import REJECTIONS, Run

COLUMNS = ("allocator", "request", "status", "prompt_tokens", "output_tokens", "generated_tokens", "arrival_s", "queue_s",
           "ttft_s", "tpot_s", "e2e_s", "residence_s", "hit_tokens", "preemptions")


def write_requests(file: IO[str], runs: Mapping[str, Run]) -> None:
    """The table as CSV; with a column ``replica`` where there are several."""
    writer = csv.writer(file, lineterminator="\n")
    several = any(run.replica is not None for run in runs.values())
    writer.writerow((*COLUMNS, "replica") if several else COLUMNS)
    for name, run in runs.items():
        log, demand, arrival = run.log, run.demand, run.arrival_us
        for i in range(len(demand)):
            status = REJECTIONS.get(int(run.verdict[i])) or ("completed" if log.finished_us[i] != NEVER else "unfinished")
            output = int(demand.output[i]) if run.verdict[i] == 0 else 0
            first, last = int(log.first_token_us[i]), int(log.finished_us[i])
            tpot = (last - first) / (output - 1) / 1e6 if last != NEVER and output > 1 else ""
            writer.writerow((name, i, status, int(demand.prompt[i]), int(demand.asked[i]), output, int(arrival[i]) / 1e6,
                             *(_since(int(t), int(arrival[i])) for t in (log.admitted_us[i], first)), tpot,
                             _since(last, int(arrival[i])), int(log.residence_us[i]) / 1e6, int(log.hit_tokens[i]),
                             int(log.preemptions[i]), *_replica(run, i)))


def _replica(run: Run, request: int) -> tuple[int | str, ...]:
    """Who served it, where there are several."""
    if run.replica is None:
        return ()
    number = int(run.replica[request])
    return ("" if number < 0 else number,)


def _since(time_us: int, arrival_us: int) -> float | str:
    return "" if time_us == NEVER else (time_us - arrival_us) / 1e6
