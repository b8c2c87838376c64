"""libCacheSim's LRU over block accesses: ``python -m ... FILE BLOCKS``; the file is in its oracleGeneral format."""

from __future__ import annotations

import sys
import time

from experiments.benchmarks.said import say


def main(path: str, size: str) -> None:
    """Replay in C and say."""
    import libcachesim as lcs

    reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE, lcs.ReaderInitParam(ignore_obj_size=True))
    count = reader.get_num_of_req()
    started = time.process_time()
    missed, _ = lcs.LRU(int(size)).process_trace(reader)
    say({"totals": {"hits": count - round(missed * count)}, "work_cpu_s": time.process_time() - started})


if __name__ == "__main__":
    main(*sys.argv[1:])
