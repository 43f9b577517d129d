"""`campaign race`: many arms against one control."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from campaigns.errors import UsageError
from orchestrator.commands.options import config_option, positive, resume_option, resumed, store_option, words_of

_RACE = """Which of several arms is the fastest, by successive halving, e.g.
  campaign race columns-32 columns-128 torch-tuned campaign=endpoint server=embedded
Each round compares every arm that is left with the control, drops the slower half and those that are not exact, and
doubles the startups. The winner is then measured in startups that no round has seen: only that answer counts, since
the best of many looks better than it is. Every campaign is kept, and a
race that was interrupted or killed goes on with --resume. Exit code: the confirmation's."""


def add_race_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "race",
        help="find the fastest of many arms, and confirm it",
        description=_RACE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="campaign race ARM ARM… [--startups N] [--store F] key=value…\n"
        "       campaign race --resume [ID] [--store F]",
    )
    parser.add_argument("words", nargs="*", metavar="ARM… key=value…", help="arms of conf/arm; overrides as for run")
    parser.add_argument(
        "--startups", type=positive(int), default=2, metavar="N", help="of the first round (default: %(default)s)"
    )
    resume_option(parser, "race")
    config_option(parser)
    store_option(parser)
    parser.set_defaults(run=run_race, settings=[], command="race")


def run_race(options: argparse.Namespace) -> int:
    from orchestrator.launch import composed, sweep_width
    from orchestrator.output.progress import ANSWER
    from orchestrator.preparation.prepare import Prepared
    from orchestrator.settings.overrides import store_override
    from orchestrator.studies.race import predicted, race
    from orchestrator.studies.series import Series

    given = words_of(options)
    found = resumed(options, given)
    asked = found.asked if found else _asked(options, given)
    arms, base = asked["arms"], [*asked["words"], store_override(Path(asked.get("store", options.store)))]

    def compose(arm: str, startups: int) -> Prepared:
        own = [f"campaign.startups={startups}"] if startups else []
        return composed([*base, f"arm@campaign.candidate={arm}", *own], build=True)

    plans = [compose(arm, 0).plan for arm in arms]  # a wrong word is told before anything is measured
    at_once = sweep_width([*base, f"arm@campaign.candidate={arms[0]}"])
    with found or Series.begin(options.store, "race", asked) as series:
        print(f"{predicted(plans[0], len(arms), asked['startups'])}. If this is ended, {series.remedy}", flush=True)
        return int(race(series, arms, asked["startups"], compose, at_once, ANSWER))


def _asked(options: argparse.Namespace, given: Sequence[str]) -> dict[str, Any]:
    """All that is needed to go on with it."""
    from orchestrator.settings.folders import with_folders

    arms = list(dict.fromkeys(word for word in given if "=" not in word))
    if len(arms) < 2:
        raise UsageError(f"a race needs two arms or more, and here {'is one' if arms else 'are none'}: campaign run")
    words = with_folders([word for word in given if "=" in word], options.config_dir)
    return {"arms": arms, "startups": options.startups, "store": str(options.store.absolute()), "words": words}
