"""`campaign race`: which of many arms is the fastest, found by successive halving and confirmed in new startups.

Each entry of each round is a campaign of its own in the store, losers too; a round runs like a sweep. Which arms stay
is a function of what their campaigns found: whoever was killed goes on with the same race.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from campaigns.design.halving import Entrant, rounds, survivors
from campaigns.errors import Exit, highest
from campaigns.judging.statistics import t_interval
from campaigns.plan import CampaignPlan
from campaigns.reasons import Reason
from orchestrator.output.progress import Output
from orchestrator.preparation.prepare import Prepared
from orchestrator.studies import sweep
from orchestrator.studies.series import Series
from results.reading.summary import Summary
from results.reports.headline import headline
from results.reports.layout import lay_out
from results.reports.tables import cells

Compose = Callable[[str, int], Prepared]  # an arm of conf/arm and a number of startups (0: the configuration's own)
_FATAL = (Exit.INTERRUPTED, Exit.BUG, Exit.IDENTITY, Exit.USAGE)  # say nothing of an arm
_HEADER = ("round", "arm", "startups", "effect", "interval for all of the round", "exact pairs", "campaign", "then")


@dataclass(frozen=True)
class Entry:
    """One arm in one round."""

    round: int
    arm: str
    campaign_id: str
    code: Exit
    summary: Summary | None

    @property
    def entrant(self) -> Entrant:
        return Entrant(self.arm, None if self.summary is None else self.summary.judgement.effect, self.fault)

    @property
    def unheard(self) -> bool:
        """Whether it says nothing of its arm: a person ended it, the machine refused it, its store cannot be read."""
        return not _speaks(self.code, self.summary)

    @property
    def fault(self) -> str:
        if self.summary is None or self.unheard or self.code in (Exit.WORLD, Exit.NOTHING_ADMISSIBLE):
            return f"ended with {int(self.code)}"
        if self.summary.n_inexact_pairs:
            return "not exact"
        return "" if self.summary.judgement.effect is not None else "no effect"


def _speaks(code: Exit, found: Summary | None) -> bool:
    """Of an arm. What the machine refuses (a device, a disk) is no arm's fault, unlike a server that died under it."""
    if code in _FATAL or found is None:
        return False
    if code is not Exit.WORLD:
        return True
    ends = [life.end.reason for life in found.lives if life.end is not None]
    return found.n_failed_pairs > 0 or ends[-1:] == [Reason.SERVER_ERROR]


def race(series: Series, arms: Sequence[str], startups: int, compose: Compose, at_once: int, output: Output) -> Exit:
    """Run what is missing of it and print its table; the exit code is the confirmation's, or that of what ended it."""
    run = _Rounds(series, compose, at_once, output)
    entries: list[Entry] = []
    left, each = tuple(arms), startups
    while len(left) > 1:
        ran = run.round(1 + max((entry.round for entry in entries), default=0), left, each)
        entries += ran
        if any(entry.unheard for entry in ran):
            return _unfinished(entries, series)
        left, each = survivors([entry.entrant for entry in ran]), 2 * each
    if not left:
        return _none_left(entries)
    [last] = run.round(0, left, 0)
    return _unfinished([*entries, last], series) if last.unheard else _confirmed(entries, last)


class _Rounds:
    def __init__(self, series: Series, compose: Compose, at_once: int, output: Output) -> None:
        self._series, self._compose, self._at_once, self._output = series, compose, at_once, output

    def round(self, number: int, arms: Sequence[str], startups: int) -> list[Entry]:
        """Those of its entries that have not ended yet run now; fewer come back where a person ended it."""
        jobs = {arm: self._job(number, arm, startups) for arm in arms}
        left = {arm: job for arm, job in jobs.items() if not self._ended(number, arm, job)}
        for arm, job in left.items():
            sweep.check_room(job.prepared, self._at_once)
            self._series.began(_part(number, arm), job.campaign.campaign_id)
        codes = (
            dict(zip(left, sweep.run(list(left.values()), self._at_once, self._output), strict=False)) if left else {}
        )
        for arm, code in codes.items():
            if _speaks(code, sweep.summary_of(jobs[arm])):
                self._series.ended(_part(number, arm), code)
        known = {arm: self._series.code(_part(number, arm)) for arm in arms} | codes
        return [
            Entry(number, a, jobs[a].campaign.campaign_id, code, sweep.summary_of(jobs[a]))
            for a, code in known.items()
            if code is not None
        ]

    def _ended(self, number: int, arm: str, job: sweep.Job) -> bool:
        code = self._series.code(_part(number, arm))
        return code is not None and _speaks(code, sweep.summary_of(job))

    def _job(self, number: int, arm: str, startups: int) -> sweep.Job:
        prepared = self._compose(arm, startups)
        words = f"race, round {number}: {arm}" if number else f"confirmation: {arm}"
        record = replace(prepared.campaign(), name=words)
        begun = self._series.campaign(_part(number, arm))
        return sweep.Job(words, prepared, record if begun is None else replace(record, campaign_id=begun))


def _part(number: int, arm: str) -> str:
    return f"round {number}: {arm}"


def _unfinished(entries: Sequence[Entry], series: Series) -> Exit:
    _table(entries)
    print(f"the race was not finished; {series.remedy}")
    return highest([Exit.WORLD, *(entry.code for entry in entries if entry.unheard)])


def _none_left(entries: Sequence[Entry]) -> Exit:
    _table(entries)
    print("no arm is left to be confirmed")
    return Exit.NOTHING_ADMISSIBLE


def _confirmed(entries: Sequence[Entry], last: Entry) -> Exit:
    assert last.summary is not None, last
    _table(entries)
    told = headline(last.summary).sentence
    print(f"{last.arm} won, and in startups that the race has not seen: {told}")
    return last.code


def _table(entries: Sequence[Entry]) -> None:
    print(lay_out("table", _HEADER, list(_rows(entries))), end="")


def _rows(entries: Sequence[Entry]) -> Iterator[tuple[str, ...]]:
    for entry in entries:
        of_round = [other for other in entries if other.round == entry.round]
        yield (
            str(entry.round),
            entry.arm,
            str(_startups(entry)),
            cells.effect(entry.entrant.effect),
            _interval(entry, len(of_round)),
            "" if entry.summary is None else f"{entry.summary.n_exact_pairs}/{entry.summary.n_pairs}",
            entry.campaign_id,
            _then(entry, of_round),
        )


def _then(entry: Entry, of_round: Sequence[Entry]) -> str:
    """A round of which something is missing has not decided."""
    if entry.fault or any(other.unheard for other in of_round):
        return entry.fault or "not decided"
    return "stays" if entry.arm in survivors([other.entrant for other in of_round]) else "slower half"


def _startups(entry: Entry) -> int:
    return 0 if entry.summary is None else entry.summary.judgement.n_startups


def _interval(entry: Entry, n_entries: int) -> str:
    """At a level at which all intervals of the round hold together with 95 % (Bonferroni)."""
    if entry.summary is None:
        return cells.DASH
    return cells.bounds(t_interval(list(entry.summary.judgement.startup_medians.values()), 1 - 0.05 / n_entries))


def predicted(plan: CampaignPlan, n_arms: int, startups: int) -> str:
    """How many startups a race will take, before it begins."""
    stages = rounds(n_arms, startups)
    words = ", ".join(f"{n} x {each}" for n, each in stages)
    total = sum(n * each for n, each in stages) + plan.startups
    return f"{n_arms} arms: {words} startups, then {plan.startups} to confirm: {total} in all"
