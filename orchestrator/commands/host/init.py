"""`campaign init`: a first configuration of one's own, outside the checkout."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from campaigns.errors import Exit
from orchestrator.commands.options import force_option

_DESCRIPTION = """Writes a commented start: one campaign, two arms, fixtures and a server that a command line starts. It
runs as it stands; docs/first_campaign.md goes on from there."""


def add_init_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("init", help="write a first configuration of one's own", description=_DESCRIPTION)
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder outside the checkout; made where missing")
    force_option(parser)
    parser.set_defaults(run=run_init)


def run_init(options: argparse.Namespace) -> int:
    from orchestrator.settings.start import write_start

    for path in write_start(options.folder, force=options.force):
        print(path)
    folder = shlex.quote(str(options.folder))
    print(f"next: campaign plan --config-dir {folder} campaign=mine")
    return int(Exit.COMPLETE)
