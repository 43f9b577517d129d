"""`campaign history`, `query`, `trend`, `compare`: questions over many campaigns; they read the store."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from campaigns.errors import Exit, UsageError
from orchestrator.commands.options import (
    CAMPAIGN,
    force_option,
    positive,
    store_option,
    table_option,
)
from orchestrator.commands.store.report import tell_aside, write

_QUERY = """Views: v_round v_request v_pair v_startup v_effect v_campaign, beside the tables; --schema [TABLE]
lists them with the unit and meaning of each column, docs/history.md has twelve questions with their SQL, e.g.
  campaign query "SELECT fixture_id, arm, avg(ttft_ms) FROM v_request WHERE phase = 'measure' GROUP BY 1, 2" """


def add_history_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("history", help="every campaign's effects, oldest first")
    store_option(parser)
    _filters(parser)
    parser.add_argument("--verdict", default="", metavar="WORD", help="exactly this: faster, slower, …")
    what = "what the arms' answers scored instead, one row per campaign and scorer; a table shows both"
    parser.add_argument("--scores", action="store_true", help=what)
    table_option(parser)
    parser.set_defaults(run=run_history)


def _filters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("filters", "each a part of what it names, in any case: h200 finds NVIDIA H200")
    for name, what in (
        ("arm", "name of an arm, or operator/schedule that one enables"),
        ("gpu", "device name"),
        ("host", "name or processor of the host"),
        ("model", "model folder or name"),
        ("name", "name of the campaign"),
        ("mode", "ab or aa"),
        ("fixture", "fixture or dataset"),
        ("baseline", "members of this baseline only"),
    ):
        group.add_argument(f"--{name}", default="", metavar="WORD", help=what)
    group.add_argument("--tag", default="", metavar="TAG", help="exactly this tag")
    group.add_argument("--archived", action="store_true", help="those as well that were put aside")
    group.add_argument(
        "--since", type=_utc, default="", metavar="UTC", help="not before this, e.g. 2026-11 or 2026-11-01T12:00"
    )


_FULL = "2000-01-01T00:00:00"


def _utc(text: str) -> str:
    """Part of a time, from the left: it is compared as text."""
    if not text:
        return text
    if not re.fullmatch(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?", text):
        raise argparse.ArgumentTypeError(f"{text} is no UTC time: write YYYY-MM-DD, or more or less of one")
    try:
        datetime.fromisoformat(text + _FULL[len(text) :])
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is no time of any calendar ({error}): correct it") from None
    return text


def _wanted(options: argparse.Namespace, reader: Any, **more: str) -> Any:
    from results.history.entries import Filter, check

    names = ("arm", "gpu", "host", "model", "name", "mode", "since", "fixture", "tag", "archived")
    only = None
    if options.baseline:
        found = reader.baselines()
        if options.baseline not in found:
            raise UsageError(f"no baseline is named {options.baseline!r}; there are {', '.join(found) or 'none'}")
        only = frozenset(found[options.baseline])
    wanted = Filter(**{name: getattr(options, name) for name in names} | more, campaigns=only)
    check(reader, wanted)
    return wanted


def run_history(options: argparse.Namespace) -> int:
    from results.history.entries import history
    from results.history.scores import scores
    from results.store.reader import Reader

    def show(rows: Any) -> None:
        _show(options.format, list(rows.columns), rows.to_numpy(dtype=object).tolist())

    with Reader.open(options.store) as reader:
        wanted = _wanted(options, reader, verdict=options.verdict)
        frame = scores(reader, wanted) if options.scores else history(reader, wanted)
        beside = scores(reader, wanted) if options.format == "table" and not options.scores else frame.iloc[:0]
        damaged = reader.damaged.lines()
        if not options.archived:
            tell_aside(reader)
    show(frame.drop(columns=_unknown(frame)) if options.format == "table" else frame)
    if not beside.empty:
        print("\nScores (separate denominators; p: McNemar, exact):")
        show(beside)
    print("".join(f"{line}\n" for line in damaged), end="", file=sys.stderr)
    if frame.empty:
        print("nothing that was measured meets all of this", file=sys.stderr)
    return int(Exit.COMPLETE)


_EXPENDABLE = (  # on a terminal that is too narrow, the first group first
    *(["model"], ["mode"], ["gpu"], ["n_pairs", "n_admissible"], ["lowest_pct", "highest_pct"], ["name"], ["evidence"]),
    *(["tags"], ["noise_floor_pct"], ["control"], ["n_startups"], ["created_utc"], ["ci_low_pct", "ci_high_pct"]),
    *(["candidate"], ["campaign_id"]),
)


def _show(format: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """On a terminal a table fits it, and says what it left out; what is piped or in another format is whole."""
    from results.reports.layout import fitted, lay_out

    if format == "table" and sys.stdout.isatty():
        short = [[_short(name, value) for name, value in zip(header, row, strict=True)] for row in rows]
        kept, rows = fitted(header, short, shutil.get_terminal_size().columns, _EXPENDABLE)
        if left_out := [name for name in header if name not in kept]:
            print(f"left out: {', '.join(left_out)}; a wider terminal or --format csv has them", file=sys.stderr)
        header = kept
    sys.stdout.write(lay_out(format, header, rows))


def _short(name: str, value: Any) -> Any:
    """Minutes of a time and hundredths of a per cent, whose further digits say nothing here."""
    if name == "created_utc":
        return str(value)[:16]
    return round(value, 2) if name.endswith("_pct") and isinstance(value, float) else value


def _unknown(frame: Any) -> list[str]:
    """Columns of energy that nobody told: CPU runs fill a page without them."""
    from results.history.entries import ENERGIES

    return [name for name in ENERGIES if name in frame and frame[name].isna().all()]


def add_query_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "query",
        help="SQL over the store, reading only",
        epilog=_QUERY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sql", metavar="SELECT", nargs="?", help="one statement that reads")
    listing = "list tables, views and columns, or those of one table, instead of asking"
    parser.add_argument("--schema", nargs="?", const="", metavar="TABLE", help=listing)
    store_option(parser)
    table_option(parser)
    parser.add_argument("--max-rows", type=positive(int), default=1000, metavar="N", help="default: %(default)s")
    parser.add_argument("--max-s", type=positive(float), default=10.0, metavar="SECONDS", help="default: %(default)s")
    parser.set_defaults(run=run_query)


def run_query(options: argparse.Namespace) -> int:
    from results.history.meanings import HEADER, schema
    from results.history.query import query
    from results.reports.layout import lay_out
    from results.store.reader import Reader

    if (options.sql is None) == (options.schema is None):
        raise UsageError("campaign query wants one SELECT, or --schema [TABLE]")
    with Reader.open(options.store) as reader:
        if options.schema is not None:
            sys.stdout.write(lay_out(options.format, HEADER, schema(reader.connection, options.schema)))
            return int(Exit.COMPLETE)
        answer = query(reader, options.sql, max_rows=options.max_rows, max_s=options.max_s)
    sys.stdout.write(lay_out(options.format, answer.header, answer.rows))
    if answer.truncated:
        print(f"only the first {options.max_rows} rows: raise --max-rows for more", file=sys.stderr)
    return int(Exit.COMPLETE)


def add_trend_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("trend", help="paired effects of one fixture over time")
    parser.add_argument("of", metavar="FIXTURE", help="exactly this fixture or dataset")
    store_option(parser)
    _filters(parser)
    table_option(parser)
    force_option(parser)
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw it as well, as its name says: .svg or .png")
    parser.set_defaults(run=run_trend)


def run_trend(options: argparse.Namespace) -> int:
    from results.history.trend import COLUMNS, FIGURES, trend
    from results.store.reader import Reader

    draw = FIGURES.get(options.figure.suffix.lower()) if options.figure is not None else None
    if options.figure is not None and draw is None:
        raise UsageError(f"--figure {options.figure}: name a file that ends with {' or '.join(FIGURES)}")
    with Reader.open(options.store) as reader:
        frame = trend(reader, options.of, _wanted(options, reader))
    if draw is not None:
        write(draw(frame, options.of), options.figure, "--figure", force=options.force)
    _show(options.format, COLUMNS, frame[list(COLUMNS)].to_numpy(dtype=object).tolist())
    return int(Exit.COMPLETE)


def add_compare_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("compare", help="campaigns side by side, or what makes them incomparable")
    parser.add_argument("ids", metavar="ID", nargs="+", help=f"two or more, each {CAMPAIGN}")
    store_option(parser)
    formats = ("text", "md", "json", "jsonl", "csv")
    shown = "text, or the paired effects alone as a table of this kind (default: %(default)s)"
    parser.add_argument("--format", default="text", choices=formats, help=shown)
    parser.set_defaults(run=run_compare)


def run_compare(options: argparse.Namespace) -> int:
    from results.conditions.profiles import refuse_profiled
    from results.history.comparison import EFFECTS, compare, effects
    from results.reading.summary import summarise
    from results.reports.layout import lay_out
    from results.store.reader import Reader
    from results.store.unchanged import require_unchanged

    with Reader.open(options.store) as reader:
        ids = list(dict.fromkeys(reader.resolve(name) for name in options.ids))
        if len(ids) < 2:
            raise UsageError(f"compare needs two campaigns or more, and {' '.join(options.ids)} is one")
        for campaign_id in ids:
            require_unchanged(reader, campaign_id)
            refuse_profiled(reader, campaign_id, "compare sets side by side")
        found = [summarise(reader, campaign_id) for campaign_id in ids]
    text = compare(found) if options.format == "text" else lay_out(options.format, EFFECTS, effects(found))
    sys.stdout.write(text)
    return int(Exit.COMPLETE)
