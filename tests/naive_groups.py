"""Block tables of several groups, one block at a time (rules 39-41 of docs/rules.md). Slow and obvious; the fast code must agree.

A group is ("full", None), ("sliding", window) or ("chunked", chunk). Block 0 in a table is the null block.
"""

from __future__ import annotations

from naive import NaivePool


class GroupPool(NaivePool):
    """The pool, whose blocks are given back in the order they come; ``split`` as since vLLM 0.25."""

    def __init__(self, num_blocks, split):
        super().__init__(num_blocks)
        self.split = split

    def give_back(self, blocks):
        unheld = []
        for block in blocks:
            self.ref[block] -= 1
            assert self.ref[block] >= 0
            if self.ref[block] == 0:
                unheld.append(block)
        front = [b for b in unheld if self.split and self.hash_of[b] is None]
        self.queue = front + self.queue + [b for b in unheld if b not in front]

    def first(self, content):
        return self.index[content][0] if self.index.get(content) else None


class NaiveGroups:
    """``hashes[r]`` are the block hashes of request ``r``."""

    def __init__(self, num_blocks, size, groups, caching, in_flight, max_len, hashes, split=True):
        self.size, self.groups, self.caching, self.hashes = size, groups, caching, hashes
        self.in_flight, self.max_len = in_flight, max_len
        self.pool = GroupPool(num_blocks, split)
        self.tables, self.request, self.filled_to = {}, {}, {}

    def skipped_blocks(self, group, computed):
        kind, reach = group
        tokens = {"full": 0, "sliding": max(0, computed - (reach or 0) + 1),
                  "chunked": computed // reach * reach if kind == "chunked" else 0}[kind]
        return tokens // self.size

    def cap(self, group):
        kind, reach = group
        if kind == "full":
            return 10 ** 9
        seen = reach - 1 if kind == "sliding" else reach
        return -(-min(seen + self.in_flight, self.max_len) // self.size) + (kind == "sliding")

    # ------------------------------------------------------------------ lookup
    def find(self, request, tokens):
        """One table a group, all of the same length."""
        limit = tokens - 1
        if not self.caching:
            return [[] for _ in self.groups]
        kinds = sorted(set(self.groups), key=lambda k: (k[0] != "full", self.groups.index(k)))
        tables, full_hit = {}, None
        while True:
            length = limit
            for kind in kinds:
                if kind[0] == "full" and full_hit is not None:
                    length = min(length, full_hit)
                    continue
                members = [g for g, other in enumerate(self.groups) if other == kind]
                for g, table in zip(members, self.find_kind(request, kind, members, length), strict=True):
                    tables[g] = table
                length = len(tables[members[0]]) * self.size
                full_hit = length if kind[0] == "full" else full_hit
            one_pass = len(self.groups) == 1 or (len(kinds) == 2 and kinds[0][0] == "full")
            if length >= limit or one_pass:
                break
            limit = length
        return [tables[g][: length // self.size] for g in range(len(self.groups))]

    def find_kind(self, request, kind, members, limit):
        def held(i):
            blocks = [self.pool.first((self.hashes[request][i], g)) for g in members]
            return None if None in blocks else blocks

        most = limit // self.size
        if kind[0] == "sliding":
            need = -(-(kind[1] - 1) // self.size)
            columns, run = [[0] * len(members) for _ in range(most)], 0
            for i in reversed(range(most)):
                blocks = held(i)
                run = run + 1 if blocks else 0
                if blocks:
                    columns[i] = blocks
                    if run >= need:
                        columns = columns[: i + run]
                        break
            else:
                columns = columns[:run]
        else:
            start = self.skipped_blocks(kind, limit)
            columns = [[0] * len(members) for _ in range(start)]
            for i in range(start, most):
                if not held(i):
                    break
                columns.append(held(i))
        return [[column[m] for column in columns] for m in range(len(members))]

    # ------------------------------------------------------------------ allocation
    def fits(self, hits, known, tokens, whole, keep_free):
        def needed(total, capped):
            blocks = 0
            for group, hit in zip(self.groups, hits, strict=True):
                required = min(-(-total // self.size), self.cap(group) if capped else 10 ** 9)
                skipped = self.skipped_blocks(group, len(hit) * self.size)
                blocks += max(required - max(skipped, len(hit)), 0)
                blocks += sum(b != 0 and self.pool.ref[b] == 0 for b in hit[skipped:])
            return blocks
        free = len(self.pool.queue)
        return not (whole and needed(min(known, self.max_len), True) + keep_free > free) \
            and needed(tokens, False) + keep_free <= free

    def admit(self, name, request, hits, tokens):
        tables = []
        for hit in hits:
            self.pool.touch([b for b in hit if b])
            tables.append(list(hit))
        for table in tables:
            table += self.pool.take(-(-tokens // self.size) - len(table))
        self.tables[name], self.request[name], self.filled_to[name] = tables, request, len(hits[0])
        self.cache(name, tokens)

    def extend(self, name, computed, new, processed, known):
        """Whether ``new`` tokens have room now; what has left a window is freed in any case."""
        for group, table in zip(self.groups, self.tables[name], strict=True):
            gone = []
            for i in reversed(range(min(self.skipped_blocks(group, processed), len(table)))):
                if table[i] == 0:
                    break
                gone.append(table[i])
                table[i] = 0
            self.pool.give_back(gone)
        total = -(-(computed + new) // self.size)
        if sum(max(total - len(table), 0) for table in self.tables[name]) > len(self.pool.queue):
            return False
        for table in self.tables[name]:
            table += self.pool.take(max(total - len(table), 0))
        self.cache(name, known)
        return True

    def cache(self, name, tokens):
        if not self.caching:
            return
        full = max(tokens // self.size, self.filled_to[name])
        for g, (group, table) in enumerate(zip(self.groups, self.tables[name], strict=True)):
            for i in range(self.filled_to[name], full):
                if table[i] and group != ("sliding", 1):
                    self.pool.cache([table[i]], [(self.hashes[self.request[name]][i], g)])
        self.filled_to[name] = full

    def release(self, name):
        for table in self.tables.pop(name):
            self.pool.give_back([b for b in reversed(table) if b])

    def parts(self, computed, end, refused):
        """The seven parts; ``computed`` and ``end`` by name."""
        cached = sum(self.pool.hash_of[b] is not None for b in self.pool.queue) * self.size
        free = len(self.pool.queue) * self.size - cached
        return (*used_slots(self.tables, computed, end, self.size), cached, 0, free if refused else 0, 0 if refused else free)


def used_slots(tables, computed, end, size):
    """Slots of held blocks, one by one: with a token, to be filled, never filled. Sharers must agree on a block."""
    holds = {}
    for name, groups in tables.items():
        for table in groups:
            for place, block in enumerate(table):
                if block:
                    states, filled = (min(max(n - place * size, 0), size) for n in (computed[name], end[name]))
                    assert holds.setdefault(block, (states, filled)) == (states, filled)
    states = sum(s for s, _ in holds.values())
    reserved = sum(f - s for s, f in holds.values())
    return states, reserved, len(holds) * size - states - reserved
