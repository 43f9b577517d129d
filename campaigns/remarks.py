"""What is said of recorded campaigns afterwards: scores of answers, probes of gates, what people noted and decided.

Frozen like the facts of `campaigns.records`; saying something again adds to it and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from campaigns.plan import PairKey, Role


@dataclass(frozen=True)
class Score:
    """One verdict of one scorer on one recorded answer; scoring again adds rows."""

    campaign_id: str
    key: PairKey
    role: Role
    utc: str
    scorer: str
    version: str
    arguments_json: str
    outcome: str  # passed | failed | capped | timeout | ineligible | error
    details_json: str  # per-test results


@dataclass(frozen=True)
class Probe:
    """One check of an audit or a kernel gate, imported from a JSON line."""

    utc: str
    gate: str
    subject: str  # operator/schedule or arm
    status: str  # passed | failed | held
    library_sha256: str
    line_json: str


class Mark(StrEnum):
    TAG = "tag"
    UNTAG = "untag"
    NOTE = "note"
    ARCHIVE = "archive"
    RESTORE = "restore"


@dataclass(frozen=True)
class Annotation:
    """What a person wrote to a campaign: a tag, a note, or why it is put aside. Changes no figure of it."""

    campaign_id: str
    utc: str
    mark: Mark
    text: str
    by: str


@dataclass(frozen=True)
class Decision:
    """What a person decided, and why."""

    utc: str
    subject: str
    decision: str
    by: str
    reason: str
    evidence_json: str
