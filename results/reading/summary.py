"""Everything a report says of one campaign, computed once from the store; the formats only lay it out.

Knows frames, statistics and verdicts; knows nothing of Markdown, HTML or JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from campaigns.errors import Exit, highest
from campaigns.judging.past import MIN_PAST, Past
from campaigns.judging.rules import rules_of
from campaigns.judging.statistics import holm, mismatch_bound
from campaigns.judging.verdicts import Evidence, Judged, Judgement, Verdict, counted
from campaigns.plan import Mode, Role
from campaigns.reasons import FAILED, FLAGS, Reason
from campaigns.records import Campaign, CampaignStatus, Exactness, Failure, Look
from campaigns.remarks import Mark
from results.conditions.arrivals import ClientClock, client_clock
from results.conditions.energy import energy_line
from results.conditions.health import Determinism, determinism, missing_notes, started_alike
from results.conditions.load import HostLoad, host_load
from results.conditions.neighbours import neighbours
from results.conditions.occupancy import Occupancy, occupancy
from results.conditions.profiles import Profiles, is_profiled, profiles
from results.conditions.schedules import ArmRoute, arm_routes
from results.conditions.speculation import ArmSpeculation, arm_speculation
from results.reading import frames
from results.reading.clocks import disagreement
from results.reading.curve import failed_gates
from results.reading.differing import Differing, differing_pairs
from results.reading.effects import Memory
from results.reading.exclusions import exact, excluded, grouped, timed
from results.reading.groups import Group, Part, Setting, build, part
from results.reading.levels import Source, source_of
from results.reading.looks import judgeable, n_planned, n_seen, setting_of
from results.reading.past import left_out, pasts_of
from results.reading.whereabouts import Whereabouts, whereabouts
from results.store.reader import Life, Reader
from results.store.unchanged import changed

_UNDECIDED = frozenset(
    {
        Verdict.SCREEN,
        Verdict.INCONCLUSIVE,
        Verdict.ORDER_SENSITIVE,
        Verdict.REPEAT_SENSITIVE,
        Verdict.BELOW_RESOLUTION,
    }
)


# The first rounds after a prompt are slower than those that follow: a level of so few is none of a steady decode.
_FEW_ROUNDS = 4
_COUNTS = ["role", "accepted_sha256", "n_rounds", "n_q1_steps", "completion_tokens"]
_OF_PAIRS = frozenset({Reason.FIRST_CHUNKS_DIFFER, Reason.CLOCK_MISMATCH})


@dataclass(frozen=True)
class Summary:
    campaign: Campaign
    status: CampaignStatus
    status_reason: str  # what it ended with; empty for a campaign that is complete
    plan: Mapping[str, Any]  # the frozen plan as plain data
    source: Source
    judgement: Judgement  # over all groups, equal weights
    groups: tuple[Group, ...]
    lives: tuple[Life, ...]
    whereabouts: Whereabouts
    neighbours: tuple[str, ...]  # what is known of startups that worked on the same host
    n_planned: int
    n_pairs: int
    n_exact_pairs: int
    n_failed_pairs: int  # a request of theirs got no answer
    n_failed_requests: Mapping[str, int]  # by role; they make the failed pairs
    n_admissible_pairs: int
    exclusions: Mapping[str, int]  # reason -> pairs
    schedules: tuple[ArmRoute, ...]
    n_superseded: int
    superseded: tuple[str, ...]
    n_inexact_before: int  # pairs of superseded attempts that both arms answered, and otherwise than required
    required_exactness: Exactness
    resolution_ms: float | None
    determinism: tuple[Determinism, ...]
    occupancy: Occupancy
    load: HostLoad | None  # of a CPU host
    energy: str  # what told it, or why there is none
    clock: ClientClock | None  # None in stores that know one stamp only
    clocks_apart: str  # where the engine's clock and the client's contradict each other
    failures: tuple[Failure, ...]
    missing: tuple[str, ...]
    started_alike: str  # why arms that were declared different may be none; empty where nothing says so
    flags: Mapping[str, int]  # flag -> measured requests
    pair_flags: Mapping[str, int]  # flag of two requests together -> admissible pairs
    failed_gates: tuple[str, ...]
    profiles: Profiles  # empty unless it was profiled
    differing: tuple[Differing, ...]  # the first pairs that are not exact, with what differed
    speculation: tuple[ArmSpeculation, ...]
    n_seen: int  # startups that a look sees
    looks: tuple[Look, ...]  # verdicts that the driver asked for or told
    left_out: tuple[str, ...]  # A/A campaigns that may lend no floor, with who said so and why
    tags: tuple[str, ...]
    notes: tuple[str, ...]  # what people wrote to it, oldest first
    changed: str  # rows that are not as they were recorded: nothing here is to be trusted; empty where all are

    @property
    def evidence(self) -> Evidence:
        return self.judgement.evidence

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def profiled(self) -> bool:
        """A run under a profiler: none of its times counts."""
        return is_profiled(self.plan)

    @property
    def n_inexact_pairs(self) -> int:
        """Answered by both arms, and otherwise than required."""
        return self.n_answered_pairs - self.n_exact_pairs

    @property
    def n_answered_pairs(self) -> int:
        return self.n_pairs - self.n_failed_pairs

    @property
    def n_excluded(self) -> int:
        return self.n_pairs - self.n_admissible_pairs

    def exit_code(self, *, strict: bool = False) -> Exit:
        return highest(self._codes(strict))

    def _codes(self, strict: bool) -> list[Exit]:
        codes = [Exit.IDENTITY] if self.changed else []
        if not (self.n_answered_pairs if self.profiled else self.n_admissible_pairs):
            codes.append(Exit.NOTHING_ADMISSIBLE)
        slower = any(group.judgement.verdict is Verdict.SLOWER for group in self.groups)
        if slower or self.verdict is Verdict.SLOWER or self.n_inexact_pairs or self.failed_gates:
            codes.append(Exit.SLOWER)
        if strict and self.verdict in _UNDECIDED:
            codes.append(Exit.STRICT)
        return codes


def summarise(reader: Reader, campaign_id: str, memory: Memory | None = None) -> Summary:
    """`memory` of a process that is asked often spares it reading earlier campaigns again."""
    campaign = reader.campaign(campaign_id)
    plan = json.loads(campaign.plan_json)
    requests = frames.requests(reader, campaign_id)
    measured = frames.measured(requests)
    failures = reader.failures(campaign_id)
    source = source_of(measured)
    pairs = timed(excluded(frames.pairs(reader, campaign_id, requests), failures), source)
    lives = reader.lives(campaign_id)
    resolution_ms = _resolution_ms(lives)
    setting = Setting(plan, source, resolution_ms)
    load = host_load(reader, campaign_id, campaign.provenance)
    rows = grouped(judgeable(pairs, plan, reader.looks(campaign_id)), plan)
    entering = [name for name, found in rows.items() if found.admissible.any()]
    pasts = pasts_of(reader, campaign_id, entering, memory)
    parts, judged = _judged(campaign, rows, requests, setting, pasts, load)
    required = _required(plan, measured)
    failed, roles_failed = _failed(pairs), measured.role[_failed(measured)].tolist()
    groups = tuple(build(name, of, judged.fixtures[name], setting) for name, of in parts.items())
    return Summary(
        campaign=campaign,
        status=reader.status(campaign_id),
        status_reason=_reason(reader, campaign_id),
        plan=plan,
        source=source,
        judgement=judged.campaign,
        groups=_with_holm(groups),
        lives=tuple(lives),
        neighbours=neighbours(reader, campaign, plan),
        whereabouts=whereabouts(lives, judged.campaign.startup_medians, groups),
        n_planned=n_planned(plan),
        n_pairs=len(pairs),
        n_exact_pairs=int((exact(pairs) & ~failed).sum()),
        n_failed_pairs=int(failed.sum()),
        n_failed_requests={role.value: roles_failed.count(role.value) for role in Role},
        n_admissible_pairs=int(pairs.admissible.sum()),
        exclusions=_exclusions(pairs),
        schedules=arm_routes(reader, campaign_id, plan),
        n_superseded=int(requests.superseded.sum()),
        superseded=_superseded(requests),
        n_inexact_before=_n_inexact(frames.pairs_before(reader, campaign_id)),
        required_exactness=required,
        resolution_ms=resolution_ms,
        determinism=determinism(reader, measured),
        occupancy=occupancy(requests, lives, reader.identities(campaign_id)),
        load=load,
        energy=energy_line(measured, lives),
        clock=client_clock(measured),
        clocks_apart=disagreement(pairs, source),
        failures=tuple(failures),
        missing=missing_notes(measured, plan, required, lives, len(pasts[1].startups) >= MIN_PAST),
        started_alike=started_alike(plan, lives),
        flags=_flags(measured),
        pair_flags=_pair_flags(pairs),
        failed_gates=failed_gates(groups, plan),
        profiles=profiles(reader, campaign_id, plan),
        differing=differing_pairs(reader, pairs, failed),
        speculation=arm_speculation(reader, campaign_id, plan),
        n_seen=n_seen(pairs, plan, reader.looks(campaign_id)),
        looks=tuple(reader.looks(campaign_id)),
        left_out=tuple(f"{name} ({d.reason}; {d.by})" for name, d in left_out(reader).items()),
        tags=tuple(reader.tags().get(campaign_id, ())),
        notes=tuple(f"{n.utc[:16]} {n.by}: {n.text}" for n in reader.annotations(campaign_id) if n.mark is Mark.NOTE),
        changed=changed(reader.connection, [campaign_id]).get(campaign_id, ""),
    )


def _reason(reader: Reader, campaign_id: str) -> str:
    events = reader.status_history(campaign_id)
    return events[-1].reason if events else ""


def _judged(
    campaign: Campaign,
    rows: Mapping[str, pd.DataFrame],
    requests: pd.DataFrame,
    setting: Setting,
    pasts: tuple[Mapping[str, Past], Past],
    load: HostLoad | None,
) -> tuple[dict[str, Part], Judged]:
    """The groups before and after they were judged, by the rules of the campaign's own version."""
    each, whole = pasts
    parts = {name: part(found, requests, each.get(name, Past()), setting) for name, found in rows.items()}
    about = setting_of(setting.plan, whole, "" if load is None else load.waited)
    judge = rules_of(campaign.methodology_version)
    return parts, judge({name: of.sample for name, of in parts.items()}, about)


