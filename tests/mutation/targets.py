"""What is mutated, and which tests are asked: first those about the module, then, of what they let live, wider ones.

Tests that start another process, draw figures or read the sources themselves are left out: they would say nothing of a mutant,
or kill it for the wrong reason.
"""

from typing import NamedTuple


class Target(NamedTuple):
    """Files of the source (patterns), the tests about them, the wider ones; which of the former are asked (pytest's ``-k``)."""

    files: tuple[str, ...]
    fast: tuple[str, ...]
    wide: tuple[str, ...]
    chosen: str = ""


def _tests(names):
    return tuple(f"tests/test_{name}.py" for name in names.split())


RECORDED = "tests/test_conform.py::test_decisions_step_by_step"
JUMPING = "tests/test_conform.py::test_decisions_when_decode_steps_are_made_together"
ENGINE = _tests("scheduler policies sequences static_batching fork stays steady crosscheck relations more_allocators grouped"
                " host_tier warm_start ledger request_log pace closed_loop sequence_columns replicas conform bad_input"
                " cache_options prefix_tiers prefix_stats")
MEMORY = _tests("arena contiguous block_pool walk_arena walk_paged fork more_allocators grouped host_tier eviction_policies"
                " prefix_stats prefix_tiers block_hash sequences relations crosscheck conform cache_options")
OTHER_MEMORY = tuple(f"sim/memory/{name}.py" for name in (
    "allocator", "block_hash", "block_tables", "free_queue", "group_tables", "grouped", "growth", "host_tier", "left_blocks",
    "prefix_stats", "reserving", "sharing", "tiered", "vattention", "window"))
MODELS = _tests("model model_names layer_kinds layer_groups mlp_layers weights weight_logs hardware budget kv_formula capacity"
                " startup_logs bad_config published_numbers")

DOCTESTS = ("sim/kv_formula.py", "sim/block_calendar.py", "sim/entries.py", "sim/routing.py")

TARGETS = {
    "ledger": Target(("sim/ledger.py",), (*_tests("ledger free_flow"), "sim/ledger.py"),
                     _tests("ledger crosscheck relations stays replicas warm_start sequences request_log pace")),
    "arena": Target(("sim/memory/arena.py",), (*_tests("arena walk_arena"), "sim/memory/arena.py"),
                    _tests("arena walk_arena ledger more_allocators relations")),
    "contiguous": Target(("sim/memory/contiguous.py",), (*_tests("contiguous walk_arena ledger fork"),
                                                            "sim/memory/contiguous.py"),
                         _tests("contiguous walk_arena ledger fork more_allocators relations sequences policies static_batching"
                                " crosscheck replicas bad_input")),
    "block_pool": Target(("sim/memory/block_pool.py", "sim/memory/prefix_index.py"),
                         (*_tests("block_pool walk_paged free_flow"), "sim/memory/block_pool.py"), MEMORY),
    "paged": Target(("sim/memory/paged.py",), (*_tests("walk_paged fork prefix_stats"), RECORDED, "sim/memory/paged.py"),
                    _tests("walk_paged block_pool fork sequences relations prefix_stats host_tier policies crosscheck"
                           " more_allocators conform cache_options warm_start ledger"), "not random"),
    "scheduler": Target(("sim/scheduler.py", "sim/returning.py"),
                        (*_tests("scheduler ledger policies sequences static_batching host_tier free_flow"), RECORDED, JUMPING),
                        ENGINE, "not (random or everybody or naive or nothing or first_served)"),
    "memory": Target(OTHER_MEMORY, (*_tests("walk_paged fork more_allocators grouped host_tier prefix_stats prefix_tiers"
                                            " block_hash eviction_policies"), "sim/memory"), ENGINE),
    "flow": Target(("sim/flow.py", "sim/free_flow.py", "sim/memory/flowing.py"),
                   (*_tests("free_flow"), "sim/flow.py", "sim/memory/flowing.py"),
                   _tests("free_flow relations crosscheck stays")),
    "caching": Target(("sim/caching/*.py",), (*_tests("reuse eviction_policies pieces prefix_tiers block_hash"), "sim/caching"),
                      _tests("prefix_command host_tier prefix_stats")),
    "engine": Target(("sim/*.py",), (*_tests("ledger scheduler policies static_batching pace stays batch stalls steady step_time"
                                             " warm_start replicas closed_loop calibrate_gauges request_log"),
                                     RECORDED, JUMPING, *DOCTESTS), ENGINE,
                     "not random"),
    "models": Target(("sim/models/*.py",), (*MODELS, "sim/models"), _tests("catalogue plan calibrate_readers")),
    "sizing": Target(("sim/sizing/*.py", "sim/kv_formula.py"),
                     (*_tests("kv_formula budget capacity hardware plan cost startup_logs weights version_switches"),
                      "sim/sizing", "sim/kv_formula.py"), _tests("published_numbers weight_logs forecast search calibrate_fit")),
}
