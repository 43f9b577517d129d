"""`campaign floor`: leave an A/A campaign out of every noise floor, or take it back; recorded with who and why."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from campaigns.errors import Exit, UsageError
from orchestrator.commands.options import campaign_argument, decision_options, store_option


def add_floor_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("floor", help="leave an A/A campaign out of the noise floors, with a reason")
    campaign_argument(parser)
    decision_options(parser)
    parser.add_argument("--take-back", action="store_true", help="count it again")
    store_option(parser)
    parser.set_defaults(run=run_floor)


def run_floor(options: argparse.Namespace) -> int:
    from campaigns.remarks import Decision
    from results.conditions.profiles import refuse_profiled
    from results.reading.past import LEAVE_OUT, TAKE_BACK, known
    from results.store.reader import Reader
    from results.store.writer import Store

    with Reader.open(options.store) as reader:
        name = reader.resolve(options.id)
        [about] = [each for each in known(reader) if each.campaign_id == name]
        refuse_profiled(reader, name, "floors rest on")
    if not about.is_aa:
        raise UsageError(f"campaign {name} is no A/A campaign: only those may be left out, and with a reason")
    what = TAKE_BACK if options.take_back else LEAVE_OUT
    utc = datetime.now(UTC).isoformat(timespec="milliseconds")
    with Store.open(options.store) as store:
        store.decision(Decision(utc, name, what, options.by, options.reason, "{}"))
    print(f"{name}: {what}, by {options.by}: {options.reason}")
    return int(Exit.COMPLETE)
