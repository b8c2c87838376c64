"""Searches in words: the answer, what lies beside it, and what each change does to it."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.shown import Sentence
from experiments.whatif.judging import Verdict
from experiments.whatif.outcome import Outcome, changes
from experiments.whatif.points import said_of, shown
from experiments.whatif.rounding import alike, plain
from experiments.whatif.search import Found


def search_sentence(outcome: Outcome) -> Sentence | None:
    """What each search came to, both ends of its bracket, and what each change does to the answer; None without a search."""
    search = outcome.scenario.search
    if search is None:
        return None
    sure = f"at {100 * outcome.scenario.confidence:g} % confidence over {len(outcome.scenario.seeds)} seeds" \
        if len(outcome.scenario.seeds) > 1 else "with one seed, so without a confidence"
    return Sentence(f"{search.goal} {search.what} that keeps {', '.join(map(str, search.keep))}, {sure}:",
                    (*_gains(outcome), *map(_of_one, outcome.found)))


def _of_one(found: Found) -> Sentence:
    name = said_of({**dict(found.knobs), "allocator": found.allocator})
    if found.answer is None:
        why = [] if found.beyond is None else [f"at {_tried(found.beyond)}: {found.beyond.why}"]
        return Sentence(f"{name}: none: {'; '.join([*why, *([found.ended] if found.ended else [])])}")
    metrics = ", ".join(_metric(metric, mean, upper) for metric, (mean, upper) in found.answer.metrics.items())
    if found.beyond is None:
        beside = [f"nothing that was tried breaks it{f': {found.ended}' if found.ended else ''}"]
    else:
        beside = [f"{_tried(found.beyond)} does not: {found.beyond.why}", *([f"no closer: {found.ended}"] if found.ended else [])]
    return Sentence(f"{name}: {_tried(found.answer)} keeps it: {metrics}", tuple(map(Sentence, beside)), len(name) + 2)


def _metric(metric: str, mean: float, upper: float) -> str:
    unit = " s" if metric.endswith("_s") else ""
    most = "" if upper == mean else f" (at most {plain(upper)}{unit})"
    return f"{metric.removesuffix('_s').replace('_', ' ')} {plain(mean)}{unit}{most}"


def _gains(outcome: Outcome) -> Iterator[Sentence]:
    """What each change does to the answer, where both settings have one."""
    search, answered = outcome.scenario.search, {}
    for group, found in zip(outcome.groups, outcome.found, strict=True):
        if found.answer is not None and len(found.answer.settings) == 1:
            answered[(group.knobs, group.allocator)] = next(iter(found.answer.settings.values()))
    base = outcome.baseline
    before = answered.get((base.knobs, base.allocator))
    for group in outcome.groups:
        after, changed = answered.get((group.knobs, group.allocator)), changes(base, group)
        if search is not None and before is not None and after is not None and len(changed) == 1:
            what = ", ".join(f"{name} {shown(a)} -> {shown(b)}" for name, (a, b) in changed.items())
            yield Sentence(f"{what}: {search.what} {' -> '.join(alike(before, after))} ({plain(after / before)} times)")


def _tried(verdict: Verdict) -> str:
    settings = ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                         for name, value in verdict.settings.items())
    if "num-gpu-blocks-override" in verdict.settings and verdict.kv_gib is not None:
        return f"{settings} ({plain(verdict.kv_gib)} GiB)"
    if verdict.gpus and "tensor-parallel-size" in verdict.settings:
        return f"{settings} ({verdict.gpus} GPU{'s' * (verdict.gpus > 1)})"
    return settings
