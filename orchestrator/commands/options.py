"""Options that several subcommands share."""

from __future__ import annotations

import argparse
from pathlib import Path


def store_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", type=Path, default=Path("outputs/campaigns.sqlite"), help="the SQLite file (default: %(default)s)"
    )


def campaign_argument(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?" if optional else None,
        help="a campaign's id, a unique beginning of it, or `last`",
    )
