"""The subcommands of `campaign`, listed, not discovered; one module for each family.

A face parses words and prints answers; it knows no way of measuring and makes no exit code out of an exception.
"""

from orchestrator.commands.host.completion import add_completion_parser
from orchestrator.commands.host.doctor import add_doctor_parser
from orchestrator.commands.host.init import add_init_parser
from orchestrator.commands.host.lease import add_lease_parser
from orchestrator.commands.measuring.bisect import add_bisect_parser
from orchestrator.commands.measuring.corpus import add_corpus_parser
from orchestrator.commands.measuring.plan import add_plan_parser
from orchestrator.commands.measuring.race import add_race_parser
from orchestrator.commands.measuring.run import add_resume_parser, add_run_parser, add_stop_parser
from orchestrator.commands.measuring.score import add_score_parser
from orchestrator.commands.store.annotate import add_archive_parser, add_note_parser, add_tag_parser
from orchestrator.commands.store.baseline import add_baseline_parser
from orchestrator.commands.store.exchange import add_export_parser, add_import_parser
from orchestrator.commands.store.floor import add_floor_parser
from orchestrator.commands.store.gates import add_gates_parser, add_probe_parser, add_promote_parser
from orchestrator.commands.store.history import (
    add_compare_parser,
    add_history_parser,
    add_query_parser,
    add_trend_parser,
)
from orchestrator.commands.store.report import add_report_parser, add_status_parser, add_verify_parser
from orchestrator.commands.store.serve import add_serve_parser

ALL = (
    add_run_parser,
    add_resume_parser,
    add_stop_parser,
    add_race_parser,
    add_bisect_parser,
    add_status_parser,
    add_serve_parser,
    add_report_parser,
    add_verify_parser,
    add_compare_parser,
    add_history_parser,
    add_trend_parser,
    add_query_parser,
    add_baseline_parser,
    add_tag_parser,
    add_note_parser,
    add_archive_parser,
    add_export_parser,
    add_import_parser,
    add_plan_parser,
    add_gates_parser,
    add_promote_parser,
    add_probe_parser,
    add_floor_parser,
    add_corpus_parser,
    add_score_parser,
    add_init_parser,
    add_doctor_parser,
    add_lease_parser,
    add_completion_parser,
)
