"""Traffic one can design: every part a small seeded function, all of it described by one table.

    spec        kind:key=value                        keys      what a table may hold, out of the functions' signatures
    draws       distributions of whole numbers        lengths   of prompts and outputs     times     of thinking
    arrivals    when requests come                    schedule  the order of all rows, sessions, think times
    prefixes    what single requests share            conversations   what turns share, chats and agents
    content     all that as content ids               sharing   the part `prefix`
    recipe      one table, or a TOML file, to a Trace     complete  what a trace lacks
"""

from workloads.synth.complete import with_arrivals, with_output, with_prefix
from workloads.synth.recipe import read_recipe, recipe
from workloads.synth.spec import parse_spec

__all__ = ["parse_spec", "read_recipe", "recipe", "with_arrivals", "with_output", "with_prefix"]
