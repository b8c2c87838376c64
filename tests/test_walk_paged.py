"""Random walks of the paged allocator against the naive model: block for block the same after every operation.

Some ten thousand operations by default; PAGEDSIM_LONG=100 makes a million of them, drawn anew in every run.
"""

from itertools import cycle, islice

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from naive import NaivePaged
from small import LONG

from sim.block_calendar import Some
from sim.demand import Demand
from sim.memory.allocator import NOTHING, Ask, Lag, Refusal
from sim.memory.paged import PagedAllocator
from sim.memory.prefix_index import NO_HASH
from workloads.request import ContentIds, Trace

OPERATIONS = 50
small = st.integers(0, 5)


@st.composite
def settings_of_a_walk(draw):
    """A pool too small for its requests, which begin alike more often than not."""
    size = draw(st.sampled_from([4, 3, 5, 2, 1]))
    span = size * draw(st.integers(1, 2))
    sequences = draw(st.sampled_from([[3, 1], [1]]))
    lengths = st.tuples(st.integers(1, 4 * size), st.integers(1, 6 * size), st.sampled_from(sequences))
    requests = draw(st.lists(lengths, min_size=2, max_size=4))
    ids = [draw(st.lists(st.integers(0, 1), max_size=5)) for _ in requests]
    longest = max(-(-(p + o - 1) // size) for p, o, _ in requests)
    num_blocks = 1 + longest + draw(st.integers(0, 12))
    split, lagging, looks = (draw(st.booleans()) for _ in range(3))
    cover = draw(st.sampled_from([False, True] if len(sequences) > 1 else [False, False, True]))
    return size, span, requests, ids, num_blocks, draw(st.sampled_from([True, True, False])), split, cover, lagging, looks


class PagedWalk(RuleBasedStateMachine):
    @initialize(made=settings_of_a_walk())
    def start(self, made):
        self.size, self.span, requests, self.ids, num_blocks, self.caching, split_freed, *flags = made
        self.cover, self.lagging, self.looks = flags
        prompt, output, sequences = (np.array(column, np.int64) for column in zip(*requests, strict=True))
        starts = np.cumsum([0, *map(len, self.ids)])
        content = ContentIds(np.array([i for row in self.ids for i in row], np.int64), starts, self.span, self.cover)
        demand = Demand(Trace("walk", prompt, output, content=content), int((prompt + output).max()))
        demand.sequences = sequences if sequences.max() > 1 else None
        self.requests = list(zip(prompt.tolist(), demand.end.tolist(), sequences.tolist(), strict=True))
        self.real = PagedAllocator(demand, num_blocks, self.size, self.caching, split_freed)
        self.naive = NaivePaged(num_blocks, self.size, self.caching, split_freed, self.requests, self.content)
        self.num_blocks, self.live, self.names, self.evicted = num_blocks, [], 0, []
        self.handle, self.settled = {}, {}
        self.real.pool.watch(lambda blocks: self.evicted.extend(blocks.tolist()))
        self.key_of = {}                               # block hash -> what it stands for
        if self.caching:
            for request, (_, end, _) in enumerate(self.requests):
                for place, value in enumerate(self.real.hashes.span(request, 0, end // self.size).tolist()):
                    assert self.key_of.setdefault(value, self.content(request, place)) == self.content(request, place)
            assert len(set(self.key_of.values())) == len(self.key_of)

    def content(self, request, place):
        stop, ids = (place + 1) * self.size, self.ids[request]
        prompt, end, _ = self.requests[request]
        if stop <= min(len(ids) * self.span, end + 1 if self.cover else prompt):
            return "shared", tuple(ids[: (stop - 1) // self.span + 1]), place
        return "own", request, place

    def added(self, handle, settled):
        self.live.append(self.names)
        self.handle[self.names], self.settled[self.names] = handle, settled
        self.names += 1

    def filled(self, name):
        return self.naive.live[name].filled

    def left(self, name):
        sequence = self.naive.live[name]
        return self.requests[sequence.request][1] - sequence.filled

    def decodes(self, name):
        """Whether it may make decode steps: what others may find is filled by prefill where each request is one sequence."""
        request = self.naive.live[name].request
        private = not self.caching or self.real.demand.sequences is not None or self.cover
        return self.left(name) and (private or self.filled(name) >= self.real.hashes.shared[request] * self.size)

    def columns(self, names):
        return np.array([self.handle[n] for n in names], np.int64), np.array([self.filled(n) for n in names], np.int64)

    def not_running(self, number):
        """A request of which no sequence runs: whoever was preempted comes back alone."""
        running = {self.naive.live[name].request for name in self.live}
        waiting = [request for request in range(len(self.requests)) if request not in running]
        return waiting[number % len(waiting)] if waiting else None

    # ------------------------------------------------------------------ operations
    @rule(request=small, generated=small, chunk=st.integers(1, 12), whole=st.booleans(), keep_free=st.integers(0, 2))
    def admit(self, request, generated, chunk, whole, keep_free):
        request = self.not_running(request)
        if request is None:
            return
        prompt, end, _ = self.requests[request]
        known = min(prompt + generated, end)
        prefix = self.real.find_prefix(request, known)
        assert prefix.blocks.tolist() == self.naive.find(request, known)
        assert prefix.tokens == len(prefix.blocks) * self.size < known
        ask = Ask(request, known, prefix, min(prefix.tokens + chunk, known), whole, keep_free, generated > 0)
        fits = self.real.fits(ask)
        handle = self.real.admit(ask)
        assert fits == (handle is not None) == self.naive.admit(self.names, request, known, ask.tokens, whole, keep_free)
        if handle is not None:
            self.added(handle, ask.tokens)

    @precondition(lambda self: self.live)
    @rule(start=small, tokens=st.lists(st.integers(0, 4), min_size=1, max_size=6))
    def grow(self, start, tokens):
        names = self.live[start % len(self.live):]
        new = [min(n, self.left(name)) for n, name in zip(islice(cycle(tokens), len(names)), names, strict=True)]
        handles, computed = self.columns(names)
        first = [self.settled[n] for n in names]
        stop = [self.filled(name) + n for name, n in zip(names, new, strict=True)]
        lag = None
        if self.lagging:                               # prompts are known at once, generated tokens one to three tokens later
            stop = [max(f, min(s, self.requests[self.naive.live[n].request][0]), s - 1 - s % 3)
                    for f, s, n in zip(first, stop, names, strict=True)]
            lag = Lag(computed, np.array(first), np.array(stop))
        served = self.real.extend(handles, computed, np.array(new), lag)
        for i, name in enumerate(names):
            if not self.naive.grow(name, new[i]):
                assert served == i
                break
            if new[i]:
                self.naive.cache(name, first[i], stop[i])
                self.settled[name] = stop[i]
        else:
            assert served == len(names)

    def one_each(self, names):
        """A decode step of the naive model; False if it does not fit."""
        for name in names:
            if not self.naive.grow(name, 1):
                return False
            self.naive.cache(name, self.settled[name], self.filled(name))
            self.settled[name] = self.filled(name)
        return True

    def room(self, names):
        """Whether all can make a decode step, by counting."""
        needed, left = 0, {}
        for name in names:
            sequence = self.naive.live[name]
            if sequence.filled % self.size == 0:
                needed += 1
                continue
            last = sequence.table[-1]
            left[last] = left.get(last, self.naive.holders(last))
            needed += left[last] > 1
            left[last] -= 1
        return needed <= len(self.naive.pool.queue)

    def catch_up(self, names):
        """Whatever is not findable yet for want of output becomes so."""
        for name in names:
            self.real.settle(*(np.array([x]) for x in (self.handle[name], self.settled[name], self.filled(name))))
            self.naive.cache(name, self.settled[name], self.filled(name))
            self.settled[name] = self.filled(name)

    @precondition(lambda self: self.live)
    @rule(start=small)
    def grow_by_one(self, start):
        names = [n for n in self.live[start % len(self.live):] if self.decodes(n)]
        if names:
            self.catch_up(names)
            fits = self.room(names)
            assert self.real.extend_by_one(Some(*self.columns(names))) == fits
            assert not fits or self.one_each(names)

    @precondition(lambda self: self.live)
    @rule(most=st.integers(2, 15))
    def jump(self, most):
        names = [n for n in self.live if self.decodes(n)]
        if not names:
            return
        self.catch_up(names)
        handles, computed = self.columns(names)
        most = min(most, *(self.left(n) for n in names)) if len(names) > 1 else min(most, self.left(names[0]))
        limit = self.real.decode_limit(Some(handles, computed), most)
        assert limit <= most
        if self.naive.shared_and_open():
            assert limit <= 1
            return
        if limit:
            before = sum(self.filled(n) for n in self.live)
            taken = self.real.decode(Some(handles, computed), limit)
            for step in range(limit):                  # a block taken at the start of this step is there in it
                assert self.one_each(names)
                to_come = taken.to_come([n > step for n in range(limit)]) if taken else NOTHING
                assert self.real.counts(before + len(names) * (step + 1), None, to_come) == self.naive.parts(False)
                assert self.real.logical(to_come) == sum(len(s.table) for s in self.naive.live.values()) * self.size
        assert limit == most or not self.room(names)

    def several(self):
        """The live sequences that may fork: in the middle of a prompt only where all of it is indexed, as nobody does so."""
        names = []
        for name in self.live:
            request = self.naive.live[name].request
            prompt, _, sequences = self.requests[request]
            private = self.caching and self.real.hashes.shared[request] < prompt // self.size
            if sequences > 1 and not (private and self.filled(name) < prompt):
                names.append(name)
        return names

    @precondition(lambda self: self.several())
    @rule(which=small, times=st.integers(1, 3))
    def fork(self, which, times):
        name = self.several()[which % len(self.several())]
        for _ in range(times):
            child = self.real.fork(self.handle[name])
            self.naive.fork(name, self.names)
            self.added(child, self.settled[name])

    def let_go(self, name):
        self.live.remove(name)
        self.real.release(self.handle[name], returns=True)
        self.naive.free(name)

    @precondition(lambda self: self.live)
    @rule(which=small, known=st.booleans())
    def finish(self, which, known):
        name = self.live[which % len(self.live)]
        if known:
            self.catch_up([name])
        self.let_go(name)

    @precondition(lambda self: self.live)
    @rule(many=st.integers(1, 3))
    def preempt(self, many):
        for name in self.live[-many:][::-1]:
            self.let_go(name)

    @precondition(lambda self: len(self.live) < 3)
    @rule(request=small, tokens=st.integers(1, 20))
    def restore(self, request, tokens):
        request = self.not_running(request)
        if request is None:
            return
        tokens = min(tokens, self.requests[request][1])
        need, free = self.real.restore_need(tokens), self.real.pool.free
        handle = self.real.restore(request, tokens)
        assert (handle is not None) == (need <= free * self.size) == self.naive.restore(self.names, request, tokens)
        if handle is not None:
            self.added(handle, tokens)

    # ------------------------------------------------------------------ after each of them
    @invariant()
    def the_same_tables(self):
        naive, pool = self.naive, self.real.pool
        recount = [0] * self.num_blocks
        for name in self.live:
            table = self.real.table(self.handle[name]).tolist()
            assert table == naive.live[name].table
            for block in table:
                recount[block] += 1
        assert pool.ref.tolist() == recount == naive.pool.ref
        assert self.real.copies == naive.copies and self.evicted == naive.pool.evicted

    @invariant()
    def the_same_pool(self):
        naive, pool = self.naive.pool, self.real.pool
        queue = pool.free_queue().tolist()
        held = {block for name in self.live for block in self.real.table(self.handle[name]).tolist()}
        assert queue == naive.queue and pool.free == len(queue)
        assert sorted([*held, *queue]) == list(range(1, self.num_blocks))
        if self.looks:                                 # who does not look sees what is written when a table is given back
            assert [self.key_of.get(value) for value in pool.hash_of.tolist()] == naive.hash_of
        assert [self.key_of.get(pool.written(block)) for block in queue] == [naive.hash_of[block] for block in queue]
        hashes = np.arange(len(pool._index))
        found = {self.key_of[h]: b for h, b in enumerate(pool.find(hashes).tolist()) if b != NO_HASH}
        assert found == {key: blocks[0] for key, blocks in naive.index.items() if blocks and self.shared(key)}
        assert {self.key_of[h]: rest for h, rest in pool._copies.items()} == {
            key: blocks[1:] for key, blocks in naive.index.items() if len(blocks) > 1 and self.shared(key)}

    def shared(self, key):
        """Whether two requests begin with this content; the walk asks for the others through `find_prefix`."""
        kind, ids, _ = key
        return kind == "shared" and sum(tuple(row[: len(ids)]) == ids for row in self.ids) > 1

    @invariant()
    def the_same_slots(self):
        computed = sum(self.filled(name) for name in self.live)
        for refused in (None, Refusal(1)):
            got = self.real.counts(computed, refused)
            assert tuple(got) == self.naive.parts(refused is not None)
            assert sum(got) == self.real.capacity
        assert self.real.logical() == sum(len(self.naive.live[n].table) for n in self.live) * self.size


PagedWalk.TestCase.settings = settings(max_examples=400 * LONG, stateful_step_count=OPERATIONS)
TestPagedWalk = PagedWalk.TestCase
