"""The report as CSV: one row per fixture and arm, names as in the JSON report; empty where unknown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from campaigns.printable import printable
from results.reading.spreadsheet import inert
from results.reading.summary import Summary
from results.reports.report_json import content

_SHARED = (
    "campaign_id",
    "name",
    "created_utc",
    "fixture_id",
    "seed",
    "verdict",
    "evidence",
    "effect_pct",
    "ci_low_pct",
    "ci_high_pct",
    "noise_floor_pct",
    "n_startups",
    "n_pairs",
    "n_exact_pairs",
    "n_excluded",
)


def report_csv(summary: Summary) -> str:
    found = content(summary)
    rows = [_row(found, fixture, role) for fixture in found["fixtures"] for role in ("control", "candidate")]
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: inert(_shown(value)) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _shown(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def _row(found: Mapping[str, Any], fixture: Mapping[str, Any], role: str) -> dict[str, Any]:
    about = {"campaign_id": found["campaign_id"], "name": found["name"], "created_utc": found["created_utc"]}
    shared = {name: about.get(name, fixture.get(name)) for name in _SHARED}
    arm = {"role": role, "arm": found["arms"][role]}
    for name, value in fixture[role].items():
        if name.endswith("_quantiles_ms"):
            arm |= {name.replace("quantiles", q): cell["value"] for q, cell in value.items()}
        elif not isinstance(value, dict | list):
            arm[name] = value
    return shared | arm
