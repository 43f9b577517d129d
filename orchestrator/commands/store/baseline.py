"""`campaign baseline`: named sets of campaigns that others are held against; what is kept of them is written."""

from __future__ import annotations

import argparse
from typing import Any

from campaigns.errors import Exit, UsageError
from orchestrator.commands.options import CAMPAIGN, decision_options, store_option


def add_baseline_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("baseline", help="named sets of campaigns to compare with")
    actions = parser.add_subparsers(metavar="set|drop|list", required=True, parser_class=type(parser))
    setting = actions.add_parser("set", help="add campaigns to a baseline")
    setting.add_argument("name", metavar="NAME", help="of the set; a new one or one that grows")
    setting.add_argument("ids", metavar="ID", nargs="+", help=CAMPAIGN)
    setting.add_argument("--note", default="", metavar="TEXT", help="kept with the members")
    store_option(setting)
    setting.set_defaults(run=run_baseline_set)
    dropping = actions.add_parser("drop", help="take a campaign out of a baseline, with a reason")
    dropping.add_argument("name", metavar="NAME", help="of the set")
    dropping.add_argument("id", metavar="ID", help=CAMPAIGN)
    decision_options(dropping)
    store_option(dropping)
    dropping.set_defaults(run=run_baseline_drop)
    listing = actions.add_parser("list", help="every baseline and its campaigns")
    store_option(listing)
    listing.set_defaults(run=run_baseline_list)


def run_baseline_set(options: argparse.Namespace) -> int:
    from results.store.reader import Reader
    from results.store.writer import Store

    with Reader.open(options.store) as reader:
        ids = [reader.resolve(name) for name in options.ids]
        for campaign_id in ids:
            _check_member(reader, campaign_id)
    with Store.open(options.store) as store:
        store.baseline(options.name, ids, options.note)
    print(f"baseline {options.name}: {', '.join(ids)}")
    return int(Exit.COMPLETE)


def _check_member(reader: Any, campaign_id: str) -> None:
    """A baseline is what others are held against: only a complete campaign with pairs may be in one."""
    from campaigns.records import CampaignStatus
    from results.conditions.profiles import refuse_profiled

    refuse_profiled(reader, campaign_id, "a baseline holds")
    status, pairs = reader.status(campaign_id), len(reader.recorded(campaign_id).pairs)
    if status is not CampaignStatus.COMPLETE or not pairs:
        raise UsageError(
            f"campaign {campaign_id} is {status.value} with {pairs} pairs: a baseline needs a complete one"
        )


def run_baseline_drop(options: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from campaigns.remarks import Decision
    from results.store.reader import DROPPED, Reader
    from results.store.writer import Store

    with Reader.open(options.store) as reader:
        name, found = reader.resolve(options.id), reader.baselines()
    if name not in found.get(options.name, []):
        raise UsageError(
            f"campaign {name} is not in the baseline {options.name!r}; there are {', '.join(found) or 'none'}"
        )
    utc = datetime.now(UTC).isoformat(timespec="milliseconds")
    with Store.open(options.store) as store:
        store.decision(Decision(utc, f"{options.name}/{name}", DROPPED, options.by, options.reason, "{}"))
    print(f"baseline {options.name}: without {name}")
    return int(Exit.COMPLETE)


def run_baseline_list(options: argparse.Namespace) -> int:
    from results.store.reader import Reader

    with Reader.open(options.store) as reader:
        found = reader.baselines()
    print("\n".join(f"{name}: {', '.join(ids)}" for name, ids in found.items()) or "no baseline is set")
    return int(Exit.COMPLETE)
