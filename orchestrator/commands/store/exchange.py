"""`campaign export` and `import`: facts for other tools, and from other stores."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from campaigns.errors import Exit, UsageError
from campaigns.plan import Role
from orchestrator.commands.options import campaign_argument, force_option, store_option
from orchestrator.commands.store.report import write


def add_export_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("export", help="a campaign for other tools")
    campaign_argument(parser)
    store_option(parser)
    formats = ("csv", "parquet", "vllm-bench", "mlflow")
    parser.add_argument(
        "--format", required=True, choices=formats, help="tables, the JSON of vllm bench serve, or a run of MLflow"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="folder of tables (default: export-ID), file of vllm-bench (the terminal) or of MLflow (mlflow.db)",
    )
    parser.add_argument(
        "--role", type=Role, choices=list(Role), default=Role.CANDIDATE, help="arm of vllm-bench (default: %(default)s)"
    )
    force_option(parser)
    parser.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> int:
    from results.conditions.profiles import refuse_profiled
    from results.store.reader import Reader
    from results.transfer.export import export_tables, vllm_bench

    with Reader.open(options.store) as reader:
        campaign_id = reader.resolve(options.id)
        if options.format == "vllm-bench":
            refuse_profiled(reader, campaign_id, "that format holds")
            text = json.dumps(vllm_bench(reader, campaign_id, options.role), indent=2) + "\n"
            write(text, options.output, force=options.force)
            return int(Exit.COMPLETE)
        if options.format == "mlflow":
            return _mlflow(reader, campaign_id, options.output or Path("mlflow.db"), force=options.force)
        folder = options.output or Path(f"export-{campaign_id}")
        for path in export_tables(reader, campaign_id, folder, options.format, force=options.force):
            print(path)
    return int(Exit.COMPLETE)


def _mlflow(reader: Any, campaign_id: str, file: Path, *, force: bool) -> int:
    from campaigns.plan import differences
    from results.reading.summary import summarise
    from results.reports.headline import arms, headline
    from results.reports.report import render_summary
    from results.store.unchanged import require_unchanged
    from results.transfer.mlflow_runs import Written, export_run

    require_unchanged(reader, campaign_id)
    summary = summarise(reader, campaign_id)
    files = {f"report.{format}": render_summary(summary, reader, format) for format in ("md", "html", "json")}
    written = Written(headline(summary).sentence, "; ".join(differences(*arms(summary))), files)
    run = export_run(reader, summary, written, file, force=force)
    print(f"run {run} of {file}: mlflow ui --backend-store-uri sqlite:///{file.absolute()}")
    return int(Exit.COMPLETE)


def add_import_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("import", help="append another store's campaigns, verified; nothing is overwritten")
    parser.add_argument("other", type=Path, metavar="OTHER.sqlite", help="a store; it is only read")
    store_option(parser)
    parser.add_argument(
        "--max-s", type=float, default=600.0, metavar="S", help="seconds to read and verify it (default: %(default)g)"
    )
    parser.set_defaults(run=run_import)


def run_import(options: argparse.Namespace) -> int:
    from results.store.writer import Store
    from results.transfer.foreign import Limits, opened
    from results.transfer.merge import lines, merge

    if options.store.exists() and options.other.exists() and options.store.samefile(options.other):
        raise UsageError(f"{options.other} is the store itself: name another one, or another --store")
    with opened(options.other, Limits(max_s=options.max_s)) as other, Store.open(options.store) as store:
        outcomes = merge(store, other, options.other)
    print("\n".join(lines(outcomes)))
    return int(Exit.IDENTITY if any(outcome.conflict for outcome in outcomes) else Exit.COMPLETE)
