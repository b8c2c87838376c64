"""Several `NaiveScheduler`s behind a router, one microsecond after the other: routers as sentences, no jumps, no ledger."""

from __future__ import annotations

from naive_scheduler import NaiveScheduler


class NaiveReplica:
    """A scheduler and the step it is in."""

    def __init__(self, scheduler):
        self.scheduler, self.ends = scheduler, None

    def load(self):
        return 4 * len(self.scheduler.waiting) + len(self.scheduler.running)

    def queued(self):
        return len(self.scheduler.waiting) + len(self.scheduler.running)

    def cached(self, request):
        return len(self.scheduler.memory.find(request, self.scheduler.requests[request][0])) * self.scheduler.size


def fewest(replicas, numbers):
    return sorted(numbers, key=lambda number: (replicas[number].load(), number))[0]


class NaiveRouter:
    """``apart`` as of the balance rule of ``prefix-aware``."""

    def __init__(self, name, sessions, apart):
        self.name, self.sessions, self.apart, self.routed, self.homes = name, sessions, apart, 0, {}

    def choose(self, request, replicas):
        everybody = list(range(len(replicas)))
        self.routed += 1
        if self.name == "round-robin":
            return (self.routed - 1) % len(replicas)
        if self.name == "session-affinity" and self.sessions[request] != -1:
            return self.homes.setdefault(self.sessions[request], fewest(replicas, everybody))
        if self.name == "prefix-aware":
            queued = sorted(replica.queued() for replica in replicas)
            if queued[-1] - queued[0] <= self.apart or queued[-1] / 3 <= queued[0] / 2:
                cached = [replica.cached(request) for replica in replicas]
                if max(cached) / replicas[0].scheduler.requests[request][0] > 0.3:
                    return fewest(replicas, [number for number in everybody if cached[number] == max(cached)])
        return fewest(replicas, everybody)


def contents(trace, size):
    """What a block holds together with all before it."""
    ids = trace.content

    def content(request, place):
        own = ids.ids[ids.starts[request]:ids.starts[request + 1]].tolist()
        known = int(trace.prompt_tokens[request]) + ids.cover_output * int(trace.output_tokens[request])
        stop = (place + 1) * size
        if stop <= min(len(own) * ids.span_tokens, known):
            return "shared", tuple(own[: (stop - 1) // ids.span_tokens + 1]), place
        return "own", request, place
    return content


def naive_fleet(trace, config, name, apart, caching):
    """(replica, arrival, admission, end) of each request and how long so many sequences ran in all; everybody can be served."""
    n, tick = len(trace), config.step_time.us
    sequences = [1] * n if trace.sequences is None else trace.sequences.tolist()
    beams = [False] * n if trace.beam_width is None else (trace.beam_width > 1).tolist()
    requests = list(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), sequences, beams, strict=True))
    sessions = [-1] * n if trace.session is None else trace.session.tolist()
    think = [-1] * n if trace.think_us is None else trace.think_us.tolist()
    replicas = [NaiveReplica(NaiveScheduler(requests, contents(trace, config.block_size), config.num_blocks, config.block_size,
                                            caching, config.split_freed, config.scheduler))
                for _ in range(config.data_parallel_size)]
    router = NaiveRouter(name, sessions, apart)
    arrival = [int(t) if w < 0 else None for t, w in zip(trace.arrival_us, think, strict=True)]
    where, admitted, end, running = [None] * n, [None] * n, [None] * n, {}
    now = 0
    while None in end:
        assert now < 100_000, "no progress"
        for replica in replicas:                       # all ends, then all arrivals, then all who are idle
            if replica.ends == now:
                replica.ends = None
                for r in replica.scheduler.update():
                    end[r] = now
                    later = [q for q in range(r + 1, n) if sessions[q] == sessions[r] >= 0]
                    if later and think[later[0]] >= 0:
                        arrival[later[0]] = now + think[later[0]]
        for r in range(n):
            if arrival[r] == now:
                where[r] = router.choose(r, replicas)
                replicas[where[r]].scheduler.add(r)
        for replica in replicas:
            scheduler = replica.scheduler
            if replica.ends is None and (scheduler.waiting or scheduler.running):
                before = scheduler.config.max_num_batched_tokens or 1 << 62
                scheduler.schedule()
                for r, *_ in [*scheduler.admitted, *scheduler.swapped_in]:
                    admitted[r] = now if admitted[r] is None else admitted[r]
                replica.ends = now + (tick if scheduler.left < before else 1)
        level = sum(len(replica.scheduler.running) for replica in replicas)
        if None in end:
            running[level] = running.get(level, 0) + 1
        now += 1
    first = min(at for at in arrival if at is not None)
    running[0] = running.get(0, 0) - first             # accounts begin with the first arrival
    return list(zip(where, arrival, admitted, end, strict=True)), {level: us for level, us in running.items() if us}
