"""One thing that was looked at: what was found, how bad it is, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True)
class Row:
    subject: str
    level: Level
    found: str
    remedy: str = ""
