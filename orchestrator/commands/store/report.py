"""`campaign report`, `status` and `verify`: what the store says of a campaign, and whether it still holds."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from campaigns.errors import Exit, UsageError, highest
from campaigns.judging.verdicts import counted
from orchestrator.commands.options import campaign_argument, force_option, store_option

_LOOK_S = 1.0  # between two looks at a campaign that is followed


def add_report_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("report", help="one campaign as Markdown, HTML, JSON or CSV")
    campaign_argument(parser)
    store_option(parser)
    formats = ("md", "json", "jsonl", "html", "csv", "github", "junit")
    parser.add_argument("--format", default="md", choices=formats, help="default: %(default)s")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there instead of to the terminal")
    force_option(parser)
    parser.add_argument("--all-quantiles", action="store_true", help="refused quantiles too, marked with n")
    parser.add_argument("--strict", action="store_true", help="end with 3 when the result is not conclusive")
    parser.set_defaults(run=run_report)


def run_report(options: argparse.Namespace) -> int:
    from results.reading.summary import summarise
    from results.reports.report import marked, render_summary
    from results.store.reader import Reader
    from results.store.verify import Tally, verify

    with Reader.open(options.store) as reader:
        campaign_id = reader.resolve(options.id)
        found = [f"{finding.row}: {finding.what}" for finding in verify(reader, campaign_id, Tally())]
        with reader.damaged.sparing(campaign_id):
            summary = summarise(reader, campaign_id)
            content = render_summary(summary, reader, options.format, all_quantiles=options.all_quantiles)
        reader.resolve(campaign_id)  # which says so where no report can be made of it
    told = f"{counted(len(found), 'row')} of campaign {campaign_id} {'does' if len(found) == 1 else 'do'} not hold"
    content = marked(content, options.format, told, found) if found else content
    write(content, options.output, force=options.force)
    if found:
        print(f"campaign: {told}; campaign verify {campaign_id} names them", file=sys.stderr)
    codes = [summary.exit_code(strict=options.strict), Exit.IDENTITY if found else Exit.COMPLETE]
    return int(highest(codes))


def write(content: str | bytes, output: Path | None, option: str = "--output", *, force: bool = False) -> None:
    """To the file, or to the terminal; a place that cannot be written is a usage error that names the option.

    What is there already is overwritten only with --force, and the file's folder must be there.
    """
    if output is None:
        assert isinstance(content, str), "what goes to a terminal is text"
        sys.stdout.write(content)
        return
    if output.is_file() and not force:
        raise UsageError(f"{option} {output} is there already: name another file, or overwrite it with --force")
    try:
        output.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    except OSError as error:
        raise UsageError(
            f"{option} {output} cannot be written ({error.strerror}): name a file in a folder that is there"
        ) from error


def add_status_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("status", help="where campaigns stand")
    campaign_argument(parser, optional=True)
    store_option(parser)
    formats = ("text", "md", "json", "jsonl", "csv")
    parser.add_argument("--format", default="text", choices=formats, help="default: %(default)s")
    parser.add_argument("--archived", action="store_true", help="list those as well that were put aside")
    parser.add_argument("--watch", action="store_true", help="follow one campaign until it ends (default: the last)")
    parser.set_defaults(run=run_status)


def run_status(options: argparse.Namespace) -> int:
    from results.history.status import STANDING, details, standing, standings
    from results.reports.layout import lay_out
    from results.store.reader import Reader

    if options.watch:
        return _follow(options.store, options.id or "last")

    def listed(reader: Any) -> Any:
        if not options.archived:
            tell_aside(reader)
        return standings(reader, archived=options.archived)

    with Reader.open(options.store) as reader:
        if options.format != "text":
            named = [standing(reader, reader.campaign(reader.resolve(options.id)))] if options.id else listed(reader)
            sys.stdout.write(lay_out(options.format, STANDING, [each.row for each in named]))
            print("".join(f"{line}\n" for line in reader.damaged.lines()), end="", file=sys.stderr)
            return int(Exit.COMPLETE)
        if options.id is not None:
            name = reader.resolve(options.id)
            now, log = _now(reader, name)
            lines = [*details(reader, name), *now, *log]
        else:
            lines = [each.line for each in listed(reader)] + reader.damaged.lines()
    print("\n".join(lines) or f"the store {options.store} holds no campaign yet")
    return int(Exit.COMPLETE)


def tell_aside(reader: Any) -> None:
    """On standard error, so that nobody takes a list for the whole."""
    if aside := len(reader.archived()):
        print(f"{counted(aside, 'archived campaign')} not listed: --archived lists them too", file=sys.stderr)


def _now(reader: Any, name: str) -> tuple[list[str], list[str]]:
    """Of a campaign that runs: what it does and how long it will still take, and the end of its server's log."""
    from orchestrator.web.live import live

    now = live(reader, name)
    if not now.running:
        return [], []
    doing = f"  startup {max(now.startup, 1)} of {now.n_startups}, {now.left}; newest: {now.doing}"
    return [doing], [f"  {now.log_name}:", *(f"    {line}" for line in now.log)] if now.log else []


def _follow(store: Path, name: str) -> int:
    """Each new line of the campaign's details, and its first two whenever they change, until it no longer runs."""
    from campaigns.records import CampaignStatus
    from results.history.status import details
    from results.store.reader import Reader

    told: set[str] = set()
    while True:
        with Reader.open(store) as reader:
            name = reader.resolve(name)
            lines, status = details(reader, name), reader.status(name)
            lines[1:1] = _now(reader, name)[0]
        new = [line for line in lines if line not in told]
        print("\n".join(new), end="\n" if new else "", flush=True)
        told.update(new)
        if status is not CampaignStatus.RUNNING:
            return int(Exit.COMPLETE)
        time.sleep(_LOOK_S)


def add_verify_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("verify", help="recompute every hash and summary of a campaign from its rows")
    campaign_argument(parser)
    store_option(parser)
    parser.set_defaults(run=run_verify)


def run_verify(options: argparse.Namespace) -> int:
    from results.store.reader import Reader
    from results.store.verify import Tally, verify

    tally, found = Tally(), 0
    with Reader.open(options.store) as reader:
        campaign_id = reader.resolve(options.id, damaged=True)
        for finding in verify(reader, campaign_id, tally):
            found += 1
            print(f"{finding.row}: {finding.what}")
    verdict = (
        "every hash and summary holds" if not found else f"{counted(found, 'finding')}: the rows above were changed"
    )
    print(f"campaign {campaign_id}: {tally.rows} rows and {tally.rounds} rounds, {verdict}")
    return int(Exit.IDENTITY if found else Exit.COMPLETE)
