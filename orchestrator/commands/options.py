"""The parser of every subcommand, and the options that several share."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from campaigns.errors import UsageError
from campaigns.nearest import nearest
from results.store.place import DEFAULT

if TYPE_CHECKING:
    from orchestrator.scoring.sandbox import Sandbox
    from orchestrator.studies.series import Series

CAMPAIGN = "a campaign's id, a unique beginning of it, or `last`"
SANDBOX = "Settings: sandbox.mode=namespaces|weak, sandbox.uid=N (what root becomes before any code runs)."
_Number = TypeVar("_Number", int, float)


class Parser(argparse.ArgumentParser):
    """argparse that raises our usage error instead of exiting with a code of its own, and loses no word.

    Words behind an option are the command's as much as those before it: `tag ID --by ann TAG`. argparse gives a list of
    words what stands before the first option and calls the rest unknown (mended in Python 3.12.7), unless it is told to
    look for options first.
    """

    _options_first = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        lists = any(action.nargs in ("*", "+", "?") and not action.option_strings for action in self._actions)
        if self._options_first or not lists:
            return super().parse_known_args(args, namespace)
        self._options_first = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._options_first = False

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{_clearer(message)}; see {self.prog} --help")


def _clearer(message: str) -> str:
    """Of a wrong choice the nearest, instead of all that there are."""
    wrong = re.fullmatch(r"argument (.+): invalid choice: '?(.*?)'? \(choose from (.+)\)", message)
    if not wrong:
        return message
    known = [name.strip("'") for name in wrong[3].split(", ")]
    return f"{wrong[1]} {wrong[2]}: {nearest(wrong[2], known)}"


def positive(kind: type[_Number]) -> Callable[[str], _Number]:
    """A type for numbers above zero."""

    def read(text: str) -> _Number:
        try:
            number = kind(text)
        except ValueError:
            number = kind(0)
        if not 0 < number < math.inf:
            whole = " whole" if kind is int else ""
            raise argparse.ArgumentTypeError(f"{text}: must be a{whole} number above 0")
        return number

    return read


def store_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", type=Path, default=DEFAULT, metavar="FILE", help="the SQLite file (default: %(default)s)"
    )


def config_option(parser: argparse.ArgumentParser) -> None:
    """Folders of one's own configuration; may stand several times."""
    parser.add_argument(
        "--config-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder with files of one's own for any group (campaign init DIR writes one)",
    )


def force_option(parser: argparse.ArgumentParser) -> None:
    """The one rule for files that are there: refused without it, overwritten with it."""
    parser.add_argument("--force", action="store_true", help="overwrite what is there already")


def device_options(parser: argparse.ArgumentParser) -> None:
    locks = "folder of the devices' locks, as lease.lock_dir of a run (default: the host's)"
    parser.add_argument("--lock-dir", default="", metavar="FOLDER", help=locks)
    kinds = "auto, nvml, cpu or simulated:NAME, as lease.inventory of a run (default: %(default)s)"
    parser.add_argument("--inventory", default="auto", metavar="NAME", help=kinds)


def table_option(parser: argparse.ArgumentParser) -> None:
    formats = ("table", "md", "json", "jsonl", "csv")
    parser.add_argument("--format", default="table", choices=formats, help="default: %(default)s")


def output_options(parser: argparse.ArgumentParser) -> None:
    """What a campaign that ends says on standard output, and whether its progress is told on standard error."""
    said = "the whole report on standard output as this, instead of its answer in a sentence"
    parser.add_argument("--format", default="", choices=("md", "json", "jsonl", "csv"), help=said)
    parser.add_argument("--report", action="store_const", const="md", dest="format", help="the same as --format md")
    quiet_option(parser)


def quiet_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def resume_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Of several campaigns that are one question."""
    parser.add_argument(
        "--resume",
        nargs="?",
        const="last",
        metavar="ID",
        help=f"go on with a {what} that was interrupted (default: last)",
    )


def resumed(options: argparse.Namespace, given: Sequence[str]) -> Series | None:
    """The series of this command's kind that `--resume` names; None without it."""
    from orchestrator.studies.series import Series

    if not options.resume:
        return None
    if given:
        raise UsageError(f"{given[0]}: a {options.command} goes on with the words it began with: --resume alone")
    return Series.find(options.store, options.command, options.resume)


def words_of(options: argparse.Namespace) -> list[str]:
    """Positional words, those too that stand behind an option: a parser of them has the default `settings=[]`."""
    for word in options.settings:
        if word.startswith("-"):
            raise UsageError(f"unknown flag {word}; see campaign {options.command} --help")
    return [*options.words, *options.settings]


def campaign_argument(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?" if optional else None,
        help=CAMPAIGN,
    )


def sandbox_setting(words: Sequence[str]) -> Sandbox:
    """The sandbox that `sandbox.…` words ask for."""
    from orchestrator.scoring.sandbox import UNPRIVILEGED_UID, Mode, Sandbox

    told = dict(word.partition("=")[::2] for word in words)
    unknown = sorted(set(told) - {"sandbox.mode", "sandbox.uid"})
    if unknown:
        raise UsageError(f"{unknown[0]}: unknown setting; there are sandbox.mode and sandbox.uid")
    mode, uid = told.get("sandbox.mode", str(Mode.NAMESPACES)), told.get("sandbox.uid", str(UNPRIVILEGED_UID))
    if mode not in list(Mode):
        raise UsageError(f"sandbox.mode={mode}: choose {' or '.join(Mode)}")
    if not uid.isdecimal() or int(uid) == 0:
        raise UsageError(f"sandbox.uid={uid}: the number of a user other than root")
    return Sandbox(Mode(mode), uid=int(uid))


def decision_options(parser: argparse.ArgumentParser) -> None:
    """Who decides and why; both are kept, so neither may be empty."""
    parser.add_argument("--by", required=True, type=_decided, metavar="NAME", help="who decides")
    parser.add_argument("--reason", required=True, type=_decided, metavar="TEXT", help="why; kept with the decision")


def _decided(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: a decision is kept with who made it and why")
    return text.strip()


def said(text: str) -> str:
    """Words that are kept beside a campaign."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: write what is to be kept")
    return text.strip()
