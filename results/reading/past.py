"""What a campaign's host and build did before: the earlier startups that lend it a noise floor and tell of bands.

A/A campaigns count whenever they ran, A/B campaigns only where they were begun before. A person may leave an A/A
campaign out, with a reason (`campaign floor`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import text

from campaigns.judging.past import Past, centred
from campaigns.plan import Mode
from campaigns.remarks import Decision
from results.conditions.profiles import is_profiled
from results.reading.effects import Effects, Memory, effects, mean_startups
from results.store.reader import Reader

# What an earlier campaign may have otherwise: its arms, its prompts (matched by name), and the code round the server.
_FREE = ("arm.", "control_plane_sha256", "prompts_sha256", "corpus_sha256", "warmups")
_CAMPAIGNS = text("SELECT campaign_id, created_utc, plan_json, fingerprint FROM campaign ORDER BY created_utc, rowid")
LEAVE_OUT, TAKE_BACK = "leave-out-of-floors", "take-back-into-floors"


@dataclass(frozen=True)
class Known:
    """One campaign of the store, as far as it may tell another one something."""

    campaign_id: str
    created_utc: str
    plan: Mapping[str, Any]
    fingerprint: Mapping[str, str]
    family: Mapping[str, str]

    @cached_property
    def is_aa(self) -> bool:
        return bool(self.plan["mode"] == Mode.AA.value)


def family(fingerprint: Mapping[str, str]) -> dict[str, str]:
    """The part of a fingerprint that a noise floor depends on."""
    return {name: value for name, value in fingerprint.items() if not name.startswith(_FREE)}


def known(reader: Reader) -> list[Known]:
    """Oldest first."""
    rows = reader.connection.execute(_CAMPAIGNS)
    return [_known(*row) for row in rows]


def _known(campaign_id: str, utc: str, plan_json: str, fingerprint_json: str) -> Known:
    fingerprint = json.loads(fingerprint_json)
    return Known(campaign_id, utc, json.loads(plan_json), fingerprint, family(fingerprint))


def left_out(reader: Reader) -> dict[str, Decision]:
    """A/A campaigns that a person left out of the floors."""
    newest = {d.subject: d for d in reader.decisions() if d.decision in (LEAVE_OUT, TAKE_BACK)}
    return {subject: decision for subject, decision in newest.items() if decision.decision == LEAVE_OUT}


def lending(about: Known, every: Sequence[Known], without: Iterable[str] = ()) -> list[Known]:
    """The campaigns whose startups tell of the one in hand."""
    measured = [other for other in every if not is_profiled(other.plan)]
    alike = [other for other in measured if other.campaign_id != about.campaign_id and other.family == about.family]
    out = set(without)
    before = [other for other in alike if other.is_aa or other.created_utc < about.created_utc]
    return [other for other in before if other.campaign_id not in out]


def pasts_of(
    reader: Reader, campaign_id: str, names: Sequence[str], memory: Memory | None = None
) -> tuple[dict[str, Past], Past]:
    """Of each of the campaign's groups by name, and of their mean."""
    every = known(reader)
    [about] = [each for each in every if each.campaign_id == campaign_id]
    lenders = lending(about, every, left_out(reader))
    found = effects(reader, {other.campaign_id: other.plan for other in lenders}, memory) if lenders else {}
    return Told(found).pasts(about, lenders, names)


class Told:
    """What earlier campaigns tell, computed once each: as many later ones ask as there are."""

    def __init__(self, found: Mapping[str, Mapping[str, Effects]]) -> None:
        self._found = found
        self._medians: dict[tuple[str, tuple[str, ...]], tuple[float, ...]] = {}
        self._levels: dict[tuple[str, tuple[str, ...]], tuple[float, ...]] = {}

    def pasts(self, about: Known, lenders: Sequence[Known], names: Sequence[str]) -> tuple[dict[str, Past], Past]:
        """`names` are the groups that enter the mean; an earlier campaign tells of it where it has all of them."""
        return {name: self._past(about, lenders, (name,)) for name in names}, self._past(about, lenders, tuple(names))

    def _past(self, about: Known, lenders: Sequence[Known], names: tuple[str, ...]) -> Past:
        aa: list[float] = []
        ab: list[float] = []
        levels: list[float] = []
        for other in lenders:
            (aa if other.is_aa else ab).extend(self._startups(other, names))
            if other.fingerprint.get("arm.control") == about.fingerprint.get("arm.control"):
                levels += self._levels[other.campaign_id, names]
        return Past(tuple(aa), tuple(ab), tuple(levels))

    def _startups(self, other: Known, names: tuple[str, ...]) -> tuple[float, ...]:
        """Its medians, centred where its arms differ; its levels are kept as well."""
        key = other.campaign_id, names
        if key not in self._medians:
            groups = [self._found[other.campaign_id].get(name) for name in names]
            measured = [group for group in groups if group is not None and group.pairs]
            whole = measured if names and len(measured) == len(names) else []
            medians = tuple(mean_startups([group.medians for group in whole]).values())
            self._medians[key] = medians if other.is_aa else centred(medians)
            self._levels[key] = tuple(mean_startups([group.levels for group in whole]).values())
        return self._medians[key]
