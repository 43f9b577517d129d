"""`campaign plan`: what a configuration would run and how long it would take; or how much a precision needs."""

from __future__ import annotations

import argparse
import math
from typing import Any

from campaigns.errors import Exit, UsageError
from orchestrator.commands.options import config_option, positive, store_option
from results.store.place import DEFAULT

_HALF_WIDTH = 0.5  # %


def add_plan_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("plan", help="what a campaign would run, or needs for a wanted precision")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as for run; nothing is started")
    parser.add_argument("--from", dest="source", metavar="ID", help="propose startups and pairs from this campaign")
    half = f"wanted half width of the effect's interval, with --from (default: {_HALF_WIDTH})"
    parser.add_argument("--half-width", type=positive(float), metavar="PERCENT", help=half)
    effect = "with --from: how many startups a campaign takes that stops when it is decided, if this is its effect"
    parser.add_argument("--effect", type=positive(float), metavar="PERCENT", help=effect)
    config_option(parser)
    store_option(parser)
    parser.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace) -> int:
    if options.source is None:
        if options.half_width is not None:
            raise UsageError(
                f"--half-width {options.half_width:g} says how precise a campaign with --from ID should be: name one"
            )
        if options.effect is not None:
            raise UsageError(f"--effect {options.effect:g} is of a campaign like one with --from ID: name one")
        from orchestrator.launch import composed
        from orchestrator.preparation.outlook import outlook
        from orchestrator.settings.folders import with_folders
        from orchestrator.settings.overrides import store_override

        named = [store_override(options.store)] if options.store != DEFAULT else []
        print(outlook(composed(with_folders([*options.overrides, *named], options.config_dir))), end="")
        return int(Exit.COMPLETE)
    if options.overrides:
        raise UsageError(f"{options.overrides[0]}: --from takes its configuration from the campaign; drop the override")
    return _propose(options)


def _propose(options: argparse.Namespace) -> int:
    from results.conditions.profiles import refuse_profiled
    from results.history.forecast import expectation, forecast
    from results.store.reader import Reader
    from results.store.unchanged import require_unchanged

    with Reader.open(options.store) as reader:
        wanted = math.log1p((options.half_width or _HALF_WIDTH) / 100)
        source = reader.resolve(options.source)
        require_unchanged(reader, source)
        refuse_profiled(reader, source, "a proposal rests on")
        if options.effect is None or options.half_width is not None:
            print(forecast(reader, source, wanted, asked=options.half_width is not None), end="")
        if options.effect is not None:
            print(expectation(reader, source, math.log1p(options.effect / 100)), end="")
    return int(Exit.COMPLETE)
