"""Virtual-contiguous allocation (vAttention) and token-level allocation beside blocks and reservations: same bytes, same ledger.

A page backs K or V of one layer on one GPU, so how many tokens it holds hangs on the model and the tensor parallelism:

    page bytes  /  (KV heads of one GPU  x  head dim  x  2 bytes)          64 KiB / (8 x 128 x 2) = 32 tokens of Llama-3-8B

A sequence grows in all layers at once: one page group is a page for K and one for V in each layer. With 2 MiB pages, the smallest
that CUDA maps, it is as large as a whole reservation; the 64 KiB pages of vAttention's patched driver are near to blocks. The
price of small pages is the number of mapping calls. Blocks of one token, as in token-level allocation, waste nothing at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.canvas import canvas, grouped
from experiments.paper import setting
from experiments.paper.measures import mean_running, waiting_part, waste_of_allocated, waste_of_pool
from experiments.paper.outcome import Outcome, Row, Table
from experiments.paper.setting import Lab
from sim import kv_formula
from sim.config import SimConfig
from sim.models.model_config import load_model
from sim.run import Run
from sim.sizing.hardware import GIB
from sim.step_time import ConstantStepTime
from workloads.request import Trace

TITLE = "Pages, blocks and tokens: virtual-contiguous and token-level allocation"
SOURCE = "Prabhu et al., vAttention, ASPLOS 2025; tokens a page computed from its page sizes and models"
KIB, MIB = 1024, 1024**2
SMALL, LARGE = 64 * KIB, 2 * MIB
PUBLISHED = {("Yi-6B", 1): {SMALL: 64, LARGE: 2048}, ("Llama-3-8B", 1): {SMALL: 32, LARGE: 1024},
             ("Llama-3-8B", 2): {SMALL: 64, LARGE: 2048}}   # (model, GPUs) -> page -> tokens
CALLS_MODEL, CALLS, CALL_US, CALLS_MS, CALLS_MS_TOLERANCE = "Yi-34B", 120, 40.0, 5.0, 0.5   # one page group, "about 5 ms"
WAYS = {"reservation of 2,048": ("contiguous-max", None), "pages of 2 MiB": ("vattention", LARGE),
        "pages of 64 KiB": ("vattention", SMALL), "blocks of 16": ("paged", None), "single tokens": ("token", None)}
REQUESTS = 6000


@dataclass(frozen=True)
class Server:
    """A model on so many GPUs, each with the bytes of the paper's pool."""

    model: str
    gpus: int

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.model}, {self.gpus} GPU{'s' * (self.gpus > 1)}"

    @property
    def mappings(self) -> int:
        """Calls that map one page group on one GPU: K and V of every layer.

        >>> Server("Yi-34B", 1).mappings
        120
        """
        return 2 * len(load_model(self.model).caches())

    def page_slots(self, page_bytes: int) -> int:
        """Tokens a page.

        >>> Server("Llama-3-8B", 2).page_slots(64 * 1024)
        64
        """
        heads, width, _ = load_model(self.model).caches()[0][0].heads
        return kv_formula.tokens_per_page(page_bytes, max(1, heads // self.gpus), width)

    def config(self, page_bytes: int | None) -> SimConfig:
        """The pool in blocks of 16; pages besides."""
        per_token = load_model(self.model).kv_bytes_per_token(tensor_parallel_size=self.gpus)
        blocks = kv_formula.blocks_that_fit(setting.KV_GIB * GIB, kv_formula.kv_bytes_per_block(per_token, setting.BLOCK_SIZE))
        config = replace(setting.paper_config(ConstantStepTime(20_000), saturate=True), num_blocks=blocks + 1)
        return config if page_bytes is None else replace(config, page_slots=self.page_slots(page_bytes))


SERVERS = [Server("Llama-3-8B", 1), Server("Llama-3-8B", 2)]
CONFIG = {server: {way: server.config(page) for way, (_, page) in WAYS.items()} for server in SERVERS}


def run(lab: Lab) -> Outcome:
    """The formula beside the published tokens a page; then every way on the ShareGPT lengths."""
    trace, judged = waiting_part(lab, REQUESTS)
    runs = {server: {way: lab.run(trace, CONFIG[server][way], name, f"{server.label}, {way}")
                     for way, (name, _) in WAYS.items()} for server in SERVERS}
    return Outcome([*arithmetic(), *checks(runs, judged)], figures(runs), [_table(runs, trace)], [
        f"{len(trace):,} ShareGPT requests, all waiting from the start, lengths in OPT tokens; {setting.KV_GIB} GiB for the "
        "cache on each GPU, whatever the allocator",
        "Yi-6B on one GPU has the KV heads of Llama-3-8B on each of two, and so the second server's numbers",
        "slots of the pool that make no whole page are lost; the ledger has them under external fragmentation, and waste of the "
        "pool counts them",
        "calls: mappings of a page for K or V of one layer on one GPU over the life of a request, none of them saved by reusing "
        "pages already mapped; their time is not simulated",
        "tokens a page are arithmetic on published page sizes and model shapes, so they must agree exactly"])


def arithmetic() -> list[Row]:
    """What needs no simulation: exact."""
    found = [Row(f"{server.label}: a page of {page // KIB:,} KiB", tokens, server.page_slots(page), "tokens", tolerance=0)
             for server, pages in ((Server(*key), pages) for key, pages in PUBLISHED.items()) for page, tokens in pages.items()]
    calls = Server(CALLS_MODEL, 1).mappings
    return [*found, Row(f"{CALLS_MODEL}: calls for one page group", CALLS, calls, "calls", tolerance=0),
            Row(f"{CALLS_MODEL}: their time at {CALL_US:g} us a call", CALLS_MS, calls * CALL_US / 1000, "ms", CALLS_MS_TOLERANCE,
                note="published: about 5 ms")]


def checks(runs: dict[Server, dict[str, Run]], judged: bool) -> list[Row]:
    """What has to come out whatever the lengths: single tokens waste nothing, and small pages less than large ones."""
    single = max(waste_of_allocated(found["single tokens"]) for found in runs.values())
    gains = [mean_running(found["pages of 64 KiB"]) / mean_running(found["pages of 2 MiB"]) for found in runs.values()]
    return [Row("single tokens: waste of the allocated memory", None, single, "%", most=0.0),
            Row("requests running, 64 KiB over 2 MiB pages, the lesser", None, min(gains), "x",
                least=1.0 if judged else None)]


def calls_of(server: Server, slots: int, trace: Trace) -> float:
    """Mapping calls of a request on average, in pages of so many slots."""
    states = trace.prompt_tokens + trace.output_tokens - 1
    return server.mappings * float((-(-states // slots)).mean())


def figures(runs: dict[Server, dict[str, Run]]) -> dict[str, dict[str, list[float]]]:
    """Waste and running requests, way -> one number a server."""
    return {"waste": {way: [waste_of_allocated(found[way]) for found in runs.values()] for way in WAYS},
            "running": {way: [mean_running(found[way]) for found in runs.values()] for way in WAYS}}


def _table(runs: dict[Server, dict[str, Run]], trace: Trace) -> Table:
    made: list[list[str | float | int | None]] = []
    for server, found in runs.items():
        for way, run in found.items():
            slots = run.config.page_slots
            made.append([f"{server.label}: {way}", slots, waste_of_allocated(run), waste_of_pool(run), mean_running(run),
                         None if slots is None else calls_of(server, slots, trace)])
    return Table("The same bytes under five allocators",
                 ["", "tokens a page", "waste of the allocated, %", "waste of the pool, %", "running", "calls a request"], made)


def plot(outcome: Outcome, path: str) -> None:
    """Waste and running requests by server and way."""
    names = [server.label for server in SERVERS]
    with canvas(path, TITLE, across=2) as (left, right):
        grouped(left, names, {way: [float(f"{v:.2g}") for v in values] for way, values in outcome.data["waste"].items()},
                "allocated memory without a token (%)")
        grouped(right, names, {way: [round(v) for v in values] for way, values in outcome.data["running"].items()},
                "requests running at once (mean)")
        left.set(ylim=(0, 100))
        left.set_title("waste", fontsize=9)
        right.set_title("12 GiB of cache a GPU, ShareGPT lengths", fontsize=9)
        left.get_legend().remove()
        right.legend(loc="upper left", frameon=False, fontsize=8)
