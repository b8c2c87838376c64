"""What a sweep's report shows: the baseline, the answers, the table, and what is to be said besides."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from experiments.numbers import percent
from experiments.shown import Line, Sentence, TextTable
from experiments.whatif.answers import Answer, Effect, answers, broken
from experiments.whatif.outcome import Group, Outcome
from experiments.whatif.points import said_of, shown
from experiments.whatif.rounding import change, rounded
from experiments.whatif.simulate import METRICS, SEPARATOR
from experiments.whatif.statistics import Estimate
from experiments.whatif.store import DONE
from sim.steady import parse_warmup
from workloads.messages import counted

UNLIKE = "one is averaged over the whole run, the other over the time of the traffic"
SHOWN = (("concurrency_mean", "running", ""), ("queue_p99_s", "queue p99", "s"), ("ttft_p99_s", "TTFT p99", "s"),
         ("tpot_mean_s", "TPOT", "s"), ("output_tokens_per_s", "out tok/s", ""), ("preemptions", "preempt.", ""),
         ("token_states", "useful", "%"), ("hit_rate", "hits", "%"))


def baseline_sentence(outcome: Outcome) -> Sentence:
    """What everything is held against."""
    base = outcome.baseline
    seeds = len(outcome.scenario.seeds)
    how = f"{seeds} seeds, ± at {100 * outcome.scenario.confidence:g} % confidence" if seeds > 1 else "one seed: no intervals"
    why = broken(outcome, base)
    under = [] if base.error is None else [f"could not be run: {base.error}"]
    under += [f"does not keep what is promised: {why}"] if why else []
    return Sentence(f"baseline: {said_of(base.settings())} ({how})", tuple(map(Sentence, under)))


def answer_sentences(outcome: Outcome) -> list[Sentence]:
    """What each change does, and what brings it back."""
    why = broken(outcome, outcome.baseline)
    return [Sentence(f"{_changed(answer)}: {_effects(answer)}",
                     tuple(map(Sentence, _remedies(answer, why, broken(outcome, answer.group))))) for answer in answers(outcome)]


def _remedies(answer: Answer, base_breaks: str | None, breaks: str | None) -> Iterator[str]:
    """Both arguments as `broken` has them, of the baseline and of the changed setting."""
    if answer.tried and base_breaks == breaks == "":
        yield "still keeps what is promised: nothing to bring back"
        return
    back = "keeps what is promised, as the baseline does not" if base_breaks else "brings it back"
    for remedy in answer.remedies[:2]:
        yield f"{_changed(remedy)} {back if remedy.back else 'helps'}: {_effects(remedy)}"
    if answer.tried and not answer.remedies:
        yield "nothing else that was run helps"


def _effects(answer: Answer) -> str:
    if answer.base.error is not None:
        return "nothing to compare with: the baseline could not be run"
    if answer.group.error is not None:
        return f"could not be run: {answer.group.error}"
    told = [_effect(effect) for effect in answer.effects if effect.notable]
    if answer.unlike:
        return ", ".join([*told, f"times and concurrency not compared ({UNLIKE})"])
    return ", ".join(told) or "no difference to speak of"


def _effect(effect: Effect) -> str:
    return change(effect.headline.name, effect.before, effect.after, effect.difference, effect.headline.unit)


def _changed(answer: Answer) -> str:
    return ", ".join(f"{name} {shown(before)} -> {shown(after)}" for name, (before, after) in answer.changes.items())


def settings_table(outcome: Outcome, most: int) -> TextTable:
    """Knobs that have several values, then the metrics, of at most so many settings."""
    names = [name for name in outcome.groups[0].settings() if len({str(one.settings()[name]) for one in outcome.groups}) > 1]
    made = TextTable((*(names or ["allocator"]), *(f"{name}, {unit}" if unit else name for _, name, unit in SHOWN)))
    for group in outcome.groups[:most]:
        settings = [shown(group.settings()[name]) for name in names or ["allocator"]]
        cells = [_cell(outcome.estimate(group, metric), unit) for metric, _, unit in SHOWN]
        made.add_row(*settings, *(cells if group.done else ["not run"]))
    return made


def _cell(one: Estimate | None, unit: str) -> str:
    if one is None:
        return "-"
    if unit == "%":
        return percent(one.mean).removesuffix(" %")
    return rounded(one)


def remarks(outcome: Outcome, most: int) -> Iterator[Line]:
    """Where step times come from, what was assumed or left out, and warnings; of each at most so many kinds."""
    points = outcome.grid_points
    rows = [row for row in outcome.rows[:points] if row["status"] == DONE]
    yield from _kinds("step time", [row["step_time"] for row in rows], points, most)
    yield from _kinds("note", [note for row in rows for note in (row["notes"] or "").split(SEPARATOR)], points, most)
    if parse_warmup(outcome.scenario.warm_up).mser and len(outcome.groups) > 1:
        yield "note", ("warm-up mser5 cuts every run by itself, so differences are between other requests; a share or a time "
                       "cuts off the same in all")
    if len(outcome.scenario.seeds) > 1 and all(_alike(group) for group in outcome.groups):
        yield "warning", ("every seed gave the same run, since nothing is drawn at random here: intervals mean nothing; "
                          "resample = 60 draws minutes of the trace anew, shuffle = true deals the requests out anew")
    yield from _kinds("warning", list(_warnings(outcome)), points, most)


def _warnings(outcome: Outcome) -> Iterator[str]:
    """Of every point of the grid; why it gave no result is one."""
    for row in outcome.rows[: outcome.grid_points]:
        yield from [f"not run: {row['error']}"] if row["status"] != DONE else (row["warnings"] or "").split(SEPARATOR)


def _kinds(label: str, said: Sequence[str], points: int, most: int) -> Iterator[Line]:
    """Each kind of line once, as it comes first, with how many points have one of the kind: numbers aside they are the same."""
    kinds: dict[str, list[str]] = {}
    for line in filter(None, said):
        kinds.setdefault(re.sub(r"[\d.,]+", "#", line), []).append(line)
    for alike in list(kinds.values())[:most]:
        everywhere = len(alike) == points and len(set(alike)) == 1
        how = "" if everywhere else f" ({len(alike):,} of {points:,} points{'' if len(set(alike)) == 1 else ' alike'})"
        yield label, f"{alike[0]}{how}"


def failures(outcome: Outcome) -> tuple[int, int]:
    """Points of the grid without a result, and points whose cross-checks failed."""
    failed = sum(row["status"] != DONE for row in outcome.rows[: outcome.grid_points])
    return failed, sum(row["status"] == DONE and not row["checks_ok"] for row in outcome.rows)


def checks_sentence(outcome: Outcome, most: int) -> Sentence:
    """How many cross-checks of how many points there are, and those that failed, at most so many."""
    checks = [(point, check) for point, row in zip(outcome.points, outcome.rows, strict=True) if row["status"] == DONE
              for check in json.loads(row["result"])["crosscheck"]]
    wrong = [f"{point.name()}: {check['name']}: {check['simulated']:,} against {check['analytic']:,}" for point, check in checks
             if not check["ok"]]
    done = sum(row["status"] == DONE for row in outcome.rows)
    hidden = [f"{len(wrong) - most:,} more in results.sqlite"] if len(wrong) > most else []
    return Sentence(f"{counted(len(checks), 'cross-check')} of {counted(done, 'point')}: "
                    + (f"{len(wrong):,} FAILED" if wrong else "all ok"), tuple(map(Sentence, [*wrong[:most], *hidden])))


def _alike(group: Group) -> bool:
    """Whether all seeds came to the same."""
    return len({tuple(row.get(name) for name in METRICS) for row in group.rows}) == 1
