"""What the kernels list and build, asked in a process of its own: they are another plane.

Unknown names, and schedules that do not run on the server's device, are refused, and native libraries are built, before
anything is leased. Knows nothing of operators.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from campaigns.errors import NoDevice, UsageError, WorldError
from campaigns.plan import Arm, CampaignPlan
from orchestrator.checkouts.places import ROOT
from orchestrator.servers.adapters.dflash2 import flag_value

_DEVICE = "cpu"  # our server's, unless it is told --device


@dataclass(frozen=True)
class Listed:
    native: bool
    build_sha256: str  # of sources, flags and toolkit; empty where nothing is built
    device: str = ""  # the device type that it runs on; empty: every one
    archs: tuple[str, ...] = ()  # and the architectures of it; empty: every one


@dataclass(frozen=True)
class Listing:
    operators: Mapping[str, Mapping[str, Listed]]  # operator -> schedule -> what is known of it
    cpu: str = ""  # this host's architecture


def listing() -> Listing:
    answer = _kernels("list", "--json")
    answer.check_returncode()
    told = json.loads(answer.stdout)
    operators = {op["name"]: {s["name"]: _listed(s) for s in op["schedules"]} for op in told["operators"]}
    return Listing(operators, told["cpu"])


def _listed(told: Mapping[str, Any]) -> Listed:
    machine = told["machine"] or {"device": "", "archs": ()}
    return Listed(told["native"], told["build_sha256"] or "", machine["device"], tuple(machine["archs"]))


def check(plan: CampaignPlan, listed: Listing) -> None:
    """Refuse an operator or schedule that the kernels do not list."""
    known = listed.operators
    for arm in (plan.control, plan.candidate):
        for operator, schedule in arm.schedules:
            if operator not in known:
                raise UsageError(f"arm {arm.name}: unknown operator {operator}; known: {', '.join(sorted(known))}")
            if schedule not in known[operator]:
                names = ", ".join(known[operator])
                raise UsageError(f"arm {arm.name}: {operator} has no schedule {schedule}; known: {names}")


def check_machines(plan: CampaignPlan, listed: Listing, archs: Mapping[str, frozenset[str]]) -> None:
    """Refuse an arm with a schedule that does not run on the server's device: no pair could ever be admissible.

    `archs` holds the architectures that may be leased by device type; where none are known, none are judged. A type
    that is missing beside others cannot be leased at all.
    """
    for arm in (plan.control, plan.candidate):
        device = _device_of(plan, arm)
        ours = archs.get(device, frozenset())
        for operator, schedule in arm.schedules:
            name, entry = f"{operator}/{schedule}", listed.operators[operator][schedule]
            if entry.device not in ("", device):
                raise UsageError(
                    f"arm {arm.name}: {name} runs on {entry.device} alone and its server runs on {device}: name a "
                    f"schedule for {device} (python -m kernels.list), or put --device {entry.device} into server.args"
                )
            if ours and entry.archs and not ours.intersection(entry.archs):
                raise NoDevice(
                    f"arm {arm.name}: {name} runs on {' or '.join(entry.archs)} alone and what may be leased here is "
                    f"{' or '.join(sorted(ours))}: lease another device, or name a schedule for that one "
                    "(python -m kernels.list)"
                )
    for arm in (plan.control, plan.candidate) if archs else ():
        device = _device_of(plan, arm)
        if device not in archs:
            raise NoDevice(
                f"arm {arm.name}: its server is told --device {device}, and lease.inventory={plan.lease.inventory} "
                "finds none here: run it where there is one (campaign doctor says what is missing), join such a host "
                "with lease.ray_address, or take server=embedded, which runs on the CPU"
            )


def _device_of(plan: CampaignPlan, arm: Arm) -> str:
    """`cuda` of `--device cuda:1`."""
    told = flag_value((*plan.server.args, *arm.args), "--device") or _DEVICE
    return told.partition(":")[0]


def build(plan: CampaignPlan, listed: Listing) -> dict[str, str]:
    """Build the arms' native schedules; returns `operator/schedule` -> build hash."""
    arms = (plan.control, plan.candidate)
    chosen = {(op, name): listed.operators[op][name] for arm in arms for op, name in arm.schedules}
    native = {f"{op}/{name}": entry.build_sha256 for (op, name), entry in sorted(chosen.items()) if entry.native}
    if native:
        answer = _kernels("build", *native)
        if answer.returncode:
            said = (answer.stderr or answer.stdout).strip().splitlines() or ["no message"]
            raise WorldError(f"{', '.join(native)} cannot be built here: {said[-1]}; see campaign doctor")
    return native


def _kernels(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", f"kernels.{module}", *words], cwd=ROOT, capture_output=True, text=True)
