"""Admission of a schedule or an arm: a ledger of gates, each open, passed, failed or held, with its evidence.

A gate is a function of records. Probes (operator checks, sanitizers, audits) count only for the library that the
ledger is about, campaigns only for the build and host of the newest one that measured a pair. Only a complete campaign
passes a gate, a screen none that asks for startups, capped answers none that asks for natural ones. The last gate is a
person's word: nothing promotes itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from campaigns.judging.curve import Curve, examined
from campaigns.judging.verdicts import Verdict, counted
from campaigns.records import CampaignStatus
from campaigns.remarks import Decision, Probe

PROMOTE = "promote"


class GateStatus(StrEnum):
    OPEN = "open"
    PASSED = "passed"
    FAILED = "failed"
    HELD = "held"


@dataclass(frozen=True)
class Gate:
    """One line of the ledger as conf/gates/ declares it."""

    name: str
    title: str
    kind: str  # probe | pairs | startups | corpus | all-off | curve | decision
    probe: str = ""  # name of the probes' gate, for kind probe
    min_startups: int = 1
    min_cases: int = 0  # prompts of the frozen corpus
    max_capped: float = 1.0  # share of the answers that ended at their cap instead of by themselves
    max_effect_pct: float | None = None  # of the 95 % interval's upper end; -5: at least five per cent faster
    verdicts: tuple[str, ...] = ()  # words that pass; empty: every word but slower, inadmissible, nothing-measured


@dataclass(frozen=True)
class Result:
    """What a gate needs of one campaign."""

    campaign_id: str
    status: CampaignStatus
    n_startups: int
    n_planned: int  # pairs
    n_pairs: int
    n_exact_pairs: int
    verdict: Verdict
    n_cases: int  # prompts of its frozen corpus; 0 where it ran none
    n_answers: int  # of admissible pairs, both arms
    n_capped: int  # of them
    control_is_plain: bool  # the control arm enables nothing
    family: Mapping[str, str]  # the part of the fingerprint that evidence must share
    curve: tuple[Curve, ...] = ()
    ci_high_pct: float | None = None  # upper end of the 95 % interval of its effect
    together: tuple[str, ...] = ()  # what else its arms differ in: its effect is not the subject's alone

    def __str__(self) -> str:
        corpus = f" ({self.n_cases} cases, {self.n_capped} of {self.n_answers} answers capped)" if self.n_cases else ""
        return self.campaign_id + corpus


@dataclass(frozen=True)
class Evidence:
    """Everything recorded about one subject. `library_sha256` is the build that the ledger is about; empty: any."""

    subject: str
    library_sha256: str
    probes: tuple[Probe, ...] = ()
    results: tuple[Result, ...] = ()
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class Entry:
    gate: Gate
    status: GateStatus
    evidence: tuple[str, ...] = ()  # campaign ids, probe counts
    missing: str = ""  # what would move it on


@dataclass(frozen=True)
class Finding:
    """How one campaign does at one gate."""

    result: Result
    status: GateStatus
    why: str = ""  # what stands in the way
    again: bool = False  # whether the campaign that the gate asks for would move it on
    n_cleared: int = 0  # hurdles before the one that stopped it


def ledger(gates: Sequence[Gate], evidence: Evidence) -> tuple[Entry, ...]:
    return tuple(_JUDGES[gate.kind](gate, evidence) for gate in gates)


def by_probe(gate: Gate, evidence: Evidence) -> Entry:
    """Every check of this build passed, and there was one. Of a check that ran twice the newer run counts."""
    named = [probe for probe in evidence.probes if probe.gate == gate.probe]
    ours = [probe for probe in named if not evidence.library_sha256 or probe.library_sha256 == evidence.library_sha256]
    if not ours:
        others = len(named)
        wanted = f"import {gate.probe} probes"
        note = f"{wanted} of this library; not counted: {others} of another" if others else wanted
        return Entry(gate, GateStatus.OPEN, missing=note)
    newest = {check_of(probe): probe for probe in sorted(ours, key=lambda probe: probe.utc)}
    counts = {status: sum(p.status == status for p in newest.values()) for status in GateStatus}
    found = tuple(f"{count} {status}" for status, count in counts.items() if count)
    for status in (GateStatus.FAILED, GateStatus.HELD):
        if counts[status]:
            first = next(p for p in newest.values() if p.status == status)
            return Entry(gate, status, found, f"first: {first.line_json[:120]}")
    return Entry(gate, GateStatus.PASSED, found)


def check_of(probe: Probe) -> tuple[str, ...]:
    """What a probe is about; two lines that say the same of themselves are two runs of one check."""
    line = json.loads(probe.line_json)
    return tuple(str(line.get(name, "")) for name in ("check", "problem", "case", "kind", "row", "host"))


def by_pairs(gate: Gate, evidence: Evidence) -> Entry:
    """One startup is enough: every pair equal, and not slower."""
    return _by_campaign(gate, evidence, lambda result: True, "run an A/B campaign of one startup")


def by_startups(gate: Gate, evidence: Evidence) -> Entry:
    return _by_campaign(
        gate, evidence, lambda result: True, f"run a campaign of {counted(gate.min_startups, 'startup')}"
    )


def by_corpus(gate: Gate, evidence: Evidence) -> Entry:
    """Over a frozen corpus of the full size, whose answers ended by themselves."""
    wanted = f"run a corpus campaign of {gate.min_cases} cases" if gate.min_cases else "run the corpus campaign"
    return _by_campaign(gate, evidence, lambda result: result.n_cases > 0, wanted)


def by_all_off(gate: Gate, evidence: Evidence) -> Entry:
    """Against a control that enables nothing at all."""
    return _by_campaign(gate, evidence, lambda result: result.control_is_plain, "run against the all-off control")


def by_curve(gate: Gate, evidence: Evidence) -> Entry:
    """Every long length strictly faster, the shortest not slower, the growth between lengths not larger."""
    wanted = "run a campaign over context lengths"
    return _by_campaign(gate, evidence, lambda result: len(result.curve) > 1, wanted, _curve_finding)


def by_decision(gate: Gate, evidence: Evidence) -> Entry:
    if not evidence.decisions:
        return Entry(gate, GateStatus.OPEN, missing="a person decides: campaign promote")
    newest = max(evidence.decisions, key=lambda decision: decision.utc)
    status = GateStatus.PASSED if newest.decision == PROMOTE else GateStatus.HELD
    return Entry(gate, status, (f"{newest.decision} by {newest.by}, {newest.utc}",), newest.reason)


Examine = Callable[[Gate, Result], Finding]


def _pair_finding(gate: Gate, result: Result) -> Finding:
    if fault := _fault(result):
        return Finding(result, GateStatus.FAILED, f"{result.campaign_id}: {fault}")
    for n_cleared, (lacks, why, again) in enumerate(_lacks(gate, result)):
        if lacks:
            return Finding(result, GateStatus.OPEN, f"{result.campaign_id}: {why}", again, n_cleared)
    return Finding(result, GateStatus.PASSED)


def _fault(result: Result) -> str:
    differing = result.n_pairs - result.n_exact_pairs
    if differing:
        return f"{differing} of {counted(result.n_pairs, 'pair')} not exact"
    return "slower" if result.verdict is Verdict.SLOWER else ""


def _lacks(gate: Gate, result: Result) -> tuple[tuple[bool, str, bool], ...]:
    """Whether each hurdle stands, why, and whether the campaign that the gate asks for would take it; in order."""
    startups, verdict = f"{result.n_startups} of {counted(gate.min_startups, 'startup')}", result.verdict
    pairs = f"{result.status.value} with {result.n_pairs} of {counted(result.n_planned, 'pair')}, not complete"
    capped = f"{result.n_capped} of {result.n_answers} answers ended at their cap"
    measured = f"{counted(result.n_startups, 'startup')} and {counted(result.n_pairs, 'exact pair')}, but {verdict}"
    unusable = verdict in (Verdict.INADMISSIBLE, Verdict.NOTHING_MEASURED)
    return (
        (result.status is not CampaignStatus.COMPLETE, pairs, True),
        (unusable, f"no admissible pair, campaign report {result.campaign_id} says why", False),
        (result.n_startups < gate.min_startups, startups, True),
        (result.n_cases < gate.min_cases, f"{result.n_cases} of {gate.min_cases} cases", True),
        (
            result.n_capped > gate.max_capped * result.n_answers,
            f"{capped}, at most {100 * gate.max_capped:g} % may: campaign.max_tokens=null lets them end",
            False,
        ),
        (
            bool(gate.verdicts) and verdict.value not in gate.verdicts,
            f"{measured}; {' or '.join(gate.verdicts)} is asked for",
            False,
        ),
        (
            gate.max_effect_pct is not None and not _at_most(result.ci_high_pct, gate.max_effect_pct),
            f"its interval ends at {_told_pct(result.ci_high_pct)}, {_told_pct(gate.max_effect_pct)} is the most",
            False,
        ),
    )


def _at_most(value: float | None, limit: float) -> bool:
    return value is not None and value <= limit


def _told_pct(value: float | None) -> str:
    return "nobody knows where" if value is None else f"{value:+.4g} %"


def _curve_finding(gate: Gate, result: Result) -> Finding:
    finding = _pair_finding(gate, result)
    if finding.status is not GateStatus.PASSED:
        return finding
    found = examined(result.curve)
    if found.faults:
        return Finding(result, GateStatus.FAILED, "; ".join(found.faults))
    if found.doubts:
        return Finding(result, GateStatus.OPEN, f"{result.campaign_id}: {'; '.join(found.doubts)}", again=True)
    return Finding(result, GateStatus.PASSED)


def _by_campaign(
    gate: Gate, evidence: Evidence, fits: Callable[[Result], bool], wanted: str, examine: Examine = _pair_finding
) -> Entry:
    """The campaign of the newest build that got furthest decides; its failures are never outvoted by a success."""
    measured = [result for result in evidence.results if result.n_pairs]
    every = [result for result in measured if fits(result)]
    fitting = [result for result in every if not result.together]
    if not fitting:
        return Entry(gate, GateStatus.OPEN, missing="; ".join([wanted, *_confounded(every)]))
    family = measured[-1].family
    ours = [examine(gate, result) for result in fitting if result.family == family]
    if not ours:
        return Entry(gate, GateStatus.OPEN, missing=f"{wanted}; not counted: {len(fitting)} of another build or host")
    for status in (GateStatus.FAILED, GateStatus.PASSED):
        hit = [finding for finding in ours if finding.status is status]
        if hit:
            return Entry(gate, status, tuple(str(f.result) for f in hit), _next(hit[-1], wanted))
    furthest = max(reversed(ours), key=lambda finding: finding.n_cleared)  # the newest of equals
    return Entry(gate, GateStatus.OPEN, (str(furthest.result),), _next(furthest, wanted))


def _confounded(results: Sequence[Result]) -> list[str]:
    """Evidence for a schedule needs arms that differ in it alone."""
    return [f"not counted: {r.campaign_id} changed it together with {', '.join(r.together)}" for r in results]


def _next(finding: Finding, wanted: str) -> str:
    """A failure needs another build: no further campaign of this one can outvote it."""
    if finding.status is GateStatus.FAILED:
        return f"{finding.why}; change it: a failure of this build is never outvoted"
    return f"{finding.why}; {wanted}" if finding.again else finding.why


_JUDGES: dict[str, Callable[[Gate, Evidence], Entry]] = {
    "probe": by_probe,
    "pairs": by_pairs,
    "startups": by_startups,
    "corpus": by_corpus,
    "all-off": by_all_off,
    "curve": by_curve,
    "decision": by_decision,
}
KINDS = tuple(_JUDGES)
