"""What the kernels list and build, asked in a process of its own: they are another plane.

Unknown names are refused, and native libraries are built, before anything is leased. Knows nothing of operators.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from campaigns.errors import UsageError, WorldError
from campaigns.plan import CampaignPlan
from orchestrator.identity import ROOT

Listing = Mapping[str, Mapping[str, "Listed"]]  # operator -> schedule -> what is known of it


@dataclass(frozen=True)
class Listed:
    native: bool
    build_sha256: str  # of sources, flags and toolkit; empty where nothing is built


def listing() -> Listing:
    answer = _kernels("list", "--json")
    answer.check_returncode()
    return {
        operator["name"]: {s["name"]: Listed(s["native"], s["build_sha256"] or "") for s in operator["schedules"]}
        for operator in json.loads(answer.stdout)["operators"]
    }


def check(plan: CampaignPlan, listed: Listing) -> None:
    """Refuse an operator or schedule that the kernels do not list."""
    for arm in (plan.control, plan.candidate):
        for operator, schedule in arm.schedules:
            if operator not in listed:
                raise UsageError(f"arm {arm.name}: unknown operator {operator}; known: {', '.join(sorted(listed))}")
            if schedule not in listed[operator]:
                names = ", ".join(listed[operator])
                raise UsageError(f"arm {arm.name}: {operator} has no schedule {schedule}; known: {names}")


def build(plan: CampaignPlan, listed: Listing) -> dict[str, str]:
    """Build the arms' native schedules; returns `operator/schedule` -> build hash."""
    chosen = {(op, name): listed[op][name] for arm in (plan.control, plan.candidate) for op, name in arm.schedules}
    native = {f"{op}/{name}": entry.build_sha256 for (op, name), entry in sorted(chosen.items()) if entry.native}
    if native:
        answer = _kernels("build", *native)
        if answer.returncode:
            said = (answer.stderr or answer.stdout).strip().splitlines() or ["no message"]
            raise WorldError(f"{', '.join(native)} cannot be built here: {said[-1]}; see campaign doctor")
    return native


def _kernels(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", f"kernels.{module}", *words], cwd=ROOT, capture_output=True, text=True)
