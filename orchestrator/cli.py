"""The console script `campaign`: subcommands, and the one place where exceptions become exit codes."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

from campaigns.errors import CampaignError, Exit, OutputRefused, StoreWarning, UsageError, highest
from campaigns.provenance import METHODOLOGY_VERSION
from orchestrator.commands.options import Parser
from orchestrator.output import terminal
from orchestrator.output.detaching import detach

_EPILOG = """exit codes: 0 complete, 1 usage, 2 slower or inexact or a failed gate, 3 not conclusive (--strict), 4 no
admissible pair, 5 device, lease, server or store, 6 identity mismatch, 70 a bug, 130 ended by a person (stop, SIGINT,
SIGTERM, SIGHUP) and to be resumed.
A campaign may be named by its id, any unique beginning of it, or `last`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # `nohup campaign run` ignores it
        signal.signal(signal.SIGHUP, _interrupt)
    terminal.print_anything()
    warnings.showwarning = _show  # type: ignore[assignment]  # takes the same words
    try:
        code = Exit(_code(arguments))
    except SystemExit as ended:  # argparse's, after --help
        code = Exit(int(ended.code or 0))
    return int(_flushed(code))


def _flushed(code: Exit) -> Exit:
    """What was still in a buffer may be refused as well; once said is enough."""
    try:
        terminal.flush()
    except OutputRefused as error:
        if code is not Exit.WORLD:
            _tell(f"campaign: {error}")
        return highest([code, Exit.WORLD])
    return code


def _code(arguments: list[str]) -> int:
    try:
        return _dispatch(arguments)
    except CampaignError as error:
        _tell(f"campaign: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _tell("campaign: interrupted")
        return Exit.INTERRUPTED
    except Exception as error:
        if terminal.reader_left(error):
            terminal.fall_silent()  # nothing is wrong: a campaign itself would have gone on (terminal.Lasting)
            return Exit.COMPLETE
        _tell(f"{traceback.format_exc()}campaign: this is a bug; please report it with the lines above")
        return Exit.BUG


def _show(message: Warning | str, *where: Any) -> None:
    _tell(f"campaign: {message}" if isinstance(message, StoreWarning) else f"warning: {message}")


def _tell(text: str) -> None:
    print(text, file=terminal.Lasting(sys.stderr))


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] in (["run"], ["resume"]) and "--detach" in arguments and not {"-h", "--help"} & set(arguments):
        arguments.remove("--detach")
        waited = detach()
        if waited is not None:
            return waited
    if arguments[:1] == ["run"] and not {"-h", "--help"} & set(arguments):
        from orchestrator.commands.measuring.run import run_run

        return run_run(arguments[1:])
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    top = parser()
    options, settings = top.parse_known_args(arguments)  # argparse loses positional words that stand behind an option
    if settings and "settings" not in options:
        raise UsageError(f"campaign {arguments[0]} takes no {settings[0]}; see campaign {arguments[0]} --help")
    options.settings, options.top = settings, top  # what completion looks through
    code: int = options.run(options)
    return code


def _interrupt(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(signum).name)


@cache
def parser() -> Parser:
    """All subcommands; each module adds its own and knows how to run it."""
    from orchestrator import commands

    top = Parser(prog="campaign", description="Benchmark campaigns for speculative decoding.", epilog=_EPILOG)
    top.add_argument("--version", action=_Version, nargs=0, help="this program's version, and its store's")
    added = top.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for add in commands.ALL:
        add(added)
    _describe(added)
    return top


class _Version(argparse.Action):
    """argparse's own wants the words before anybody asks, and what is installed takes long to read."""

    def __call__(self, parser: argparse.ArgumentParser, *asked: object) -> NoReturn:
        from importlib.metadata import version

        print(f"campaign {version('dflash2-campaigns')}, methodology {METHODOLOGY_VERSION}")
        parser.exit()


def _describe(added: Any) -> None:
    """What the list of commands says of one heads its own help too."""
    for listed in added._choices_actions:
        parser = added.choices[listed.dest]
        parser.description = parser.description or listed.help[0].upper() + listed.help[1:] + "."
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                _describe(action)


if __name__ == "__main__":
    sys.exit(main())
