"""A campaign for machines that watch a repository: a comment of at most twenty lines, and JUnit's XML.

Both are the same verdicts as the report's; neither adds a threshold of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from campaigns.judging.verdicts import Verdict
from campaigns.printable import one_line, printable
from campaigns.records import CampaignStatus
from results.reading.groups import Group
from results.reading.summary import Summary
from results.reports.headline import headline
from results.reports.tables import cells

MAX_LINES = 20
_MAX_WARNINGS = 4
_MAX_GROUPS = 7
_FAILING = (Verdict.SLOWER,)
_DECIDED = (Verdict.FASTER, Verdict.SLOWER, Verdict.EQUIVALENT)


def github(summary: Summary) -> str:
    """Markdown: the answer, what weakens it, a row per fixture, where it comes from."""
    told = headline(summary)
    commit = str((summary.campaign.provenance.get("git") or {}).get("git_commit", ""))[:12] or "unknown"
    lines = [f"**{_plain(told.title)}**", "", _plain(told.sentence)]
    lines += [f"- ! {_plain(warning)}" for warning in told.warnings[:_MAX_WARNINGS]]
    lines += ["", "| fixture | effect | 95 % | verdict | exact |", "| --- | --- | --- | --- | --- |", *_rows(summary)]
    lines += ["", f"campaign `{summary.campaign.campaign_id}`, commit `{commit}`; negative is faster"]
    assert len(lines) <= MAX_LINES, len(lines)
    return "\n".join(lines) + "\n"


def _rows(summary: Summary) -> Iterator[str]:
    shown = summary.groups[:_MAX_GROUPS]
    for group in shown:
        judgement = group.judgement
        told = (cells.effect(judgement.effect), cells.bounds(judgement.interval), cells.verdict(judgement))
        cell = (_plain(group.id), *told, f"{group.n_exact_pairs}/{group.n_pairs}")
        yield f"| {' | '.join(cell)} |"
    if len(summary.groups) > len(shown):
        yield f"| {len(summary.groups) - len(shown)} more | | | | |"


def _plain(text: str) -> str:
    """One line of text that is no markup: a name may hold anything."""
    kept = " ".join(one_line(text).split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#@" else c for c in kept)


def junit(summary: Summary) -> str:
    """XML: a test case per fixture; slower or inexact fails, undecided is skipped, no admissible pair is an error.

    A campaign that is not complete has one case more, an error: what it says so far is no result.
    """
    suite = ElementTree.Element("testsuite", name=_xml(headline(summary).title))
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for name, kind, why, told in _cases(summary):
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(summary.campaign.name), name=_xml(name))
        counts["tests"] += 1
        if kind:
            ElementTree.SubElement(case, kind, message=_xml(why))
            counts[{"failure": "failures", "error": "errors"}.get(kind, kind)] += 1
        ElementTree.SubElement(case, "system-out").text = _xml(told)
    for name, count in counts.items():
        suite.set(name, str(count))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _cases(summary: Summary) -> Iterator[tuple[str, str, str, str]]:
    """Name, what it counts as (empty: passed), why, and what is told of it."""
    if summary.changed:
        yield "rows as they were recorded", "error", summary.changed, "nothing here is to be trusted"
    if summary.status is not CampaignStatus.COMPLETE:
        said = f"the campaign is {summary.status.value}: {summary.status_reason}".rstrip(": ")
        yield "campaign complete", "error", said, f"{summary.n_pairs} of {summary.n_planned} pairs"
    for group in summary.groups:
        yield group.id, *_outcome(group), group.judgement.because


def _outcome(group: Group) -> tuple[str, str]:
    verdict = group.judgement.verdict
    if group.n_exact_pairs < group.n_pairs:
        return "failure", f"{group.n_pairs - group.n_exact_pairs} of {group.n_pairs} pairs are not exact"
    if not group.n_admissible_pairs:
        return "error", f"{verdict.value}: no admissible pair of {group.n_pairs}"
    if verdict in _FAILING:
        return "failure", f"{verdict.value}: {cells.effect(group.judgement.effect)}"
    return ("", "") if verdict in _DECIDED else ("skipped", f"{verdict.value}: {group.judgement.because}")


def _xml(text: str) -> str:
    """Without the control characters that XML has no way to write."""
    return re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", printable(text))
