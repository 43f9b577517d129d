"""`campaign race`: many arms against one control."""

from __future__ import annotations

import argparse
from typing import Any

from campaigns.errors import UsageError
from orchestrator.commands.options import config_option, positive, store_option

_RACE = """Which of several arms is the fastest, by successive halving, e.g.
  campaign race columns-32 columns-128 torch-tuned campaign=endpoint server=embedded
Each round compares every arm that is left with the control, drops the slower half and those that are not exact, and
doubles the startups. The winner is then measured in startups that no round has seen: only that answer counts, since
the best of many looks better than it is. Every campaign is kept. Exit code: the confirmation's."""


def add_race_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "race",
        help="find the fastest of many arms, and confirm it",
        description=_RACE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="+", metavar="ARM… key=value…", help="arms of conf/arm; overrides as for run")
    parser.add_argument(
        "--startups", type=positive(int), default=2, metavar="N", help="of the first round (default: %(default)s)"
    )
    config_option(parser)
    store_option(parser)
    parser.set_defaults(run=run_race)


def run_race(options: argparse.Namespace) -> int:
    from orchestrator.launch import composed, sweep_width
    from orchestrator.preparation.prepare import Prepared
    from orchestrator.progress import ANSWER
    from orchestrator.race import predicted, race
    from orchestrator.settings.folders import with_folders
    from orchestrator.settings.overrides import store_override

    arms = list(dict.fromkeys(word for word in options.words if "=" not in word))
    words = [word for word in options.words if "=" in word]
    if len(arms) < 2:
        raise UsageError(f"a race needs two arms or more, and here {'is one' if arms else 'are none'}: campaign run")
    base = with_folders([*words, store_override(options.store)], options.config_dir)

    def compose(arm: str, startups: int) -> Prepared:
        own = [f"campaign.startups={startups}"] if startups else []
        return composed([*base, f"arm@campaign.candidate={arm}", *own], build=True)

    plans = [compose(arm, 0).plan for arm in arms]  # a wrong word is told before anything is measured
    print(predicted(plans[0], len(arms), options.startups))
    return int(race(arms, options.startups, compose, sweep_width(base), ANSWER))
