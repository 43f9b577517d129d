"""`campaign doctor`: what is here, what is wrong with it, and the remedy."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from campaigns.errors import CampaignError, Exit, NoDevice, UsageError
from orchestrator.commands.options import config_option, device_options
from orchestrator.diagnosis.row import Level, Row


def add_doctor_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("doctor", help="examine this machine: ok, warning or fault, with the remedy")
    parser.add_argument("--no-ray", action="store_true", help="do not start Ray (saves some ten seconds)")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    device_options(parser)
    config_option(parser)
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

    if options.model is not None and not options.model.is_dir():
        raise UsageError(f"--model {options.model}: no such folder; name one that holds a checkpoint")
    scope = Scope(options.outputs, options.lock_dir, options.inventory, options.model, not options.no_ray)
    if scope.with_ray:
        print(
            "Ray is started among other things, which takes some ten seconds; --no-ray leaves it out", file=sys.stderr
        )
    faults = 0
    for row in chain(_configurations(options.config_dir), examine(scope)):
        faults += row.level is Level.FAULT
        if options.json:
            print(json.dumps(asdict(row)), flush=True)
            continue
        print(f"{row.level:<8} {row.subject:<10} {row.found}", flush=True)
        if row.remedy:
            print(f"{'':<19} → {row.remedy}", flush=True)
    return int(Exit.WORLD if faults else Exit.COMPLETE)


def _configurations(own: Sequence[Path]) -> Iterator[Row]:
    """Whether each campaign of one's own composes, with all that it names."""
    from orchestrator.launch import composed
    from orchestrator.settings.folders import check_folders, with_folders

    check_folders(own)
    for path in (path for folder in own for path in sorted((folder / "campaign").glob("*.yaml"))):
        try:
            made = composed(with_folders([f"campaign={path.stem}"], own))
            if made.unknown:
                raise NoDevice(made.unknown)
            plan = made.plan
            yield Row("campaign", Level.OK, f"{path}: {plan.candidate.name} against {plan.control.name}")
        except CampaignError as error:
            yield Row("campaign", Level.FAULT, f"{path}: {error}", "correct the file it names")
