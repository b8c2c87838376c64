"""Answers: what each change does against the baseline, and what brings a worse one back, as sentences and as JSON.

    rate 2 -> 4: concurrency 38.1 -> 61.4 (+23 ± 1), queue p99 0.40 s -> 7.90 s (+7.50), preemptions 0 -> 412
        kv-cache-dtype auto -> fp8 brings it back: queue p99 0.5 s, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from experiments.whatif.judging import judge, spared
from experiments.whatif.outcome import Group, Outcome, changes, unlike_windows
from experiments.whatif.statistics import Estimate

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Headline:
    """A metric of the answers: column, name, unit, and whether more of it is worse."""

    metric: str
    name: str
    unit: str = ""
    worse: bool = False


HEADLINES = (
    Headline("concurrency_mean", "concurrency"), Headline("queue_p99_s", "queue p99", "s", True),
    Headline("ttft_p99_s", "TTFT p99", "s", True), Headline("tpot_mean_s", "TPOT mean", "s", True),
    Headline("output_tokens_per_s", "output tokens/s"), Headline("preemptions", "preemptions", "", True),
    Headline("rejected", "rejected", "", True), Headline("hit_rate", "hit rate"),
)
JUDGED = ("queue_p99_s", "ttft_p99_s", "preemptions", "rejected")
"""A setting is worse if one of these is."""
NOTABLE, UNCERTAIN = 0.005, 0.2
"""Smaller relative changes, certain and uncertain ones, are none for people; the JSON has them all."""


@dataclass(frozen=True)
class Effect:
    """One metric before and after a change; ``difference`` is taken seed by seed."""

    headline: Headline
    before: Estimate
    after: Estimate
    difference: Estimate

    @property
    def by(self) -> float:
        """The mean difference."""
        return self.difference.mean or 0.0

    @property
    def certain(self) -> bool:
        """Whether the interval of the difference leaves out 0; with one seed the runs are all there is."""
        return abs(self.by) > (self.difference.half or 0.0)

    @property
    def notable(self) -> bool:
        """Worth a word: certain and not tiny, or so large that its uncertainty is worth one."""
        share = abs(self.by) / abs(self.before.mean) if self.before.mean else float(self.by != 0)
        return share > (NOTABLE if self.certain else UNCERTAIN)

    @property
    def worse(self) -> bool:
        """Surely more of what nobody wants."""
        return self.headline.worse and self.certain and self.notable and self.by > 0


@dataclass(frozen=True)
class Answer:
    """What a change does: against the baseline, or (``remedies``) against a change that made things worse.

    ``back``: a remedy after which all promises of the search are kept; without a search, none of `JUDGED` is more than in the
    baseline, its interval and a tenth allowed for. ``tried``: how many settings were looked at for remedies.
    """

    base: Group
    group: Group
    effects: tuple[Effect, ...]
    remedies: tuple[Answer, ...] = ()
    back: bool = False
    tried: int = 0

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Name -> (before, after)."""
        return changes(self.base, self.group)

    @property
    def unlike(self) -> bool:
        """Whether latencies, concurrency and throughput are not compared, being averaged over unlike windows."""
        return unlike_windows(self.base, self.group)


def answers(outcome: Outcome) -> list[Answer]:
    """One for each setting that differs from the baseline in one thing, in the order of the grid."""
    base = outcome.baseline
    made = []
    for group in outcome.groups:
        if len(changes(base, group)) == 1:
            made.append(_remedied(outcome, _answer(outcome, base, group)))
    return made


def _answer(outcome: Outcome, base: Group, group: Group) -> Answer:
    return Answer(base, group, tuple(_effects(outcome, base, group)))


def _effects(outcome: Outcome, base: Group, group: Group) -> Iterator[Effect]:
    for headline in HEADLINES:
        before, after = (outcome.estimate(one, headline.metric) for one in (base, group))
        difference = outcome.difference(group, headline.metric, base)
        if before is not None and after is not None and difference is not None:
            yield Effect(headline, before, after, difference)


def _remedied(outcome: Outcome, answer: Answer) -> Answer:
    """With the settings that have one more change and undo some of the harm, the one that undoes most first."""
    harm = [effect.headline.metric for effect in answer.effects if effect.worse and effect.headline.metric in JUDGED]
    if not harm:
        return answer
    made = []
    for group in outcome.groups:
        more = changes(answer.group, group)
        if len(more) == 1 and not set(more) & set(answer.changes) and group.done:
            made.append(_answer(outcome, answer.group, group))
    first = harm[0]
    helps = [replace(one, back=_is_back(outcome, one)) for one in made
             if (effect := _effect(one, first)) and effect.notable and effect.by < 0]
    return replace(answer, remedies=tuple(sorted(helps, key=lambda one: _mean_after(one, first))), tried=len(made))


def _is_back(outcome: Outcome, remedy: Answer) -> bool:
    """Whether all promises are kept; without promises, whether nothing that is judged is more than in the baseline."""
    why = broken(outcome, remedy.group)
    if why is not None:
        return not why
    against = [effect for effect in _effects(outcome, outcome.baseline, remedy.group) if effect.headline.metric in JUDGED]
    known = [metric for metric in JUDGED if outcome.estimate(outcome.baseline, metric) is not None]
    return len(against) == len(known) and not any(map(_is_more, against))


def _is_more(effect: Effect) -> bool:
    """Beyond the interval of what it was and a tenth."""
    before, after = effect.before.mean or 0.0, effect.after.mean or 0.0
    return after > 1.1 * before + (effect.before.half or 0.0)


def broken(outcome: Outcome, group: Group) -> str | None:
    """Which promises of the search a setting of the grid breaks, in words.

    Returns
    -------
    str or None
        Empty if it keeps them all; None where nothing is promised, or the setting could not be run.
    """
    search = outcome.scenario.search
    if search is None or not group.done:
        return None
    return judge(search, {}, group.rows, outcome.scenario.confidence, spared(group.rows)).why


def _effect(answer: Answer, metric: str) -> Effect | None:
    return next((effect for effect in answer.effects if effect.headline.metric == metric), None)


def _mean_after(answer: Answer, metric: str) -> float:
    effect = _effect(answer, metric)
    assert effect is not None
    return effect.after.mean or 0.0


# ---------------------------------------------------------------------- JSON
def estimate_json(one: Estimate) -> JsonObject:
    """Mean and ends of the interval; null where there is one seed."""
    return {"mean": one.mean, "low": one.low, "high": one.high, "seeds": one.n}


def answer_json(answer: Answer) -> JsonObject:
    """Numbers of an answer, all of them; ``difference`` has mean and interval."""
    return {"change": {name: list(pair) for name, pair in answer.changes.items()}, "settings": answer.group.settings(),
            "error": answer.group.error, "back": answer.back, "unlike_windows": answer.unlike,
            "effects": {effect.headline.metric: {"before": effect.before.mean, "after": effect.after.mean,
                                                 "difference": estimate_json(effect.difference)} for effect in answer.effects},
            "remedies": [answer_json(one) for one in answer.remedies]}
