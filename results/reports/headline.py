"""The answer in one sentence, and beside it what weakens it: the same words on a terminal, in Markdown and on the page.

Figures have no more digits than their interval gives them a meaning. Computes nothing that the summary does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from campaigns.judging.statistics import percent
from campaigns.judging.verdicts import Evidence, Judgement, Verdict, counted
from campaigns.plan import SHARED, Arm, differences, several_changes
from campaigns.printable import one_line
from campaigns.reasons import Reason
from campaigns.records import CampaignStatus
from results.reading.looks import looks_of
from results.reading.summary import Summary, is_aa
from results.reports.tables import cells

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_MAX_TITLED = 2  # changes that a title still names one by one


@dataclass(frozen=True)
class Headline:
    title: str
    sentence: str
    warnings: tuple[str, ...]

    @property
    def text(self) -> str:
        """For a terminal: the sentence, then a line per warning."""
        return "\n".join([self.sentence, *(f"  ! {warning}" for warning in self.warnings)]) + "\n"


def headline(summary: Summary) -> Headline:
    """Of any campaign, finished or not."""
    return Headline(title(summary), one_line(_sentence(summary)), tuple(map(one_line, _warnings(summary))))


def title(summary: Summary) -> str:
    """The campaign, its arms, and what differs between them where that is short."""
    control, candidate = arms(summary)
    changes = differences(control, candidate)
    told = "; ".join(changes) if len(changes) <= _MAX_TITLED else f"{len(changes)} changes"
    named = f"{summary.campaign.name}: {candidate.name} against {control.name}{f' ({told})' if changes else ''}"
    return one_line(named)


def arms(summary: Summary) -> tuple[Arm, Arm]:
    """Control and candidate, as they were planned."""
    control, candidate = (_arm(summary.plan[role]) for role in ("control", "candidate"))
    return control, candidate


def _arm(plain: dict[str, Any]) -> Arm:
    """A plan that was stored before arms could choose how to draft chose nothing."""
    schedules, env = (tuple((name, value) for name, value in plain[part]) for part in ("schedules", "env"))
    own = {name: plain[name] for name in ("speculation", "num_speculative_tokens", "tree") if name in plain}
    return Arm(str(plain["name"]), schedules, env, tuple(map(str, plain["args"])), **own)


def _sentence(summary: Summary) -> str:
    judgement = summary.judgement
    if summary.profiled:
        return ", ".join(["profiled: it tells where rounds go and compares no times", *_pairs(summary)])
    parts = [_answer(judgement)]
    if judgement.effect is not None:
        parts += [*_between(judgement), _in_words(judgement.n_startups, "startup") + _look(summary)]
    return ", ".join([*parts, *_pairs(summary)])


def _look(summary: Summary) -> str:
    """How often the campaign was looked at, where a rule allows it."""
    looks = looks_of(summary.plan)
    return f" (look {summary.judgement.look} of at most {looks.most})" if looks and summary.judgement.look else ""


def _answer(judgement: Judgement) -> str:
    if judgement.effect is None:
        return f"{judgement.verdict.value}: {judgement.because}"
    found = _direction(judgement.effect, min(2, cells.digits(judgement.interval) + 1))
    if judgement.banded and judgement.verdict is Verdict.FASTER:
        return f"indicative ({found} was measured)"
    if judgement.verdict is (Verdict.SLOWER if judgement.effect > 0 else Verdict.FASTER):
        return found  # a mean may be faster whose verdict one fixture made slower
    return f"{judgement.verdict.value} ({found} was measured)"


def _direction(effect: float, places: int) -> str:
    """`24.9 % faster`: the candidate's time against the control's."""
    if not round(percent(effect), places):
        return f"{0:.{places}f} %"
    return f"{abs(percent(effect)):.{places}f} % {'slower' if effect > 0 else 'faster'}"


def _between(judgement: Judgement) -> list[str]:
    interval = judgement.interval
    if interval is None:
        return []
    places = min(2, cells.digits(interval))
    low, high = percent(interval.low), percent(interval.high)
    if low * high < 0:
        return [f"95 % between {_direction(interval.low, places)} and {_direction(interval.high, places)}"]
    ends = sorted((abs(low), abs(high)))
    return [f"95 % between {ends[0]:.{places}f} and {ends[1]:.{places}f} %"]


def _pairs(summary: Summary) -> Iterator[str]:
    if not summary.n_pairs:
        return
    exact = summary.n_exact_pairs
    of_all = f"all {counted(exact, 'pair')}" if exact == summary.n_pairs else f"{exact} of {summary.n_pairs} pairs"
    yield f"{of_all} exact"
    if summary.n_failed_pairs:
        yield f"{summary.n_failed_pairs} failed"
    if summary.n_excluded and not summary.profiled:
        yield f"{summary.n_excluded} excluded"


def _in_words(n: int, noun: str) -> str:
    word = _NUMBERS[n] if n < len(_NUMBERS) else str(n)
    return f"{word} {noun}" if n == 1 else f"{word} {noun}s"


def _warnings(summary: Summary) -> Iterator[str]:
    """From what makes the answer worthless to what a reader should know."""
    if summary.changed:
        yield f"not to be trusted: {summary.changed}; campaign verify {summary.campaign.campaign_id} names the rows"
    if summary.status is not CampaignStatus.COMPLETE:
        yield f"not final: the campaign is {summary.status.value}, {summary.n_pairs} of {summary.n_planned} pairs"
        if summary.status_reason:
            yield f"it is {summary.status.value} because: {summary.status_reason}"
        yield from _looked_at_will(summary)
    if summary.profiled and not summary.profiles:
        yield "no profile was recorded: the answers had too few rounds, or the server gave none"
    yield from _synthetic(summary)
    if any(summary.n_failed_requests.values()):
        told = " and ".join(f"{n} of the {role}'s requests" for role, n in summary.n_failed_requests.items())
        yield f"{told} failed: what is told is told of the others"
    if summary.clocks_apart:
        yield summary.clocks_apart
    if before := summary.n_inexact_before:
        yield f"{counted(before, 'pair')} of attempts that were measured again not exact: the arms differ now and then"
    yield from _shared(summary)
    if is_aa(summary):
        yield "an A/A campaign: both arms are equal, what is measured is noise"
    elif summary.started_alike:
        yield summary.started_alike
    elif several := several_changes(*arms(summary)):
        yield several
    if summary.judgement.n_pairs and summary.evidence is not Evidence.SUPPORTED:
        yield f"{_in_words(summary.judgement.n_startups, 'startup')}: the evidence is {summary.evidence.value}"
    yield from (f"a failed gate: {gate}" for gate in summary.failed_gates)
    yield from _noise(summary)
    held = [f for f in summary.failures if f.reason in (Reason.COALESCED_ABOVE_CALIBRATION, Reason.STARTUP_COALESCED)]
    yield from (f"startup {(f.startup or 0) + 1}: {f.message}" for f in held)
    yield from (f"{flag}: {counted(count, 'request')}" for flag, count in sorted(summary.flags.items()))
    words = {group.judgement.verdict for group in summary.groups if group.n_pairs}
    if len(words) > 1:
        yield f"the fixtures do not agree: {', '.join(sorted(word.value for word in words))}"


def _looked_at_will(summary: Summary) -> Iterator[str]:
    """A fixed plan that a person ended, who may have seen a verdict that pleased."""
    ended = summary.status in (CampaignStatus.HELD, CampaignStatus.INTERRUPTED)
    if ended and looks_of(summary.plan) is None and summary.judgement.interval is not None:
        told = "".join(f", told {look.verdict} after {look.n_seen}" for look in summary.looks)
        yield (
            f"ended by hand after {summary.judgement.n_startups} of {summary.plan['startups']} startups{told}: no rule "
            "covers such looks, and one who stops at a verdict that pleases errs in far more than 5 % "
            "(campaign.stop=decided may look after every startup)"
        )


def _synthetic(summary: Summary) -> Iterator[str]:
    """Of declared weights whose drafter was built to be right: nothing about a real model's acceptance follows."""
    made = [life.startup.identity.get("made_weights") or {} for life in summary.lives]
    for accepted in sorted({weights["accepted"] for weights in made if weights.get("accepted")}):
        yield (
            f"synthetic acceptance: these random weights were built so that about {accepted} drafts a round are right; "
            "rounds, verification and times are real, acceptance and tokens per second are nobody's model's"
        )


def _shared(summary: Summary) -> Iterator[str]:
    """Prompts that no arm computed by its own schedules."""
    if summary.plan["server"].get("prompt_state") == SHARED:
        yield (
            "prompts were computed by the default schedules for both arms: effects and exactness are of the "
            "rounds behind them alone"
        )


def _noise(summary: Summary) -> Iterator[str]:
    """A loaded host, a control that had not settled, and one that differs between startups by more than the effect."""
    load = summary.load
    if load is not None and load.num_cpus is not None and load.largest > load.num_cpus:
        yield f"the host's load reached {load.largest:.1f} on {load.num_cpus} CPUs: processes waited for one"
    drifts = [
        drift
        for group in summary.groups
        for drift in group.settle_drift.values()
        if group.judgement.floor is not None and abs(drift) > group.judgement.floor.value
    ]
    if drifts:
        worst = max(drifts, key=abs)
        yield f"the control had not settled in {len(drifts)} of its runs (up to {percent(worst):+.2g} % within one)"
    moved = [group.control_drift for group in summary.groups if group.control_drift is not None]
    effect = summary.judgement.effect
    if moved and effect is not None and max(moved) > abs(effect):
        yield f"the control alone differs by {percent(max(moved)):.0f} % between startups, more than the effect"