def _with_holm(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    adjusted = holm({group.id: group.judgement.p for group in groups if group.judgement.p is not None})
    return tuple(replace(group, p_holm=adjusted.get(group.id)) for group in groups)


def _required(plan: Mapping[str, Any], measured: pd.DataFrame) -> Exactness:
    """The plan's, or E3 where it was enough for every pair (`exactness.compare.required_level`)."""
    counted = measured.loc[measured.admissible & (measured.n_rounds > 0), _COUNTS]
    roles = [rows for _, rows in counted.groupby("role")]
    silent = [rows for rows in roles if rows.accepted_sha256.isna().all()]
    narrow = all((rows.n_rounds + rows.n_q1_steps >= rows.completion_tokens - 1).all() for rows in silent)
    wanted = int(plan["required_exactness"])
    return Exactness(min(wanted, Exactness.STRUCTURE) if silent and (len(silent) == len(roles) or narrow) else wanted)


def _resolution_ms(lives: Sequence[Life]) -> float | None:
    found = [life.startup.calibration.resolution_ns for life in lives if life.startup.calibration is not None]
    return max(found) * 1e-6 if found else None


def _failed(rows: pd.DataFrame) -> pd.Series:
    """Of pairs or of requests."""
    told = (any(reason in FAILED for reason in json.loads(text)) for text in rows.reasons)
    return pd.Series(list(told), index=rows.index, dtype=bool)


def _n_inexact(pairs: pd.DataFrame) -> int:
    return int((~exact(pairs) & ~_failed(pairs)).sum())


def _exclusions(pairs: pd.DataFrame) -> dict[str, int]:
    texts = pairs.reasons[~pairs.admissible]
    return dict(Counter(r for text in texts for r in dict.fromkeys(json.loads(text)) if r not in FLAGS).most_common())


def _pair_flags(pairs: pd.DataFrame) -> Counter[str]:
    told = (reason for text in pairs.reasons[pairs.admissible] for reason in json.loads(text))
    return Counter(reason for reason in told if reason in _OF_PAIRS)


def _flags(measured: pd.DataFrame) -> Counter[str]:
    counted = measured[measured.admissible]  # whatever is said of a request that counts is a flag
    flags = Counter(reason for text in counted.reasons for reason in json.loads(text))
    throttled = int((measured.throttle_bits.fillna(0) > 0).sum())
    few = int(counted.n_rounds.between(1, _FEW_ROUNDS - 1).sum())
    return flags + Counter({"throttle bits set": throttled, f"answers of fewer than {_FEW_ROUNDS} rounds": few})


def _superseded(requests: pd.DataFrame) -> tuple[str, ...]:
    old = requests[requests.superseded]
    blocks = Counter(zip(old.startup, old.fixture, old.seed, old.block_attempt, strict=True))
    return tuple(
        f"startup {startup + 1}, {fixture}, seed {seed}, attempt {attempt}: {counted(count, 'request')}"
        for (startup, fixture, seed, attempt), count in blocks.items()
    )


def bound(summary: Summary) -> float | None:
    """The mismatch rate that the exact pairs still allow among other prompts; None once a pair differed."""
    return None if summary.n_inexact_pairs else mismatch_bound(sum(group.n_prompts for group in summary.groups))


def is_aa(summary: Summary) -> bool:
    return bool(summary.plan["mode"] == Mode.AA.value)
