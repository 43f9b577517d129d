"""`campaign run`, `resume` and `stop`: what starts and ends a campaign."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.commands.options import Parser, campaign_argument, config_option, store_option

_RUN = """Compose conf/ with Hydra overrides and run the campaign, e.g.
  campaign run                                        the embedded smoke campaign
  campaign run campaign=endpoint server=embedded      three startups, six pairs
  campaign run arm@campaign.candidate=columns-32 campaign.mode=aa arm@campaign.control=columns-32
  campaign run --cfg job        print the configuration     --info   how it was composed
  campaign run --multirun campaign.seed=0,1                 one campaign per value
--config-dir DIR              files of one's own for any group, beside those of conf/ (campaign init DIR writes a start)
--store FILE                  the SQLite file (default: outputs/campaigns.sqlite); the key store.path is the same
--strict ends with 3 when the result is a screen, inconclusive, order-sensitive or below the resolution."""


def add_run_parser(subparsers: Any) -> None:
    subparsers.add_parser(
        "run",
        help="run a campaign",
        description=_RUN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="campaign run [--config-dir DIR] [--store FILE] [--strict] [--cfg job|--info|--multirun] [key=value …]",
    )  # orchestrator.cli hands the words after `run` to Hydra; this parser only explains


def hydra_words(words: Sequence[str]) -> list[str]:
    """`--strict`, `--store` and `--config-dir` are ours and become keys; everything else is Hydra's."""
    from orchestrator.settings.folders import with_folders
    from orchestrator.settings.overrides import store_override

    parser = Parser(prog="campaign run", add_help=False, allow_abbrev=False)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--store", type=Path)
    config_option(parser)
    ours, others = parser.parse_known_args(list(words))
    store = [store_override(ours.store)] if ours.store is not None else []
    return with_folders([*others, *store, *(["strict=true"] if ours.strict else [])], ours.config_dir)


def add_resume_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("resume", help="run what is missing of a campaign")
    campaign_argument(parser)
    store_option(parser)
    parser.add_argument("--strict", action="store_true", help="end with 3 when the result is not conclusive")
    parser.set_defaults(run=run_resume)


def run_resume(options: argparse.Namespace) -> int:
    from orchestrator.campaign import resume

    return resume(options.store, options.id, strict=options.strict)


def add_stop_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("stop", help="end a running campaign after its current pair; it can be resumed")
    campaign_argument(parser)
    store_option(parser)
    parser.add_argument(
        "--reason", default="stopped by the operator", help="kept with the campaign (default: %(default)s)"
    )
    parser.set_defaults(run=run_stop)


def run_stop(options: argparse.Namespace) -> int:
    from orchestrator.campaign import request_stop

    print(request_stop(options.store, options.id, options.reason))
    return 0
