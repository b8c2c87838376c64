"""Slow and obvious models, one block or one slot at a time. They live in the tests only; the fast code must agree."""

from __future__ import annotations


class NaivePool:
    """rules 1-6 of docs/rules.md word by word: a list as the free queue, a dict of lists as the prefix index."""

    def __init__(self, num_blocks, split_freed=True):
        self.split_freed = split_freed
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
                (front if self.split_freed and self.hash_of[block] is None else end).append(block)
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


class NaiveSequence:
    def __init__(self, request, table, filled):
        self.request, self.table, self.filled = request, table, filled


class NaivePaged:
    """Block tables as lists on a `NaivePool`, one sequence and one block after the other.

    ``content(request, place)`` is what a full block holds together with everything before it; a request of several
    ``sequences`` never lets blocks be found that are not wholly inside its prompt.
    """

    def __init__(self, num_blocks, size, caching, split_freed, requests, content):
        self.pool = NaivePool(num_blocks, split_freed)
        self.size, self.usable, self.caching = size, num_blocks - 1, caching
        self.requests, self.content = requests, content        # requests: [(prompt, end, sequences), ...]
        self.live = {}
        self.copies = 0

    def findable(self, request, tokens):
        """The contents of the blocks of the first ``tokens`` tokens that may be found."""
        prompt, _, sequences = self.requests[request]
        if not self.caching:
            return []
        return [self.content(request, place) for place in range((min(tokens, prompt) if sequences > 1 else tokens) // self.size)]

    def find(self, request, tokens):
        return self.pool.lookup(self.findable(request, tokens - 1))

    def admit(self, name, request, known, tokens, whole, keep_free):
        found = self.find(request, known)
        asked = -(-(known if whole else tokens) // self.size) - len(found)
        if asked + sum(self.pool.ref[b] == 0 for b in found) > len(self.pool.queue) - keep_free:
            return False
        self.pool.touch(found)
        table = found + self.pool.take(-(-tokens // self.size) - len(found))
        self.live[name] = NaiveSequence(request, table, tokens)
        self.cache(name, len(found) * self.size, tokens)
        return True

    def restore(self, name, request, tokens):
        blocks = -(-tokens // self.size)
        if blocks > len(self.pool.queue):
            return False
        self.live[name] = NaiveSequence(request, self.pool.take(blocks), tokens)
        self.cache(name, 0, tokens)
        return True

    def fork(self, name, child):
        sequence = self.live[name]
        for block in sequence.table:
            self.pool.ref[block] += 1
        self.live[child] = NaiveSequence(sequence.request, list(sequence.table), sequence.filled)

    def holders(self, block):
        return sum(block in sequence.table for sequence in self.live.values())

    def grow(self, name, new):
        sequence = self.live[name]
        table = sequence.table
        copy = new > 0 and sequence.filled % self.size > 0 and self.holders(table[-1]) > 1
        more = max(0, -(-(sequence.filled + new) // self.size) - len(table))
        if copy + more > len(self.pool.queue):
            return False
        if copy:
            self.pool.ref[table[-1]] -= 1
            table[-1] = self.pool.take(1)[0]
            self.copies += 1
        table += self.pool.take(more)
        sequence.filled += new
        return True

    def cache(self, name, first, stop):
        """The blocks that end after ``first`` tokens and not after ``stop`` become findable."""
        sequence = self.live[name]
        contents = self.findable(sequence.request, stop)
        places = range(first // self.size, len(contents))
        self.pool.cache([sequence.table[p] for p in places], [contents[p] for p in places])

    def free(self, name):
        self.pool.release(self.live.pop(name).table)

    def shared_and_open(self):
        """Whether a partly filled block has more than one holder."""
        return any(s.filled % self.size and self.holders(s.table[-1]) > 1 for s in self.live.values())

    def parts(self, refused):
        """The seven parts of the pool, slot by slot."""
        filled, wanted = set(), set()
        for sequence in self.live.values():
            end = self.requests[sequence.request][1]
            for place, block in enumerate(sequence.table):
                for slot in range(self.size):
                    if place * self.size + slot < sequence.filled:
                        filled.add((block, slot))
                    if place * self.size + slot < end:
                        wanted.add((block, slot))
        held = len({block for sequence in self.live.values() for block in sequence.table}) * self.size
        cached = sum(self.pool.hash_of[block] is not None for block in self.pool.queue) * self.size
        rest = self.usable * self.size - held - cached
        return (len(filled), len(wanted - filled), held - len(filled | wanted), cached, 0,
                rest if refused else 0, 0 if refused else rest)


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
