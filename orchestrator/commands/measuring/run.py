"""`campaign run`, `resume` and `stop`: what starts and ends a campaign."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.commands.options import Parser, campaign_argument, config_option, output_options, store_option

_RUN = """Compose conf/ with Hydra overrides and run the campaign, e.g.
  campaign run                                        the embedded smoke campaign
  campaign run campaign=endpoint server=embedded      three startups, six pairs
  campaign run arm@campaign.candidate=columns-32 campaign.mode=aa arm@campaign.control=columns-32
  campaign run --cfg job        print the configuration     --info   how it was composed
  campaign run --multirun campaign.seed=0,1                 one campaign per value, and a table of their answers
  campaign run --multirun … sweep.parallel=4                four at once, over the devices that are free
--config-dir DIR              files of one's own for any group, beside those of conf/ (campaign init DIR writes a start)
--store FILE                  the SQLite file (default: outputs/campaigns.sqlite); the key store.path is the same
--report                      the whole report at the end, not its answer alone; --format md|json|jsonl|csv as well
--quiet                       no progress on standard error
--strict ends with 3 when the result is a screen, inconclusive, order- or repeat-sensitive, or below the resolution.
--detach goes on without this terminal: prints the campaign's id and its log, and ends with 0"""


def add_run_parser(subparsers: Any) -> None:
    subparsers.add_parser(
        "run",
        help="run a campaign",
        description=_RUN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="campaign run [--config-dir D] [--store F] [--strict] [--report] [--quiet] [--detach] [--cfg job|…] "
        "[key=value …]",
    )  # orchestrator.cli hands the words after `run` to Hydra; this parser only explains


def run_run(words: Sequence[str]) -> int:
    """The words behind `run`: ours are taken out, Hydra reads the rest."""
    from orchestrator.launch import run
    from orchestrator.output.progress import Output
    from orchestrator.studies.sweep import CHILD, child

    if list(words) == [CHILD]:
        return int(child())
    ours, others = _own_options(words)
    return int(run(others, Output(ours.format, ours.quiet)))


def _own_options(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """`--strict`, `--store` and `--config-dir` are ours and become keys; everything else is Hydra's."""
    from orchestrator.settings.folders import with_folders
    from orchestrator.settings.overrides import store_override

    parser = Parser(prog="campaign run", add_help=False, allow_abbrev=False)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--store", type=Path)
    config_option(parser)
    output_options(parser)
    ours, others = parser.parse_known_args(list(words))
    store = [store_override(ours.store)] if ours.store is not None else []
    return ours, with_folders([*others, *store, *(["strict=true"] if ours.strict else [])], ours.config_dir)


def add_resume_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("resume", help="run what is missing of a campaign")
    campaign_argument(parser)
    store_option(parser)
    parser.add_argument("--strict", action="store_true", help="end with 3 when the result is not conclusive")
    output_options(parser)
    # Acted upon in orchestrator.cli before anything is imported: a process with threads must not fork.
    parser.add_argument("--detach", action="store_true", help="go on without this terminal, as for run")
    parser.set_defaults(run=run_resume)


def run_resume(options: argparse.Namespace) -> int:
    from orchestrator.campaign import resume
    from orchestrator.output.progress import Output

    return resume(options.store, options.id, Output(options.format, options.quiet), strict=options.strict)


def add_stop_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("stop", help="end a running campaign after its current pair; it can be resumed")
    campaign_argument(parser)
    store_option(parser)
    parser.add_argument(
        "--reason", default="stopped by the operator", help="kept with the campaign (default: %(default)s)"
    )
    whole = "end after the current block instead, which loses no finished pair"
    parser.add_argument("--after-block", action="store_true", help=whole)
    parser.set_defaults(run=run_stop)


def run_stop(options: argparse.Namespace) -> int:
    from orchestrator.stopping import request_stop

    print(request_stop(options.store, options.id, options.reason, after_block=options.after_block))
    return 0
