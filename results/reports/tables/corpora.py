"""The tables of a corpus campaign: its datasets, and what scorers said of its answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from campaigns.judging.verdicts import counted
from campaigns.plan import Role
from campaigns.remarks import Score
from campaigns.scorers.paired import Discordance, discordance, newest
from results.reading.summary import Summary
from results.reports.tables import cells
from results.reports.tables.common import Table, clock_words, exact_pairs


def datasets(summary: Summary) -> Table:
    """A corpus by dataset: cases, exact pairs, decode rates, acceptance."""
    cases = Counter(fixture["dataset"] for fixture in summary.plan["fixtures"])
    rows = tuple(
        (
            group.id,
            str(cases[group.fixture]),
            exact_pairs(group),
            cells.both(group.control.decode_tokens_per_s, group.candidate.decode_tokens_per_s, 3),
            cells.share(group.candidate.draft_acceptance_rate, 4),
            cells.both(group.candidate.accepted_drafts_per_round, group.candidate.emitted_tokens_per_round, 6),
            cells.number(group.candidate.drafted_per_round, 4),
            f"{group.control.n_capped} / {group.candidate.n_capped}",
        )
        for group in summary.groups
    )
    header = (
        "dataset",
        "cases",
        "exact pairs",
        "control / candidate tok/s",
        "accepted %",
        "accepted / emitted per round",
        "proposed per round",
        "capped",
    )
    note = f"tok/s: tokens after the first over seconds of decoding, {clock_words(summary)}."
    return Table("Corpus", header, rows, note)


def scores(found: Sequence[Score]) -> Table | None:
    """The newest verdict of each scorer on each answer, counted per arm; capped and ineligible apart."""
    last = newest(found).values()
    names = list(dict.fromkeys(score.scorer for score in last))
    if not names:
        return None
    rows = tuple(
        (
            name,
            *(_score_cell([s for s in last if s.scorer == name and s.role is role]) for role in Role),
            *_discordant(discordance(last, name)),
        )
        for name in names
    )
    return Table(
        "Scores",
        ("scorer", "control", "candidate", "only control / only candidate passed", "McNemar p"),
        rows,
        "Capped answers fail at their cap; ineligible ones leave the denominator; p: exact, over discordant pairs."
        + _checked_afterwards(last),
    )


def _checked_afterwards(found: Iterable[Score]) -> str:
    """Answers whose server was not asked to follow the whole schema."""
    answers = sum("checked_afterwards" in json.loads(score.details_json) for score in found)
    sentence = " In {} a part of the schema that no grammar follows was checked on the finished answer."
    return sentence.format(counted(answers, "answer")) if answers else ""


def _discordant(found: Discordance) -> tuple[str, str]:
    if not found.n_pairs:
        return cells.DASH, cells.DASH
    return f"{found.only_control} / {found.only_candidate}", cells.number(found.p, 4)


def _score_cell(found: Sequence[Score]) -> str:
    outcomes = [score.outcome for score in found]
    eligible = len(outcomes) - outcomes.count("ineligible")
    apart = [
        f"{outcomes.count(word)} {word}" for word in ("capped", "timeout", "error", "ineligible") if word in outcomes
    ]
    return f"{outcomes.count('passed')}/{eligible}" + (f" ({', '.join(apart)})" if apart else "")
