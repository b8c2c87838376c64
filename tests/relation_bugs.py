"""One bug for each relation of `relations`: what is put in the place of what, so that the relation must be seen to fail."""

from __future__ import annotations

import sim.engine
from sim.memory.allocator import RoomIsThere
from sim.memory.contiguous import ContiguousAllocator
from sim.memory.paged import PagedAllocator
from sim.request_log import RequestLog
from sim.routing import SessionAffinity
from sim.running import RunningSequences
from sim.scheduler import Scheduler
from sim.step_time import ConstantStepTime
from sim.swap import HostPool
from sim.waiting import ArrivalQueue
from sim.warm import _Earlier


def _leaves_its_tokens_behind(leave):
    def wrong(self):
        finished = leave(self)
        self.computed += len(finished)
        return finished
    return wrong


def _forgets_the_first(finish):
    return lambda self, request, now, computed: finish(self, request, -1 if request == 0 else now, computed)


def _last_come_first_served(add):
    return lambda self, request: self._queue.appendleft(request)


def _no_tokens_for_a_long_prompt(within_budget):
    return lambda self, want, used: within_budget(self, want * (want < 3), used)


def _fewer_places_in_a_large_pool(reserve):
    return lambda self, request: None if len(self._start) > 1 and self.capacity > 99 else reserve(self, request)


def _chunks_by_the_size_of_the_pool(cap):
    return lambda self: max(1, self.allocator.capacity // 50)


def _one_block_more(seat):
    return lambda self, request, found, tokens: seat(self, request, found, tokens + (1 if tokens < self.capacity else 0))


def _one_block_more_for_paged(fits):
    return lambda self, ask: fits(self, ask._replace(keep_free=ask.keep_free + 1))


def _blocks_as_configured(slots):
    return lambda name, config: config.block_size if name == "token" else slots(name, config)


def _caching_needs_more(need):
    return lambda self, ask: need(self, ask) + (self.block_size if self.hashes is not None and not len(ask.prefix.blocks) else 0)


def _earlier_requests_stay(serve):
    def wrong(self, request, end):
        blocks = self.allocator.pool.free
        if blocks > 3:
            self.allocator.pool.take(2)
        serve(self, request, end)
    return wrong


def _by_the_number_of_the_session(choose):
    return lambda self, request, replicas: int(self._session[request]) % len(replicas)


def _later_rows_later(sampled):
    return lambda self, request, now: sampled(self, request, now + request)


def _a_microsecond_more(duration_us):
    return lambda self, load: self.us + 1


def _on_even_microseconds(sampled):
    return lambda self, request, now: sampled(self, request, now & ~1)


def _one_place_less_each(leave):
    def wrong(self):
        finished = leave(self)
        self._seqs = max(1, self._seqs - len(finished))
        return finished
    return wrong


def _nobody_could_join(decode_run):
    return lambda self, most: decode_run(self, most)._replace(open=False)


def _the_first_by_priority(victim):
    return lambda self: victim(self) if self.config.policy == "fcfs" else 0


def _always_room(take):
    def wrong(self, request, rows, end, allocator):
        self.size += 20
        return take(self, request, rows, end, allocator)
    return wrong


def _half_the_places(has_place):
    return lambda self: has_place(self) and len(self.running) <= self._seqs // 3


def _room_for_all_but_the_last(extend):
    return lambda self, handles, computed, new, lag=None: max(1, len(handles) - 1)


BUGS = {
    "the_ledger_sums_at_every_event": (Scheduler, "_leave", _leaves_its_tokens_behind),
    "completed_rejected_and_unfinished_are_all_that_arrived": (RequestLog, "finish", _forgets_the_first),
    "nobody_starves_under_fcfs": (ArrivalQueue, "add", _last_come_first_served),
    "no_run_goes_on_for_ever": (RunningSequences, "_within_budget", _no_tokens_for_a_long_prompt),
    "a_larger_pool_of_places_lowers_no_saturated_mean": (ContiguousAllocator, "_reserve", _fewer_places_in_a_large_pool),
    "a_pool_nobody_waited_for_may_be_larger": (Scheduler, "_prefill_cap", _chunks_by_the_size_of_the_pool),
    "blocks_of_one_slot_have_no_internal_fragmentation": (PagedAllocator, "_seat", _one_block_more),
    "max_model_len_as_block_size_is_places": (PagedAllocator, "fits", _one_block_more_for_paged),
    "the_token_allocator_is_paged_with_blocks_of_one": (sim.engine, "block_slots", _blocks_as_configured),
    "disjoint_prompts_are_no_sharing": (PagedAllocator, "need", _caching_needs_more),
    "a_warm_start_with_other_contents_changes_no_time": (_Earlier, "serve", _earlier_requests_stay),
    "numbers_of_contents_and_sessions_are_names": (SessionAffinity, "choose", _by_the_number_of_the_session),
    "permuting_equal_arrivals_changes_nothing_but_ids": (RequestLog, "sampled", _later_rows_later),
    "scaling_time_scales_every_time": (ConstantStepTime, "duration_us", _a_microsecond_more),
    "everything_later_is_the_same": (RequestLog, "sampled", _on_even_microseconds),
    "what_has_ended_is_forgotten": (Scheduler, "_leave", _one_place_less_each),
    "jumping_is_stepping": (Scheduler, "decode_run", _nobody_could_join),
    "equal_priorities_are_first_come_first_served": (RunningSequences, "_victim", _the_first_by_priority),
    "a_host_pool_of_nothing_is_recompute": (HostPool, "take", _always_room),
    "limits_beyond_everything_are_none": (Scheduler, "_has_place", _half_the_places),
    "reservations_are_never_preempted": (RoomIsThere, "extend", _room_for_all_but_the_last),
}
"""Relation -> (owner, name of what is replaced, function from the right one to the wrong one)."""
