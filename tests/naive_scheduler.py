"""The scheduler as rules 22 to 31 of docs/rules.md read, one sequence and one block at a time, with samples, beams and swap.

First come, first served; chunked prefill or not, token budget, ``max_num_seqs``, whole-prompt gate, watermark. It decides on
`NaivePaged` and must agree with `Scheduler` on `PagedAllocator` step by step.
"""

from __future__ import annotations

from naive import NaivePaged

from sim.sequence_groups import mix

NO_LIMIT = 1 << 62


class Sequence:
    """A running sequence: ``target`` tokens are to be computed before its next one is sampled."""

    def __init__(self, request, name, computed, target):
        self.request, self.name, self.computed, self.target, self.new = request, name, computed, target, 0


class NaiveScheduler:
    """``requests`` as (prompt, output, sequences, whether they are beams); ``content`` as in `NaivePaged`; ``config`` ours."""

    def __init__(self, requests, content, num_blocks, size, caching, split_freed, config):
        self.requests = requests
        self.end = [p + o - 1 for p, o, _, _ in requests]
        sequences = [n for _, _, n, _ in requests]
        self.memory = NaivePaged(num_blocks, size, caching, split_freed,
                                 list(zip([r[0] for r in requests], self.end, sequences, strict=True)), content)
        self.size, self.config, self.static = size, config, config.batching == "static"
        self.keep_free = int(config.watermark * num_blocks)
        self.waiting, self.running = [], []
        self.known = [[p] * n for p, _, n, _ in requests]              # of each sequence that has not ended
        self.branched = [n == 1 for n in sequences]
        self.round = [p for p, _, _, _ in requests]                    # the token after which beams were last chosen
        self.host = {}                                                 # request -> (computed, target) of each sequence
        self.resumed, self.names, self.preemptions = set(), 0, 0

    def add(self, request):
        self.waiting.append(request)

    def name(self):
        self.names += 1
        return self.names

    def of(self, request):
        return [s for s in self.running if s.request == request]

    def over(self, s):
        """It has its last token and waits for the others of a static batch."""
        return s.computed == self.end[s.request]

    def host_used(self):
        return sum(-(-computed // self.size) for rows in self.host.values() for computed, _ in rows)

    def promised(self):
        return sum(len(self.known[s.request]) - 1 for s in self.running if not self.branched[s.request])

    # ------------------------------------------------------------------ schedule
    def schedule(self):
        self.admitted, self.preempted, self.swapped_in, self.refused = [], [], [], False
        self.left = self.config.max_num_batched_tokens or NO_LIMIT
        threshold, in_system = self.config.long_prefill_token_threshold, {s.request for s in self.running} | set(self.waiting)
        self.cap = threshold if threshold and not (self.config.exempt_lone_prefill and len(in_system) == 1) else NO_LIMIT
        closed = self.static and self.running
        for s in self.running:
            s.new = 0
        for s in list(self.running):                                   # rule 22
            if s in self.running and not self.over(s) and not self.serve(s):
                break
        for s in self.running:
            s.computed += s.new
        if self.preempted:                                             # rule 24
            self.refused = True
            return
        if closed:
            return
        while self.waiting and self.left > 0 and self.has_place(self.waiting[0]) and self.admit(self.waiting[0]):
            self.waiting.pop(0)

    def serve(self, s):
        """Tokens for a running sequence; False when it had to preempt itself (rule 23)."""
        s.new = min(max(s.target - s.computed, 1), self.cap, self.left)
        while not self.memory.grow(s.name, s.new):
            self.preempt([r for r in self.running if not self.over(r)][-1].request)
            if s not in self.running:
                return False
        self.memory.cache(s.name, s.computed, s.computed + s.new)
        self.left -= s.new
        return True

    def preempt(self, request):
        """All sequences of a request leave, and it waits in front of all (rule 31)."""
        gone = [s for s in self.of(request) if not self.over(s)]
        for s in self.of(request):
            if self.over(s):
                self.memory.free(s.name)
        self.running = [s for s in self.running if s.request != request]
        for s in reversed(gone):
            self.memory.free(s.name)
        self.waiting.insert(0, request)
        self.preempted.append(request)
        self.resumed.add(request)
        self.preemptions += 1
        if self.may_swap(gone):
            self.host[request] = [(s.computed, s.target) for s in gone]
        elif self.branched[request]:
            self.known[request] = [max(s.target, s.computed + 1) for s in gone]
            self.branched[request] = self.requests[request][2] == 1

    def may_swap(self, gone):
        if self.config.swap_blocks is None:
            return False
        blocks = sum(-(-s.computed // self.size) for s in gone)
        full = sum(-(-self.end[s.request] // self.size) for s in gone)
        return self.host_used() + blocks <= self.config.swap_blocks and full <= self.memory.usable

    def has_place(self, request):
        """Those that run, those that will branch off them, and all of this request's."""
        mine = len(self.host[request]) if request in self.host and self.branched[request] else len(self.known[request])
        return len(self.running) + self.promised() + mine <= (self.config.max_num_seqs or NO_LIMIT)

    def admit(self, request):
        if request in self.host:
            return self.swap_in(request)
        prompt, _, sequences, _ = self.requests[request]
        known = self.known[request][0] if sequences == 1 else prompt   # several: the prompt once, then each its own tokens
        hit = len(self.memory.find(request, known)) * self.size
        new = min(known - hit, self.cap)
        if self.config.enable_chunked_prefill:
            new = min(new, self.left)                                  # rule 25
        if new > self.left:
            return False
        name, keep_free = self.name(), self.keep_free if self.running else 0
        if not self.memory.admit(name, request, known, hit + new, self.config.reserve_full_isl, keep_free):
            self.refused = True
            return False
        self.running.append(Sequence(request, name, hit + new, known))
        self.left -= new
        self.admitted.append((request, hit, new, request in self.resumed))
        return True

    def swap_in(self, request):
        rows = self.host[request]
        if sum(-(-computed // self.size) for computed, _ in rows) > len(self.memory.pool.queue):
            self.refused = True
            return False
        for computed, target in rows:
            self.running.append(Sequence(request, self.name(), computed, target))
            assert self.memory.restore(self.running[-1].name, request, computed)
        del self.host[request]
        self.swapped_in.append((request, rows[0][0]))
        return True

    # ------------------------------------------------------------------ update
    def update(self):
        """Who has its last token leaves; beams are chosen; those whose prompt is computed branch. Returns who is done."""
        finished = []
        waits = self.static and not all(map(self.over, self.running))
        for s in list(self.running):                                   # rule 20
            if self.over(s) and not waits:
                self.memory.free(s.name)
                self.running.remove(s)
                if not self.of(s.request):
                    finished.append(s.request)
        for request in dict.fromkeys(s.request for s in self.running):
            if self.requests[request][3] and self.branched[request]:
                self.choose(request)
        for request in dict.fromkeys(s.request for s in self.running):
            first = self.of(request)[0]
            if not self.branched[request] and first.computed == self.requests[request][0] and not self.over(first):
                self.branch(request)
        return finished

    def branch(self, request):
        first = self.of(request)[0]
        place = self.running.index(first)
        first.target = self.known[request][0]
        for more, known in enumerate(self.known[request][1:], 1):
            self.running.insert(place + more, Sequence(request, self.name(), first.computed, known))
            self.memory.fork(first.name, self.running[place + more].name)
        self.branched[request] = True

    def choose(self, request):
        """Every survivor is a copy of its parent; then the parents go, in order."""
        beams = self.of(request)
        k, token = len(beams), beams[0].computed
        if self.over(beams[0]):
            return
        if k < 2 or any(s.computed != token or s.computed < s.target for s in beams) or token == self.round[request]:
            return
        self.round[request] = token
        names = [self.name() for _ in beams]
        for j, name in enumerate(names):
            drawn = mix(self.config.beam_seed, request, token, j, 1) < self.config.beam_turnover * 2**64
            parent = mix(self.config.beam_seed, request, token, j) % k if drawn else j
            self.memory.fork(beams[parent].name, name)
        for s, name in zip(beams, names, strict=True):
            self.memory.free(s.name)
            s.name = name
