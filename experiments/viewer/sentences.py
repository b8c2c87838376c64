"""A sentence for everything that happens at a moment, out of the pool before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.viewer.moments import ARRIVES, BEGINS, Moment
from experiments.viewer.refusals import Refused, refusal_text
from experiments.viewer.snapshot import Key, Row, Snapshot
from experiments.viewer.wording import Names, blocks_text, ids
from sim.demand import Demand
from sim.step import Step
from workloads.messages import counted

Sentence = tuple[str, str]
"""One of `moments.KINDS`, and the text."""
MOST_LISTED = 6


@dataclass(frozen=True)
class Scene:
    """One moment, with the pool before and after it.

    Parameters
    ----------
    refused : Refused, optional
        Who is refused after it.
    swapped : frozenset of int
        Requests that lie in host memory after it.
    tiered : bool
        Whether evicted contents move to host memory.
    """

    moment: Moment
    before: Snapshot
    after: Snapshot
    refused: Refused | None = None
    swapped: frozenset[int] = frozenset()
    tiered: bool = False


def tell(scene: Scene, names: Names, demand: Demand, block_size: int) -> list[Sentence]:
    """What happened, in the order in which it did.

    Parameters
    ----------
    scene : Scene
    names : Names
    demand : Demand
        Lengths of the requests.
    block_size : int
        Slots a block, for numbers of slots beside numbers of blocks.
    """
    moment = scene.moment
    if moment.phase == ARRIVES:
        return [_arrival(scene, names, demand)]
    if moment.phase != BEGINS:
        return list(_ends(scene, names))
    assert moment.step is not None
    said = [_preemption(scene, names, request, computed) for request, computed in moment.step.preempted]
    said += _evictions(scene, names)
    said += _growth(scene, names, moment.step)
    for admission in _admitted(moment.step):
        said += _admission(scene, names, admission, block_size)
    if scene.refused is not None and "refuse" in moment.kinds:
        said.append(("refuse", refusal_text(scene.refused, names, block_size)))
    return said or [("step", _step(moment.step))]


# ---------------------------------------------------------------------- arrivals, ends, steps
def _arrival(scene: Scene, names: Names, demand: Demand) -> Sentence:
    request, ahead = scene.moment.requests[0], len(scene.before.waiting)
    prompt, output = int(demand.prompt[request]), int(demand.output[request])
    lengths = f"{counted(prompt, 'prompt token')}, {counted(output, 'token')} to generate"
    queue = f"{ahead:,} wait{'s' if ahead == 1 else ''} already" if ahead else "nobody else waits"
    return "arrive", f"{names[request]} arrives: {lengths}; {queue}."


def _step(step: Step) -> str:
    return f"A step begins: {counted(step.sequences, 'sequence')} compute{'s' if step.sequences == 1 else ''} " \
           f"{counted(step.new_tokens, 'token')}."


def _ends(scene: Scene, names: Names) -> Iterator[Sentence]:
    for request in scene.moment.requests:
        gone = [key for key in scene.before.rows if key[0] == request]
        gives = _given_back(scene, gone, names) if gone else "it held nothing"
        yield "finish", f"{names[request]} has its last token and leaves: {gives}."
    several = dict.fromkeys(key[0] for pool in (scene.after, scene.before) for key in pool.rows if key[1])
    for request in several:
        now, then = (_tables(rows, request) for rows in (scene.after.rows, scene.before.rows))
        if len(now) > len(then) > 0 and not next(iter(now.values())).place:
            yield "fork", f"{names[request]} branches: {counted(len(now), 'sequence')} hold the same blocks."
        elif now.keys() == then.keys() and any(now[key].blocks != then[key].blocks for key in now):
            yield "fork", f"{names[request]}: its beams have chosen whom to go on from; they share the blocks up to there."
        elif 0 < len(now) < len(then):
            yield "finish", f"{names[request]}: {counted(len(then) - len(now), 'sequence')} of it ended; others go on."


def _tables(rows: dict[Key, Row], request: int) -> dict[Key, Row]:
    return {key: row for key, row in rows.items() if key[0] == request}


def _given_back(scene: Scene, keys: list[Key], names: Names) -> str:
    """What becomes of what these sequences held."""
    rows = [scene.before.rows[key] for key in keys]
    places = [row.place for row in rows if row.place is not None]
    if places:
        unfilled = sum(max(0, place.size - row.computed) for place, row in zip(places, rows, strict=True))
        at, slots = ", ".join(f"{place.start:,}" for place in places[:MOST_LISTED]), sum(place.size for place in places)
        return f"{counted(slots, 'slot')} at address {at} are free again, {unfilled:,} of them were empty"
    walk = [block for row in rows for block in reversed(row.blocks)]
    blocks = list(dict.fromkeys(reversed(walk)))[::-1]                       # one held twice is given back the second time
    holders, before = scene.after.holders(blocks), scene.before.holders(blocks)
    stay = [b for b in blocks if holders[b] and any(key not in keys for key in before[b])]
    taken = [b for b in blocks if holders[b] and b not in stay]
    cached = [b for b in blocks if not holders[b] and scene.after.findable[b]]
    parts = [_stays(len(cached), "cached"), _stays(len(stay), "with others that share it", "with others that share them"),
             _taken(scene.after, set(taken), names)]
    told = ", ".join(part for part in parts if part)
    whole = f"{counted(len(blocks), 'block')} {ids(blocks)} are" if len(blocks) > 1 else f"{blocks_text(blocks)} is"
    return f"its {whole} given back{f' ({told})' if told else ''}"


def _stays(n: int, where: str, of_several: str = "") -> str:
    return f"{n:,} stays {where}" if n == 1 else f"{n:,} stay {of_several or where}" if n else ""


def _taken(after: Snapshot, blocks: set[int], names: Names) -> str:
    """Who took which of these blocks, in the order in which they run."""
    takers = [(key, [block for block in row.blocks if block in blocks]) for key, row in after.rows.items()]
    told = [f"{names.sequence(key)} ({ids(took)})" for key, took in takers if took]
    more = f" and {len(told) - MOST_LISTED:,} more" if len(told) > MOST_LISTED else ""
    return f"taken at once by {', '.join(told[:MOST_LISTED])}{more}" if told else ""


def _preemption(scene: Scene, names: Names, request: int, computed: int) -> Sentence:
    gone = [key for key in scene.before.rows if key[0] == request]
    what = "they are copied to host memory, from which it will go on" if request in scene.swapped else \
        f"its {counted(computed, 'computed token')} will have to be computed again{_unless_found(scene)}"
    gives = _given_back(scene, gone, names) if gone else "it gives back what it took in this step"
    ahead = scene.after.waiting.index(request) if request in scene.after.waiting else 0
    place = f"behind {counted(ahead, 'other')}" if ahead else "at the head of the queue"
    return "preempt", f"{names[request]} preempted, as no block is left for the others: {gives}; {what}; it waits {place}."


def _unless_found(scene: Scene) -> str:
    return ", but for what the cache still holds then" if scene.after.findable.any() else ""


# ---------------------------------------------------------------------- blocks that change hands
def _evictions(scene: Scene, names: Names) -> list[Sentence]:
    evicted = scene.moment.evicted
    if not evicted:
        return []
    holders = scene.after.holders(block for block, _ in evicted[:MOST_LISTED])
    shown = [f"{block} (written by {names[writer] if writer >= 0 else 'an earlier trace'}"
             f"{', now held by ' + names.several(holders[block]) if holders[block] else ''})"
             for block, writer in evicted[:MOST_LISTED]]
    more = f" and {len(evicted) - MOST_LISTED:,} more" if len(evicted) > MOST_LISTED else ""
    one = len(evicted) == 1
    lost = f"{'its content moves' if one else 'their contents move'} to host memory" if scene.tiered else \
        f"{'its content is' if one else 'their contents are'} no longer findable"
    return [("evict", f"{counted(len(evicted), 'cached block')} evicted to be used anew: {', '.join(shown)}{more}; {lost}.")]


def _growth(scene: Scene, names: Names, step: Step) -> list[Sentence]:
    new = {admission[0] for admission in _admitted(step)}
    grown, copied = [], []
    for key, row in scene.after.rows.items():
        was = scene.before.rows.get(key)
        if was is None or key[0] in new or row.blocks == was.blocks:
            continue
        held = len(was.blocks)
        copied += [(key, one, two) for one, two in zip(was.blocks, row.blocks, strict=False) if one != two]
        if len(row.blocks) > held:
            grown.append(f"{names.sequence(key)} takes {blocks_text(row.blocks[held:])}")
    said = [("copy", f"{names.sequence(key)} writes into block {one}, which others hold too: it goes on in a copy, block {two} "
                     "(copy-on-write).") for key, one, two in copied[:MOST_LISTED]]
    if grown:
        more = f"; {len(grown) - MOST_LISTED:,} more grow as well" if len(grown) > MOST_LISTED else ""
        said.append(("grow", f"{'; '.join(grown[:MOST_LISTED])}{more}."))
    return said


# ---------------------------------------------------------------------- admissions
def _admitted(step: Step) -> list[tuple[int, int, int, bool]]:
    """Request, tokens found, tokens to compute, whether it ran before."""
    return [*((request, 0, -tokens, True) for request, tokens in step.swapped_in),
            *((request, found, new, resumed) for request, found, new, resumed, _ in step.admitted)]


def _admission(scene: Scene, names: Names, admission: tuple[int, int, int, bool], block_size: int) -> list[Sentence]:
    request, found, new, resumed = admission
    keys = [key for key in scene.after.rows if key[0] == request]
    name, again = names[request], " again" if resumed else ""
    computes = f"{counted(new, 'token')} computed in this step" if new >= 0 else \
        f"{counted(-new, 'token state')} come back from host memory"
    row = scene.after.rows.get((request, 0))
    if row is None:                                    # admitted and preempted in one step
        return [("admit", f"{name} admitted{again}: {computes}.")]
    if row.place is not None:
        return [("admit", f"{name} admitted{again}: {_reservations(scene, keys)}; {computes}.")]
    shared = min(found // block_size, len(row.blocks))
    own = row.blocks[shared:]
    said = [("admit", f"{name} admitted{again}: takes {blocks_text(own) if own else 'no new block'}; {computes}.")]
    return [*said, *(_sharing(scene, names, request, row.blocks[:shared], block_size) if shared else [])]


def _reservations(scene: Scene, keys: list[Key]) -> str:
    rows = [scene.after.rows[key] for key in keys]
    first = rows[0]
    assert first.place is not None
    start, size, rounded = first.place
    more = f" (and {counted(len(rows) - 1, 'reservation')} as large for its other sequences)" if len(rows) > 1 else ""
    up = f", rounded up to {rounded:,} by the buddy allocator" if rounded > size else ""
    return f"reserves {counted(size, 'slot')} in a row from address {start:,} on{up}{more}, of which it will fill " \
           f"{min(size, first.end):,}"


def _sharing(scene: Scene, names: Names, request: int, blocks: tuple[int, ...], block_size: int) -> list[Sentence]:
    holders = scene.after.holders(blocks)
    shared = [b for b in blocks if any(key[0] != request for key in holders[b])]
    alone = [b for b in blocks if b not in shared]
    with_whom = names.several([key for b in shared for key in holders[b] if key[0] != request])
    parts = [f"{blocks_text(shared)} shared with {with_whom}" if shared else "",
             f"{ids(alone) if shared else blocks_text(alone)} held by nobody else" if alone else ""]
    return [("share", f"{names[request]} finds {counted(len(blocks) * block_size, 'token')} of its prompt in the prefix cache: "
                      f"{'; '.join(part for part in parts if part)}.")]
