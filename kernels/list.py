"""`python -m kernels.list [--json]`: the operators and schedules that exist.

The control plane reads the JSON to reject an unknown schedule before it leases anything, so this imports neither
torch nor a native library. `build_sha256` identifies what a native schedule is built from, null for torch schedules.
`unavailable` says why a native schedule can neither be loaded nor built here, or which package is not installed, null
where nothing is missing. `machine` is where a schedule runs, null for everywhere; `cpu` is this machine's own
architecture. `preferred` schedules come before the default where they take a problem.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from kernels.command_line import Parser
from kernels.native.building import lacking
from kernels.native.machine import cpu_arch
from kernels.operators import OPERATORS
from kernels.registry import Bitwise, Op, Schedule


def describe_contract(contract: Any) -> dict[str, Any]:
    if isinstance(contract, Bitwise):
        return {"kind": "bitwise", "parent": contract.parent}
    return {"kind": "bound", "rel_l2": contract.rel_l2, "statement": contract.statement}


def unavailable(schedule: Schedule) -> str | None:
    """Why this machine cannot have what the schedule is built from or calls; None where nothing is missing."""
    if schedule.library and (missing := schedule.library.refusal()):
        return missing
    return lacking(schedule.build) if schedule.build else None


def describe_schedule(op: Op, schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "revision": schedule.revision,
        "default": schedule.name == op.default,
        "preferred": schedule.name in op.preferred,
        "contract": describe_contract(schedule.contract),
        "native": schedule.build is not None,
        "machine": asdict(schedule.machine) if schedule.machine else None,
        "build_sha256": schedule.build.sha256() if schedule.build else None,
        "unavailable": unavailable(schedule),
        "summary": schedule.summary,
    }


def describe() -> dict[str, Any]:
    return {
        "cpu": cpu_arch(),
        "operators": [
            {
                "name": op.name,
                "default": op.default,
                "schedules": [describe_schedule(op, schedule) for schedule in op.schedules],
            }
            for op in OPERATORS
        ],
    }


def lines(listing: dict[str, Any]) -> list[str]:
    rows = []
    for op in listing["operators"]:
        for schedule in op["schedules"]:
            mark = "*" if schedule["default"] else "+" if schedule["preferred"] else " "
            name, where = f"{op['name']}/{schedule['name']}", place(schedule["machine"])
            rows.append(f"{mark} {name:32} r{schedule['revision']}  {where:14} {schedule['summary']}")
    return rows


def place(machine: dict[str, Any] | None) -> str:
    """`cuda sm_90`, `cpu`, or nothing: the least of what a schedule runs on."""
    return " ".join((machine["device"], *machine["archs"][:1])) if machine else ""


def main() -> None:
    parser = Parser(prog="python -m kernels.list", description="List operators and their schedules.")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    listing = describe()
    print(json.dumps(listing, indent=2) if parser.parse_args().json else "\n".join(lines(listing)))


if __name__ == "__main__":
    main()
