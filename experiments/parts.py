"""The seven parts of the pool as people read them: in one word or a few, and in a line each, to the slot."""

from __future__ import annotations

LABELS = {
    "token_states": "token states (useful)", "reserved": "reserved, will be filled",
    "internal": "internal fragmentation", "cached": "cached, free to take", "external": "external fragmentation",
    "remainder": "remainder, too small", "idle": "idle, nobody refused",
}
"""Part -> what a table or a picture calls it."""
SHORT = {"token_states": "useful", "reserved": "reserved", "internal": "internal", "cached": "cached", "external": "external",
         "remainder": "remainder", "idle": "idle"}
"""Part -> the same in one word, where there is little room."""
PARTS_IN_WORDS = {
    "token_states": "slots that hold the K and V of a computed token; a slot that several sequences share counts once.",
    "reserved": "empty slots that their holder will still fill: positions below P + O - 1, of P prompt and O output tokens "
                "(the last token of an output is never computed).",
    "internal": "the other empty slots of blocks in use or of a reservation: nobody will ever fill them.",
    "cached": "slots of blocks that nobody holds but a prefix lookup still finds: free to take, and useful until then. "
              "Contiguous allocators have none.",
    "external": "free slots while the head of the queue is refused although enough are free in total, only not in a row; and "
                "what a buddy allocator rounds a reservation up by, or is too little for a page of vattention. Blocks have none.",
    "remainder": "free slots, cached ones apart, while the head of the queue is refused and all that is free is too little.",
    "idle": "free slots while nobody is refused.",
}
"""Part, in the order of `sim.memory.allocator.PARTS` -> what it counts."""
TOGETHER = ("The seven add up to the pool, (blocks - 1) x slots a block: block 0 is set aside. All are means over time; "
            "useful part of allocated = token states / (token states + reserved + internal fragmentation).")
