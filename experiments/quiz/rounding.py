"""Rounding: bytes a token, blocks that fit, and what is lost inside a block or a reservation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from experiments.quiz.exercise import Exercise, Question, between, tried
from sim.demand import Demand
from sim.kv_formula import ELEMENT_BYTES, blocks_for, blocks_that_fit, kv_bytes_per_block, kv_bytes_per_token, max_concurrency
from sim.memory.allocator import NO_PREFIX, Ask, SlotCounts
from sim.memory.arena import BuddyArena
from sim.memory.contiguous import ContiguousAllocator, reserve_max, reserve_pow2
from sim.memory.paged import PagedAllocator
from sim.sizing.hardware import GIB
from workloads.messages import counted
from workloads.request import IntArray, Trace

TITLE = "Rounding: bytes, blocks, internal fragmentation"
ARENA_SLOTS = 4096


@dataclass(frozen=True)
class Model:
    """What a token's K and V take."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: str


@dataclass(frozen=True)
class Plan:
    """A pool of ``available_gib``, and one request with ``computed`` of its tokens computed."""

    model: Model
    available_gib: int
    block_size: int
    max_model_len: int
    prompt: int
    output: int
    computed: int


@dataclass(frozen=True)
class Held:
    """What an allocator holds for the request: slots asked for, slots taken out of the pool, and the seven parts."""

    slots: int
    taken: int
    parts: SlotCounts


def draw(rng: np.random.Generator) -> Plan:
    """A request whose last block has slots of both kinds, reserved and internal, and whose reservation is rounded up."""
    return tried(rng, _propose, _is_worth)


def _propose(rng: np.random.Generator) -> Plan:
    model = Model(4 * between(rng, 4, 12), 2 ** between(rng, 1, 4), (64, 80, 128)[between(rng, 0, 2)],
                  ("bfloat16", "fp8")[between(rng, 0, 1)])
    prompt, output = between(rng, 20, 90), between(rng, 9, 60)
    return Plan(model, between(rng, 3, 40), 2 ** between(rng, 3, 5), 10 * between(rng, 30, 150), prompt, output,
                prompt + between(rng, 1, output - 2))


def _is_worth(plan: Plan) -> bool:
    blocks, buddy = paged(plan), contiguous(plan, reserve_pow2)
    return blocks.parts.reserved > 0 and blocks.parts.internal > 0 and buddy.taken > buddy.slots


