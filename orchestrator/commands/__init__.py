"""The subcommands of `campaign`, listed, not discovered; one module for each family."""

from orchestrator.commands.corpus import add_corpus_parser
from orchestrator.commands.doctor import add_doctor_parser
from orchestrator.commands.lease import add_lease_parser
from orchestrator.commands.report import add_report_parser, add_status_parser, add_verify_parser
from orchestrator.commands.run import add_resume_parser, add_run_parser, add_stop_parser
from orchestrator.commands.score import add_score_parser

ALL = (
    add_run_parser,
    add_resume_parser,
    add_stop_parser,
    add_status_parser,
    add_report_parser,
    add_verify_parser,
    add_corpus_parser,
    add_score_parser,
    add_doctor_parser,
    add_lease_parser,
)
