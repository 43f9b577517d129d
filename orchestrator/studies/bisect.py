"""`campaign bisect`: which commit of a line changed speed or tokens, by campaigns of each revision against GOOD.

The ends are compared first, their tokens in one startup and then their speed: they say what is sought and how large it
is. Then a binary search, each answer a campaign of its own that stops when it is decided; and the commit that is left
is held against the one before it, in startups that nothing has seen. A revision that cannot be built, started or judged
is stepped over. Knows revisions, their trees and what a campaign found; how one is composed is its caller's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from campaigns.design.bisection import Bracket, beyond_half, bracket, most_probes, probe
from campaigns.errors import Exit, NothingAdmissible, ServerFailed
from campaigns.judging.verdicts import Verdict, counted
from campaigns.plan import Role
from orchestrator.campaign import execute, resume
from orchestrator.checkouts.revisions import BuildFailed, Repository, Revision, build
from orchestrator.output.progress import Output
from orchestrator.preparation.prepare import Prepared
from orchestrator.studies.series import Series
from results.reading.summary import Summary, summarise
from results.reports.layout import lay_out
from results.reports.tables import cells
from results.store.reader import Reader

SPEED, TOKENS = "speed", "tokens"
_HEADER = ("revision", "subject", "effect", "interval", "exact pairs", "campaign", "then")
_TOKENS, _SPEED, _CONFIRMATION = "tokens of the ends", "speed of the ends", "confirmation"
_CONFIRMING = 3  # startups, where tokens changed
_CANNOT_RUN = (ServerFailed, NothingAdmissible)  # of a revision; all else says nothing of it


@dataclass(frozen=True)
class Arms:
    """What a campaign of two revisions is composed from."""

    control: tuple[str, Path]  # name and tree
    candidate: tuple[str, Path]
    margin: float | None = None  # of equivalence, relative; None: the configuration's
    startups: int | None = None  # that many and no fewer; None: until it is decided


Compose = Callable[[Arms], Prepared]


@dataclass(frozen=True)
class Change:
    """What is sought: a logarithm of time, or tokens where it is None."""

    effect: float | None
    startups: int | None = None  # that show whether tokens changed; None: until a campaign is decided

    @property
    def margin(self) -> float | None:
        """Arms that differ by less than half of it are equal."""
        return None if self.effect is None else math.expm1(abs(self.effect) / 2)

    def of(self, found: Summary) -> bool | None:
        """Whether the candidate has it; None where its campaign cannot say."""
        if self.effect is None:
            return bool(found.n_inexact_pairs) if found.n_answered_pairs and not _unsteady(found) else None
        return None if found.n_inexact_pairs else beyond_half(found.judgement, self.effect)


class Ended(Exception):
    """A person ended it: its code."""


def bisect(
    series: Series,
    repository: Repository,
    line: Sequence[Revision],
    compose: Compose,
    output: Output,
) -> Exit:
    """Run what is missing of it, print its table and its answer. 0 where the change was found and seen again, 3 where
    there is none to be told, or where it was not seen again.
    """
    most = most_probes(len(line))
    _say(
        output,
        f"{counted(len(line) - 1, 'commit')} from {line[0].short} to {line[-1].short}: both ends, at most {most} "
        f"between, one to confirm; more where some are stepped over. If this is ended, {series.remedy}",
    )
    return _Bisection(series, repository, line, compose, output).run()


def _say(output: Output, text: str) -> None:
    output.console().print(text, highlight=False, markup=False, soft_wrap=True)


class _Bisection:
    def __init__(
        self,
        series: Series,
        repository: Repository,
        line: Sequence[Revision],
        compose: Compose,
        output: Output,
    ) -> None:
        self._series, self._repository, self._line = series, repository, line
        self._compose, self._output = compose, output
        self._by, self._build = str(series.asked["by"]), str(series.asked["build"])
        self._store = Path(str(series.asked["store"]))
        self._rows: list[tuple[str, ...]] = []

    def run(self) -> Exit:
        try:
            change, why = self._sought()
            code = self._said(f"nothing to look for: {why}") if change is None else self._search(change)
        except Ended:
            self._table()
            print(f"interrupted; {self._series.remedy}")
            return Exit.INTERRUPTED
        for tree in (self._series.folder / "trees").glob("*"):
            if tree.is_dir():
                self._repository.remove(tree)
        return code

    def _sought(self) -> tuple[Change | None, str]:
        """What the ends differ in, or why that cannot be told."""
        change, why = None, ""
        if self._by != SPEED:
            ends = self._ends(_TOKENS, Change(None, 1))
            change, why = _difference(ends, self._by), _unsteady(ends) or _sameness(ends, self._by)
            if _unsteady(ends):
                return None, why
        if self._by != TOKENS and change is None:
            ends = self._ends(_SPEED, Change(None))
            change, why = _difference(ends, self._by), _sameness(ends, self._by)
        return change, why

    def _ends(self, part: str, asked: Change) -> Summary:
        ends = self._measured(part, 0, len(self._line) - 1, asked)
        sought = "what is sought" if _difference(ends, self._by) else "nothing to look for"
        self._tell(len(self._line) - 1, ends, part, sought)
        return ends

    def _search(self, change: Change) -> Exit:
        known: dict[int, bool | None] = {}
        while (number := probe(len(self._line), known)) is not None:
            known[number] = self._judged(number, change)
        found = bracket(len(self._line), known)
        startups = None if change.startups is None else max(_CONFIRMING, change.startups)
        last = self._measured(_CONFIRMATION, found.before, found.after, Change(None, startups))
        unsteady = "" if change.effect is not None else _unsteady(last)
        seen = _shows(last, change) and not unsteady
        self._tell(found.after, last, _CONFIRMATION, "confirmed" if seen else "not seen again")
        return self._said(f"nothing can be told: {unsteady}") if unsteady else self._answer(found, last, change, seen)

    # -- one revision ------------------------------------------------------------------------------------------------

    def _judged(self, number: int, change: Change) -> bool | None:
        revision = self._line[number]
        if note := self._series.note(revision.sha):
            self._step_over(number, note)
            return None
        try:
            found = self._measured(revision.sha, 0, number, change)
        except (BuildFailed, *_CANNOT_RUN) as error:
            note = (str(error).strip().splitlines() or ["it cannot run"])[0]
            self._series.ended(revision.sha, note=note)
            self._step_over(number, note)
            return None
        changed = change.of(found)
        words = {True: "has the change", False: f"as {self._line[0].short}", None: "stepped over: not decided"}
        self._tell(number, found, revision.sha, words[changed])
        return changed

    def _step_over(self, number: int, note: str) -> None:
        revision = self._line[number]
        campaign = self._series.campaign(revision.sha) or cells.DASH
        self._rows.append((revision.short, revision.subject, *[cells.DASH] * 3, campaign, f"stepped over: {note}"))

    def _measured(self, part: str, control: int, candidate: int, change: Change) -> Summary:
        """The campaign of this part, run as far as it has not been yet. Raises what ended it before an answer."""
        if self._series.code(part) is None:
            self._run(part, control, candidate, change)
        campaign = self._series.campaign(part)
        assert campaign is not None, part
        with Reader.open(self._store) as reader:
            return summarise(reader, campaign)

    def _run(self, part: str, control: int, candidate: int, change: Change) -> None:
        sides = [(self._line[n].short, self._tree(self._line[n])) for n in (control, candidate)]
        prepared = self._compose(Arms(sides[0], sides[1], change.margin, change.startups))
        words = "bisect" if part == self._line[candidate].sha else f"bisect, {part}"
        record = replace(prepared.campaign(), name=f"{words}: {sides[1][0]} against {sides[0][0]}")
        begun = self._series.campaign(part)
        if begun is not None and self._goes_on(begun, prepared):
            code = resume(prepared.store_path, begun, self._output, strict=False)
        else:
            self._series.began(part, record.campaign_id)
            code = execute(prepared, self._output, record)
        if code is Exit.INTERRUPTED:
            raise Ended
        self._series.ended(part, code)

    def _goes_on(self, campaign_id: str, prepared: Prepared) -> bool:
        """Whether it stands in the store, and is of these trees: one that was built again may be another."""
        with Reader.open(prepared.store_path) as reader:
            every = {campaign.campaign_id: campaign for campaign in reader.campaigns()}
        return campaign_id in every and every[campaign_id].fingerprint == prepared.fingerprint

    def _tree(self, revision: Revision) -> Path:
        """Checked out and built; what an earlier run has left is taken where it still is what was built."""
        folder = self._series.folder / "trees" / revision.short
        built = f"tree {revision.sha}"
        if not (folder.is_dir() and self._series.note(built) == build(folder, "", folder)):
            _say(self._output, f"checking out and building {revision.short} {revision.subject}")
            self._repository.check_out(revision, folder)
            self._series.ended(built, note=build(folder, self._build, folder.with_suffix(".log")))
        return folder

    # -- words -------------------------------------------------------------------------------------------------------

    def _tell(self, number: int, found: Summary, part: str, then: str) -> None:
        revision, judged = self._line[number], found.judgement
        pairs = f"{found.n_exact_pairs}/{found.n_pairs}"
        campaign = self._series.campaign(part) or ""
        row = (cells.effect(judged.effect), cells.bounds(judged.interval), pairs, campaign, then)
        self._rows.append((revision.short, revision.subject, *row))

    def _table(self) -> None:
        print(lay_out("table", _HEADER, self._rows), end="")

    def _said(self, sentence: str) -> Exit:
        self._table()
        print(sentence)
        return Exit.STRICT

    def _answer(self, found: Bracket, last: Summary, change: Change, seen: bool) -> Exit:
        left = self._line[found.before + 1 : found.after + 1]
        told = " or ".join(f"{revision.short} ({revision.subject})" for revision in left)
        what = "tokens" if change.effect is None else "speed"
        if not seen:
            return self._said(
                f"{told}: the change of {what} was found there and not seen again in new startups: it may lie in the "
                "host, or in several commits"
            )
        self._table()
        size = "" if change.effect is None else f" by {cells.effect(last.judgement.effect)}"
        why = "; those between could not be judged" if len(left) > 1 else ""
        print(f"{told} changed {what}{size}, seen again in startups of its own{why}")
        return Exit.COMPLETE


def _difference(ends: Summary, by: str) -> Change | None:
    """None where nothing can be told apart. A change of some answers only is looked for in as many startups."""
    if by != SPEED and ends.n_inexact_pairs and not _unsteady(ends):
        return Change(None, ends.judgement.n_startups or len(ends.lives) if ends.n_exact_pairs else 1)
    judged = ends.judgement
    if by != TOKENS and judged.verdict in (Verdict.FASTER, Verdict.SLOWER) and judged.effect:
        return Change(judged.effect)
    return None


def _unsteady(found: Summary) -> str:
    """What forbids to tell commits by their tokens: the older one, asked again, does not answer like itself."""
    if not found.n_inexact_pairs:
        return ""
    often = [(arm.arm, arm.n_otherwise) for arm in found.determinism if arm.role == Role.CONTROL.value]
    return "".join(
        f"{name} itself answers otherwise when it is asked again or started anew ({counted(n, 'time')}), so that its "
        "tokens tell no commit from another; bisect at campaign.sampling.temperature=0, or --by speed with "
        "campaign.required_exactness=0"
        for name, n in often
        if n
    )


def _sameness(ends: Summary, by: str) -> str:
    if by == TOKENS:
        return f"{ends.n_exact_pairs} of {counted(ends.n_pairs, 'pair')} are exact"
    judged = ends.judgement
    effect = "" if judged.effect is None else f", {cells.effect(judged.effect)}"
    return f"the ends are {judged.verdict.value}{effect} ({judged.because})"


def _shows(found: Summary, change: Change) -> bool:
    """The same kind of change in the same direction."""
    if change.effect is None:
        return bool(found.n_inexact_pairs)
    return found.judgement.verdict is (Verdict.SLOWER if change.effect > 0 else Verdict.FASTER)
