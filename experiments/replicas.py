"""Data parallelism: options, notes and JSON of several replicas behind a router, and the table of them for people."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from experiments.options import DEFAULT_ROUTER
from experiments.shown import TextTable
from sim.config import SimConfig
from workloads.messages import counted, show_path
from workloads.request import Trace

if TYPE_CHECKING:
    from sim.models.model import ModelShape

JsonObject = dict[str, Any]
MOST_LINES = 16


def replicas(options: argparse.Namespace, model: ModelShape | None, trace: Trace, notes: list[str]) -> dict[str, Any]:
    """What a `SimConfig` is told of replicas; commands without these options have one."""
    if "data_parallel_size" not in options:
        return {}
    if options.data_parallel_size == 1:
        if options.router is not None:
            notes.append(f"one replica: --router {options.router} has nothing to choose from (--data-parallel-size N)")
        return {}
    if model is not None and model.experts is not None:
        notes.append(f"{model.name} has experts, which vLLM's data-parallel ranks compute in step with each other: here "
                     "replicas are independent and wait for nobody")
    nothing = {"session-affinity": "sessions" if trace.session is None else None,
               "prefix-aware": "prefix identity" if trace.content is None else None}.get(options.router)
    if nothing is not None:
        notes.append(f"{show_path(trace.source)} has no {nothing}: {options.router} goes by load")
    return {"data_parallel_size": options.data_parallel_size, "router": options.router or DEFAULT_ROUTER}


def replicas_json(sim: SimConfig, gpus: int) -> JsonObject:
    """Further entries of ``config``: none for one replica.

    >>> replicas_json(SimConfig(9, data_parallel_size=2), gpus=8)
    {'data_parallel_size': 2, 'router': 'least-loaded', 'gpus': 8}
    """
    if sim.data_parallel_size == 1:
        return {}
    return {"data_parallel_size": sim.data_parallel_size, "router": sim.router, "gpus": gpus}


def router_line(config: JsonObject) -> str | None:
    """The replicas in the header of the report; None for one."""
    if "router" not in config:
        return None
    n, gpus = config["data_parallel_size"], config["gpus"]
    each = gpus // n
    return (f"{config['router']} before {n:,} replicas of {counted(each, 'GPU')} each, {counted(gpus, 'GPU')}; pool and "
            "limits are those of a replica, the table has the sums")


def replica_table(scenarios: list[JsonObject]) -> TextTable | None:
    """One line a replica and allocator, up to sixteen; None where there is one replica."""
    if not any("replicas" in scenario for scenario in scenarios):
        return None
    table = TextTable(("allocator", "replica", "requests", "running,\nmean", "useful share\nof its pool", "prefix\nhit rate",
                       "first token,\nmedian (s)", "preemptions"), frozenset({0}))
    for scenario in scenarios:
        for own in scenario["replicas"][:MOST_LINES]:
            table.add_row(scenario["allocator"] if own["replica"] == 0 else "", *_cells(own))
        if len(scenario["replicas"]) > MOST_LINES:
            table.add_row("", "...", "the others are in the JSON")
    return table


def _cells(own: JsonObject) -> Iterator[str]:
    hits, first = own["prefix_cache"], own["latency_s"]["ttft"]["p50"]
    yield str(own["replica"])
    yield f"{own['requests']['completed']:,}"
    yield f"{own['concurrency']['mean']:,.2f}"
    yield f"{100 * own['memory']['token_states']:.1f} %"
    yield "-" if hits is None else f"{100 * hits['hit_rate']:.1f} %"
    yield "-" if first is None else f"{first:,.2f}"
    yield f"{own['requests']['preemptions']:,}"


def together(checks: list[JsonObject]) -> list[JsonObject]:
    """Checks of all replicas that are ok as one, their numbers added up; one that failed stays by itself.

    >>> of = {"name": "a = b", "scenario": "paged", "simulated": 3, "analytic": 3, "ok": True}
    >>> three = [of | {"replica": 0}, of | {"replica": 1}, of | {"replica": 2, "ok": False}]
    >>> [(check["name"], check["simulated"], check["analytic"]) for check in together(three)]
    [('a = b', 6, 6), ('replica 2: a = b', 3, 3)]
    """
    made: dict[tuple[Any, ...], JsonObject] = {}
    for i, check in enumerate(checks):
        if "replica" not in check:
            made[(i,)] = check
        elif not check["ok"]:
            made[(i,)] = check | {"name": f"replica {check['replica']}: {check['name']}"}
        else:
            key = (check["scenario"], check["name"])
            before = made.get(key, {"simulated": 0, "analytic": 0})
            made[key] = check | {side: before[side] + check[side] for side in ("simulated", "analytic")}
    return list(made.values())
