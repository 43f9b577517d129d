"""`campaign doctor`: what is here, what is wrong with it, and the remedy."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from campaigns.errors import Exit, UsageError
from orchestrator.commands.options import device_options


def add_doctor_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("doctor", help="examine this machine: ok, warning or fault, with the remedy")
    parser.add_argument("--no-ray", action="store_true", help="do not start Ray (saves some ten seconds)")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    device_options(parser)
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="checkpoint whose tokenizer is tried")
    parser.add_argument(
        "--outputs",
        type=Path,
        default=Path("outputs"),
        metavar="FOLDER",
        help="where results would go (default: %(default)s)",
    )
    parser.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """0 without a fault, else 5."""
    from orchestrator.diagnosis.doctor import Scope, examine
    from orchestrator.diagnosis.row import Level

    if options.model is not None and not options.model.is_dir():
        raise UsageError(f"--model {options.model}: no such folder; name one that holds a checkpoint")
    scope = Scope(options.outputs, options.lock_dir, options.inventory, options.model, not options.no_ray)
    faults = 0
    for row in examine(scope):
        faults += row.level is Level.FAULT
        if options.json:
            print(json.dumps(asdict(row)), flush=True)
            continue
        print(f"{row.level:<8} {row.subject:<10} {row.found}", flush=True)
        if row.remedy:
            print(f"{'':<19} → {row.remedy}", flush=True)
    return int(Exit.WORLD if faults else Exit.COMPLETE)
