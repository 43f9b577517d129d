"""The parser of every subcommand, and the options that several share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from campaigns.errors import UsageError
from results.place import DEFAULT


class Parser(argparse.ArgumentParser):
    """argparse that raises our usage error instead of exiting with a code of its own."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def store_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", type=Path, default=DEFAULT, help="the SQLite file (default: %(default)s)")


def campaign_argument(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?" if optional else None,
        help="a campaign's id, a unique beginning of it, or `last`",
    )
