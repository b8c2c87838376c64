"""Slow and obvious models, one block or one slot at a time. They live in the tests only; the fast code must agree."""

from __future__ import annotations


class NaivePool:
    """SEMANTICS rules 1-6 word by word: a list as the free queue, a dict of lists as the prefix index."""

    def __init__(self, num_blocks):
        self.queue = list(range(1, num_blocks))
        self.ref = [0] * num_blocks
        self.hash_of = [None] * num_blocks
        self.index = {}
        self.evicted = []

    def take(self, n):
        out = []
        for _ in range(n):
            block = self.queue.pop(0)
            content = self.hash_of[block]
            if content is not None:
                self.index[content].remove(block)
                self.hash_of[block] = None
                self.evicted.append(block)
            self.ref[block] = 1
            out.append(block)
        return out

    def touch(self, blocks):
        for block in blocks:
            if self.ref[block] == 0:
                self.queue.remove(block)
            self.ref[block] += 1

    def release(self, table):
        front, end = [], []
        for block in reversed(table):
            self.ref[block] -= 1
            if self.ref[block] == 0:
                (front if self.hash_of[block] is None else end).append(block)
        self.queue = front + self.queue + end

    def cache(self, blocks, hashes):
        for block, content in zip(blocks, hashes, strict=True):
            self.hash_of[block] = content
            self.index.setdefault(content, []).append(block)

    def lookup(self, hashes):
        out = []
        for content in hashes:
            if not self.index.get(content):
                break
            out.append(self.index[content][0])
        return out


class NaiveArena:
    """One bool a slot. Buddy: every aligned power of two inside a cut is tried, smallest enclosing free block first."""

    def __init__(self, capacity, kind):
        self.used = [False] * capacity
        self.kind = kind
        self.cuts = []
        start = 0
        for order in reversed(range(capacity.bit_length())):
            if capacity >> order & 1:
                self.cuts.append((start, 1 << order))
                start += 1 << order

    def holes(self):
        out, start = [], None
        for i, used in enumerate([*self.used, True]):
            if not used and start is None:
                start = i
            elif used and start is not None:
                out.append((start, i - start))
                start = None
        return out

    def free_buddies(self):
        """Maximal free aligned blocks: with merging at once, exactly the free blocks of a buddy allocator."""
        out = []

        def walk(start, size):
            if not any(self.used[start:start + size]):
                out.append((start, size))
            elif size > 1:
                walk(start, size // 2)
                walk(start + size // 2, size // 2)
        for start, size in self.cuts:
            walk(start, size)
        return out

    def place(self, size):
        if self.kind == "buddy":
            size = 1 << (size - 1).bit_length()
            fitting = [(s, start) for start, s in self.free_buddies() if s >= size]
        elif self.kind == "best-fit":
            fitting = [(s, start) for start, s in self.holes() if s >= size]
        else:
            fitting = [(0, start) for start, s in self.holes() if s >= size]
        if not fitting:
            return None
        start = min(fitting)[1]
        self.used[start:start + size] = [True] * size
        return start

    def release(self, start, size):
        if self.kind == "buddy":
            size = 1 << (size - 1).bit_length()
        assert all(self.used[start:start + size])
        self.used[start:start + size] = [False] * size

    def free(self):
        return self.used.count(False)

    def largest_hole(self):
        pieces = self.free_buddies() if self.kind == "buddy" else self.holes()
        return max((size for _, size in pieces), default=0)
