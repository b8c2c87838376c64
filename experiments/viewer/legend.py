"""Plain words for what stands on the map: the seven parts in the ledger's order, and the terms around them."""

PARTS = (
    ("token states", "hold the K and V of a computed token: useful. A slot shared by several sequences counts once. Drawn plain, "
     "in the colour of the request."),
    ("reserved", "empty now; the sequence that holds them will fill them. Stripes in its colour."),
    ("internal fragmentation", "empty, and the sequence that holds them will never fill them. A grid in its colour."),
    ("cached", "held by nobody and free to take, but full of a prefix that a later request may still find. Dots."),
    ("external fragmentation", "free, but of no use to the request that is refused although enough slots are free in total: they "
     "do not lie in a row. Also what a buddy allocator rounds up, and a rest too small for a page. Horizontal lines."),
    ("remainder", "free while the head of the queue is refused, and too few for it. Vertical lines."),
    ("idle", "free, and nobody is refused. Plain."),
)
"""Name and meaning, in the order of `sim.memory.allocator.PARTS`."""

WORDS = (
    ("admitted", "a waiting request gets memory and runs from this step on."),
    ("refused", "the request at the head of the waiting queue does not run because of memory. Those behind it wait as well."),
    ("preempted", "a running sequence needs a block and none is free: the sequence admitted last gives its blocks back and "
     "waits; what it computed is computed again later, unless its blocks are still found in the cache."),
    ("block table", "the blocks of a sequence in order. They may lie anywhere in the pool."),
    ("ref count", "how many block tables hold a block. Above 1 it is shared and its tokens are stored once: the map says ×3 "
     "instead of a name and draws a second edge."),
    ("free queue", "blocks with ref count 0 in the order they will be handed out. N marks the next one."),
    ("evicted", "a cached block is handed out for new tokens; its old content can no longer be found. E marks the cached block "
     "that is evicted next."),
    ("copy-on-write", "a sequence about to write into a block that others hold too goes on in a copy."),
    ("address, hole", "a contiguous reservation needs addresses in a row. The bar reads like lines of text; the number at its "
     "left is the first address of a line, the number in a hole is its size in slots."),
    ("step", "one pass of the model: each running sequence computes one token, or its prompt. Between two events nothing "
     "changes."),
)
"""Term and meaning."""
