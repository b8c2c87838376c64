"""One scenario: a trace served by one allocator, with its audit. `compare` and whoever runs many call the same functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.crosscheck import Audit, audit_for, checks
from experiments.setup import Setup
from sim.engine import Engine, Observers, check_observers
from sim.result import scenario
from sim.run import Observer, Run, Stalled
from sim.timeline import Timeline
from workloads.request import InputError

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Served:
    """The facts of one scenario and the audits that followed it, one a server; its part of the JSON of `compare` is made of them.

    Parameters
    ----------
    name : str
        The allocator.
    run : Run
    audits : tuple of Audit
    kv_bytes_per_token : int, optional
        Of the setup; checks then speak of bytes, else of slots.
    """

    name: str
    run: Run
    audits: tuple[Audit, ...]
    kv_bytes_per_token: int | None

    def scenario(self) -> JsonObject:
        """Its entry of ``scenarios``."""
        return scenario(self.name, self.run)

    def checks(self) -> list[JsonObject]:
        """Its entries of ``crosscheck``."""
        return [check.json() for check in checks(self.name, self.run, self.kv_bytes_per_token, *self.audits)]


def serve(setup: Setup, name: str, timeline: Timeline | Sequence[Timeline] | None = None,
          observers: Observers = ()) -> Served:
    """Replay the trace of a setup through one allocator.

    Parameters
    ----------
    setup : Setup
    name : str
        A name in `sim.catalog.ALLOCATORS`.
    timeline : Timeline, or sequence of one a replica, optional
        Takes samples for a picture.
    observers : sequence of Observer, or callable
        Beside the audits, which are made here; of several replicas each has those that the callable returns for its number.

    Raises
    ------
    InputError
        If the pool takes more memory than there is, or can make no progress: the request at fault is named.

    Examples
    --------
    >>> import numpy as np
    >>> from sim.config import SimConfig
    >>> from workloads.request import Trace
    >>> trace = Trace("two", np.array([5, 6]), np.array([3, 1]), arrival_us=np.array([0, 0]))
    >>> setup = Setup(trace, SimConfig(num_blocks=6, block_size=4, max_model_len=8), None, None, None, {}, "0.33")
    >>> served = serve(setup, "paged")
    >>> served.scenario()["requests"]["completed"], all(check["ok"] for check in served.checks())
    (2, True)
    """
    audits = tuple(audit_for(name) for _ in range(setup.sim.data_parallel_size))
    check_observers(observers, len(audits))

    def following(number: int) -> list[Observer]:
        return [audits[number], *(observers(number) if callable(observers) else observers)]
    try:
        run = Engine(setup.trace, setup.sim, name, timeline, following, setup.warm).run()
    except MemoryError:
        times = f"{len(audits):,} times " if len(audits) > 1 else ""
        raise InputError(f"{name}: {times}{setup.sim.num_blocks:,} blocks of {setup.sim.block_size:,} slots and requests of up "
                         f"to {setup.sim.max_model_len:,} tokens take more memory than there is") from None
    except Stalled as error:
        raise InputError(f"{name}: {error}") from None
    return Served(name, run, audits, setup.kv_bytes_per_token)