def paged(plan: Plan) -> Held:
    """The request in blocks."""
    allocator = PagedAllocator(_demand(plan), plan.max_model_len // plan.block_size + 1, plan.block_size, caching=False)
    handle = allocator.admit(_ask(plan))
    assert handle is not None
    allocator.extend(np.array([handle]), np.array([plan.prompt]), np.array([plan.computed - plan.prompt]))
    slots = int(allocator.held[handle])
    return Held(slots, slots, allocator.counts(plan.computed, None))


def contiguous(plan: Plan, policy: Callable[[Demand], IntArray]) -> Held:
    """The request in a reservation, placed by a buddy arena."""
    arena = BuddyArena(ARENA_SLOTS)
    allocator = ContiguousAllocator(_demand(plan), arena, policy)
    handle = allocator.admit(_ask(plan))
    assert handle is not None
    return Held(int(allocator.held[handle]), arena.capacity - arena.free, allocator.counts(plan.computed, None))


def _demand(plan: Plan) -> Demand:
    return Demand(Trace("quiz", np.array([plan.prompt]), np.array([plan.output])), plan.max_model_len)


def _ask(plan: Plan) -> Ask:
    return Ask(0, plan.prompt, NO_PREFIX, plan.prompt, whole=True)


def work(plan: Plan) -> Exercise:
    """The formula, then the request in blocks and in reservations.

    >>> plan = Plan(Model(32, 8, 128, "bfloat16"), 40, 16, 1000, prompt=30, output=9, computed=35)
    >>> [question.answer for question in work(plan).questions][:2]
    ['131,072 bytes', '20,480 blocks']
    """
    model, element = plan.model, counted(int(ELEMENT_BYTES[plan.model.dtype]), "byte")
    return Exercise(
        f"A model of {model.layers} layers, {model.kv_heads} KV heads and head dimension {model.head_dim} keeps K and V in "
        f"{model.dtype} ({element} an element). {plan.available_gib} GiB are left for the cache, a block has "
        f"{counted(plan.block_size, 'slot')}, and max_model_len is {plan.max_model_len:,} tokens.",
        (("request", "prompt", "output", "computed now"), ("r1", f"{plan.prompt}", f"{plan.output}", f"{plan.computed}")),
        (), (f"r1 runs: {plan.computed} of its tokens are computed. Its last token will never be.",),
        (*_sizes(plan), *_in_blocks(plan), _in_a_row(plan), _by_buddy(plan)))


def _sizes(plan: Plan) -> tuple[Question, ...]:
    model, size = plan.model, plan.block_size
    element = int(ELEMENT_BYTES[model.dtype])
    token = kv_bytes_per_token(model.layers, model.kv_heads, model.head_dim, element)
    block = kv_bytes_per_block(token, size)
    blocks = blocks_that_fit(plan.available_gib * GIB, block)
    factors = f"{model.layers} layers x {model.kv_heads} KV heads x {model.head_dim} x {counted(element, 'byte')}"
    most = f"{max_concurrency(blocks, size, plan.max_model_len):.2f}x"
    return (
        Question("How many bytes does one token take?", counted(token, "byte"),
                 (f"2 (K and V) x {factors} = {token:,}",)),
        Question("How many blocks does the pool have, the null block included?", counted(blocks, "block"),
                 (f"one block: {size} x {token:,} = {block:,} bytes",
                  f"{plan.available_gib} GiB = {plan.available_gib * GIB:,} bytes, over {block:,}, rounded down: {blocks:,}")),
        Question(f"What does the server print as its maximum concurrency for {plan.max_model_len:,} tokens per request?", most,
                 (f"a request: ceil({plan.max_model_len} / {size}) = {blocks_for(plan.max_model_len, size)} blocks",
                  f"{blocks:,} / {blocks_for(plan.max_model_len, size)} = {most}, the null block not deducted")))


def _in_blocks(plan: Plan) -> tuple[Question, ...]:
    held, size, end = paged(plan), plan.block_size, int(_demand(plan).end[0])
    empty = held.parts.reserved + held.parts.internal
    return (
        Question("How many blocks does r1 hold now?", counted(held.slots // size, "block"),
                 (f"ceil({plan.computed} / {size}) = {held.slots // size}",)),
        Question("How many slots of these blocks are empty, how many of them are reserved (will be filled), and how many are "
                 "internal fragmentation (never)?",
                 f"{empty} empty: {held.parts.reserved} reserved, {held.parts.internal} internal",
                 (f"{held.slots} slots held, {held.parts.token_states} with a token: {empty} empty",
                  f"r1 ends with {plan.prompt} + {plan.output} - 1 = {end} tokens: of the empty slots {held.parts.reserved} "
                  f"below that, {held.parts.internal} above")))


def _in_a_row(plan: Plan) -> Question:
    held = contiguous(plan, reserve_max)
    return Question("With contiguous-max (max_model_len slots reserved), how many slots would be internal fragmentation now?",
                    counted(held.parts.internal, "slot"),
                    (f"{held.slots:,} slots reserved, {held.parts.token_states} filled, {held.parts.reserved} to be filled: "
                     f"{held.parts.internal:,} never",))


def _by_buddy(plan: Plan) -> Question:
    held = contiguous(plan, reserve_pow2)
    return Question("With contiguous-pow2 (the prompt and the next power of two of the output), how many slots does r1 ask for, "
                    "and how many does a buddy allocator give it?", f"{held.slots} asked for, {held.taken} given",
                    (f"{plan.prompt} + the power of two at or above {plan.output}, {held.slots - plan.prompt}, = {held.slots}",
                     f"rounded up to a power of two: {held.taken}"))
