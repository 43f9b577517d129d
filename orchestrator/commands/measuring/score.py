"""`campaign score`: judge the answers of a corpus campaign; again at any time, never beside timing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from campaigns.errors import Exit
from orchestrator.commands.options import SANDBOX, campaign_argument, positive, sandbox_setting, store_option

_DESCRIPTION = (
    """Adds one row per answer and scorer; scoring again adds rows. Generated code runs in a sandbox of fresh
namespaces. Where the kernel refuses them no code runs, unless sandbox.mode=weak accepts limits alone.
"""
    + SANDBOX
)


def add_score_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "score",
        help="score the answers of a corpus campaign",
        description=_DESCRIPTION,
        usage="campaign score [-h] [--store FILE] [--corpus PATH] [--jobs N] ID [key=value …]",
    )
    campaign_argument(parser)
    store_option(parser)
    parser.add_argument("--corpus", default="", metavar="PATH", help="the frozen corpus, if it has moved")
    parser.add_argument(
        "--jobs", type=positive(int), default=1, metavar="N", help="sets of tests at once (default: %(default)s)"
    )
    parser.set_defaults(run=run_score, settings=[])


def run_score(options: argparse.Namespace) -> int:
    from orchestrator.scoring.scoring import Settings, score_campaign, tally

    sandbox = sandbox_setting(options.settings)
    scores = score_campaign(options.store, options.id, Settings(sandbox, jobs=options.jobs, corpus_path=options.corpus))
    for (scorer, role), outcomes in tally(scores).items():
        print(_line(scorer, role, outcomes))
    print(f"{len(scores)} scores added")
    return int(Exit.COMPLETE)


def _line(scorer: str, role: str, outcomes: Mapping[str, int]) -> str:
    """Denominator: every answer that this scorer counts; ineligible ones stand beside it."""
    counted = sum(n for outcome, n in outcomes.items() if outcome != "ineligible")
    others = [f"{n} {outcome}" for outcome, n in sorted(outcomes.items()) if outcome not in ("passed", "failed")]
    return f"{scorer:<44} {role:<10} {outcomes.get('passed', 0)}/{counted}{'  ' + ', '.join(others) if others else ''}"
